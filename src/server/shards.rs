//! Shards: which replica should serve which proxy, and how the replicas agree on it.
//!
//! Owns this replica's phase in the ledger, what the leader says about replicas that are gone and
//! about rules that all know, and the answers to other replicas' questions about shards. The owner
//! of a proxy is a hint: any replica serves any proxy.
//!
//! ```text
//! readiness ─→ keeper ─SetReplicaPhase→ ledger ─announcements→ follower ─placement→ owner, hand-off, status
//! ```

mod decide;
mod drain;
mod handoff;
mod peer_rpc;
mod placement_keeper;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smc_authority::ledger::{
    Ledger, LedgerOperation, Rejection, ReplicaPhase, ReplicaRecord, SetReplicaPhase,
};
use smc_host::env::{Env, NoEntropy};
use smc_issuing::timed;
use smc_raft::{Group, ProposeError, ReplicatedLedger};
use smc_sidecar::bootstrap::Controllers;
use smc_types::ids::{ProxyUuid, ReplicaId};
use smc_xds::served_state::ServedState;
use smc_xds::shard;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;

pub use drain::Drain;

use crate::sidecars::Sidecars;
use crate::xds::proxies::Proxies;
pub(crate) use peer_rpc::ProxyReports;
use smc_host::tasks::Tasks;

/// How long a change of a phase may take to commit: several elections.
const COMMIT_LIMIT: Duration = Duration::from_secs(5);

/// The replicas' phases at one epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Grows by one with each change; equal epochs have equal phases.
    pub epoch: u64,
    /// The phases.
    pub phases: BTreeMap<ReplicaId, ReplicaRecord>,
    /// The replicas that own a shard.
    pub ready: BTreeSet<ReplicaId>,
}

impl Placement {
    fn of(ledger: &Ledger) -> Self {
        let placement = ledger.placement();
        Self { epoch: placement.epoch, phases: placement.replicas.clone(), ready: placement.ready() }
    }
}

/// Proxies that this replica hands over, counted since its start.
#[derive(Debug, Default)]
pub struct Moves {
    /// Proxies whose streams it ends now.
    pub in_flight: AtomicU64,
    /// Proxies whose streams it has ended.
    pub moved: AtomicU64,
    /// Moves that a receiver refused.
    pub refused: AtomicU64,
}

impl Moves {
    fn read(count: &AtomicU64) -> u64 {
        count.load(Ordering::Relaxed)
    }
}

/// Why a replica did not come to a phase, or the group to other rules.
#[derive(Debug, Error)]
pub enum PhaseError {
    /// The ledger refuses it.
    #[error("the ledger refuses the change")]
    Rejected(#[from] Rejection),
    /// It was not committed.
    #[error("the change was not committed")]
    NotCommitted(#[from] ProposeError),
    /// It was not committed in time; it may be yet.
    #[error("the change was not committed within {} s", COMMIT_LIMIT.as_secs())]
    Timeout,
    /// A member of the group has an older version, which does not know phases.
    #[error("a member of the group does not know phases yet")]
    NotKnown,
    /// The ledger's reply belongs to another operation. Cannot happen.
    #[error("the ledger gave no answer to the change")]
    NoAnswer,
}

/// The shards as one replica sees them. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Shards {
    group: Arc<Group>,
    env: Env,
    me: ReplicaId,
    run: u64,
    controllers: Arc<Controllers>,
    placement: watch::Receiver<Arc<Placement>>,
    moves: Arc<Moves>,
    receiver: Arc<handoff::Receiver>,
}

/// What a replica's shards depend on.
pub(crate) struct Parts {
    pub(crate) group: Arc<Group>,
    pub(crate) env: Env,
    pub(crate) controllers: Arc<Controllers>,
    pub(crate) proxies: Proxies,
    /// Answers what the leader asks about objects and proxies.
    pub(crate) reports: ProxyReports,
    /// Answers what the leader asks about the sidecars of the mesh.
    pub(crate) sidecars: Sidecars,
    /// The latest state.
    pub(crate) served: watch::Receiver<Option<Arc<ServedState>>>,
    /// Whether the replica serves the mesh.
    pub(crate) ready: Box<dyn Fn() -> bool + Send + Sync>,
    /// Whether it is about to stop: it does not join again then.
    pub(crate) stops: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Shards {
    /// Starts the tasks: this replica joins, is ready when it serves the mesh, and answers the others.
    pub(crate) fn start(parts: Parts, tasks: &mut Tasks) -> Result<Self, NoEntropy> {
        let Parts { group, env, controllers, proxies, reports, sidecars, served, ready, stops } = parts;
        let run = env.random_u64()?;
        let placement = placement_keeper::follow(&group, tasks);
        let (me, moves) = (group.status().replica, Arc::default());
        let receiver = Arc::new(handoff::Receiver::new(controllers.ring().replicas().len()));
        let shards = Self { group, env, me, run, controllers, placement, moves, receiver };
        let answering = peer_rpc::Answering {
            shards: shards.clone(),
            proxies: proxies.clone(),
            reports,
            sidecars,
            served,
        };
        peer_rpc::start(answering, tasks);
        handoff::start(shards.clone(), proxies, tasks);
        placement_keeper::start(shards.clone(), ready, stops, tasks);
        Ok(shards)
    }

    /// Drains this replica, whose proxies these are.
    pub(crate) fn drain(&self, proxies: &Proxies) -> Drain {
        Drain { shards: self.clone(), proxies: proxies.clone() }
    }

    /// This replica.
    pub fn me(&self) -> ReplicaId {
        self.me
    }

    /// This process: drawn at its start.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// The placement, with every change. A receiver that is behind sees the latest.
    pub fn watch(&self) -> watch::Receiver<Arc<Placement>> {
        self.placement.clone()
    }

    /// The placement now.
    pub fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement.borrow())
    }

    /// The phase of this process; `None` before it has joined, or if another process of the replica has.
    pub fn phase(&self) -> Option<ReplicaPhase> {
        let placement = self.placement();
        let record = placement.phases.get(&self.me).filter(|record| record.run == self.run);
        record.map(|record| record.phase)
    }

    /// The replica that should serve a proxy, by the placement now: the first ready one of the
    /// proxy's bootstrap.
    pub fn owner(&self, proxy: ProxyUuid) -> Option<ReplicaId> {
        self.owner_in(&self.placement(), proxy)
    }

    /// The replica that should serve a proxy by this placement.
    pub fn owner_in(&self, placement: &Placement, proxy: ProxyUuid) -> Option<ReplicaId> {
        shard::owner(self.controllers.ring(), proxy, &placement.ready)
    }

    /// The counts of this replica's moves.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Brings this process to a phase, and returns whether it was in another one. Returns when this
    /// replica knows.
    pub async fn set_phase(&self, phase: ReplicaPhase) -> Result<bool, PhaseError> {
        let changed = self.propose(SetReplicaPhase { replica: self.me.0, run: self.run, phase }).await?;
        Ok(changed)
    }

    /// Proposes a phase, or the end of one.
    async fn propose<O: LedgerOperation>(&self, operation: O) -> Result<O::Reply, PhaseError> {
        if self.placement().epoch == 0 && !decide::all_know_phases(&self.group.contacts()) {
            return Err(PhaseError::NotKnown);
        }
        self.commit(operation).await
    }

    async fn commit<O: LedgerOperation>(&self, operation: O) -> Result<O::Reply, PhaseError> {
        let commands = timed(&*self.group, self.env.now(), operation);
        let outcomes = timeout(COMMIT_LIMIT, self.group.propose(commands)).await;
        let outcome = outcomes.map_err(|_| PhaseError::Timeout)??.pop().ok_or(PhaseError::NoAnswer)?;
        O::reply(outcome?).ok_or(PhaseError::NoAnswer)
    }
}
