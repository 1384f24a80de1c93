//! One replica of a Raft group: its parts, how they are wired, started and stopped.
//!
//! ```text
//! propose → proposer (batches, numbers, retries) ─┬→ openraft here, if this replica leads
//!                                                 └→ the leader, over the network
//! openraft → log (synced) → quorum → state machine → SharedLedger, and the callers waiting here
//! ```
//!
//! Owns every task of the replica. [`Group::stop`] ends them in order; a task that fails shows in
//! [`Group::failure`].

mod barrier;
mod changes;
mod clocks;
mod error;
mod founding;
mod housekeeping;
mod join;
mod peer_rpc;
pub(crate) mod peers;
mod proposer;
mod reads;
mod removed;
mod replaced;
mod settings;
mod status;
mod ticking;
mod waiting;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use smc_authority::ledger::{Command, Ledger, Outcome};
use smc_authority::rules::GroupTime;
use smc_host::env::{Entropy, Env};
use smc_host::network::{Listener, Tcp};
use smc_types::ids::ReplicaId;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use zeroize::Zeroizing;

use crate::check_quorum::CheckQuorum;
use crate::peer_rpc::Answering;
use crate::recovery::backup::{self, Backup, BackupError};
use crate::replicated::{ProposeError, ReplicatedLedger};
use crate::runtime::Runtime;
use crate::state::machine::{Raft, StateMachine};
use crate::state::shared::{AppliedMembership, SharedLedger};
use crate::state::waiters::Waiters;
use crate::storage::Storage;
use crate::storage::disk::{Disk, Failure};
use crate::storage::error::StorageError;
use crate::storage::identity::{Identity, IdentityError};
use crate::storage::log::LogStore;
use crate::transport::client::Dialer;
use crate::transport::server::{self, Service};
use crate::transport::tls::{GroupSecret, ReplicaTls};
use barrier::SharedBarrier;
pub use clocks::Contact;
use clocks::PeerClocks;
pub use error::{GroupError, MembershipError};
pub use founding::{Claim, ClaimError, FoundingRegister, Place};
use housekeeping::housekeeping;
use join::GroupJoin;
use peers::Peers;
use proposer::{Proposal, ProposeContext, Proposer};
pub use replaced::Replaced;
pub use settings::{Connections, Settings};
pub use status::{GroupStatus, Member};
use ticking::ticking;

/// The most commands in one proposal.
pub const MAX_COMMANDS: usize = 256;

/// The most bytes that the commands of one proposal may take in the log.
pub const MAX_PROPOSAL_BYTES: usize = 1024 * 1024;

/// Queued proposals; callers wait while the queue is full. Together with [`MAX_PROPOSAL_BYTES`] it bounds the
/// memory of the queue to 256 MiB; in practice a proposal is one command of 3 KiB.
const QUEUE: usize = 256;

/// How long all tasks together may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A running replica.
pub struct Group {
    pub(crate) raft: Raft,
    identity: Identity,
    shared: SharedLedger,
    applied_membership: AppliedMembership,
    secret: GroupSecret,
    entropy: Arc<dyn Entropy>,
    peers: Peers,
    /// The addresses of the initial and possible members.
    known: BTreeMap<ReplicaId, String>,
    clocks: PeerClocks,
    answering: Answering,
    /// Why this replica is in no group yet; empty where it is in one, or has not asked.
    joining: watch::Sender<String>,
    barrier: SharedBarrier<Result<(), ProposeError>>,
    queue: mpsc::Sender<Proposal>,
    disk: Disk,
    stopping: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

impl Group {
    /// Starts a replica. Returns as soon as its disk is read; [`Group::ready`] waits for the group.
    ///
    /// All its tasks and connections run on the runtime that this is called on, and the listener on the one
    /// that it was opened on. A caller on another runtime can keep that one busy without delaying a
    /// heartbeat or a commit.
    #[expect(clippy::too_many_lines, reason = "the parts of a replica, in the order in which they start")]
    pub async fn start(
        settings: Settings,
        storage: Storage,
        connections: Connections,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, GroupError> {
        let Settings {
            replica,
            address,
            initial_members,
            possible_members,
            founded_before,
            founding,
            timing,
            secret,
            other_secrets,
        } = settings;
        let disk = storage.open(Some(replica)).await.map_err(GroupError::Storage)?;
        let failed = |error| start_error(&disk, &error);
        let identity =
            Identity::open(disk.clone(), replica, &*entropy).await.map_err(|error| match error {
                IdentityError::Storage(error) => failed(error),
                IdentityError::NoEntropy(error) => error.into(),
            })?;
        let (election_seed, snapshot_seed) = (entropy.random_u64()?, entropy.random_u64()?);
        let shared = SharedLedger::default();
        let waiters = Waiters::default();
        let machine = open_machine(&disk, shared.clone(), waiters.clone()).await.map_err(failed)?;
        let snapshots = machine.snapshots();
        let (log_growth, applied_membership) = (machine.log_growth(), machine.applied_membership());
        let (log, flusher) = LogStore::new(disk.clone());
        let tls = ReplicaTls::new(&secret, &other_secrets, replica)?;
        let check_quorum = CheckQuorum::new(timing);
        let dialer = Dialer {
            network: connections.network,
            tls: tls.clone(),
            identity: identity.clone(),
            check_quorum: check_quorum.clone(),
            runtime: Handle::current(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(flusher.run());
        let config = Arc::new(settings::config(&timing)?);
        let starting = Raft::new(replica, config, dialer.clone(), log, machine);
        let raft = Runtime::seeded(election_seed, starting).await;
        let raft = raft.map_err(|error| failed(io::Error::other(error.to_string())))?;
        check_quorum.follow(raft.metrics());
        let peers = Peers::new(raft.clone(), dialer);
        let clock = Arc::clone(&connections.clock);
        let clocks = PeerClocks::new(raft.clone(), peers.clone(), replica, clock);

        let answering = Answering::default();
        let stopping = CancellationToken::new();
        if let Some(listener) = connections.listener {
            let (clock, answering) = (connections.clock, answering.clone());
            let service = Service::new(raft.clone(), identity.clone(), snapshots, clock, answering);
            tasks.spawn(serve(service, listener, tls, stopping.clone()));
        }
        let (queue, proposals) = mpsc::channel(QUEUE);
        let context = ProposeContext {
            raft: raft.clone(),
            peers: peers.clone(),
            waiters,
            entropy: Arc::clone(&entropy),
        };
        tasks.spawn(Proposer::new(context, proposals).run(stopping.clone()));
        let keeping = housekeeping(raft.clone(), log_growth, SmallRng::seed_from_u64(snapshot_seed));
        tasks.spawn(until(stopping.clone(), keeping));
        tasks.spawn(until(stopping.clone(), clocks.clone().run()));
        tasks.spawn(until(stopping.clone(), watch_over(raft.clone(), disk.clone())));
        tasks.spawn(until(stopping.clone(), ticking(raft.clone(), replica, identity.incarnation)));
        let known = possible_members.iter().chain(&initial_members);
        let known = known.map(|(id, address)| (*id, address.clone())).collect();
        let joining = GroupJoin {
            raft: raft.clone(),
            identity: identity.clone(),
            peers: peers.clone(),
            address,
            initial_members,
            possible_members,
            founded_before,
            founding,
            entropy: Arc::clone(&entropy),
            reason: watch::Sender::default(),
        };
        let reason = joining.reason.clone();
        tasks.spawn(until(stopping.clone(), joining.run()));
        Ok(Self {
            raft,
            identity,
            shared,
            applied_membership,
            secret,
            entropy,
            peers,
            known,
            clocks,
            answering,
            joining: reason,
            barrier: SharedBarrier::new(),
            queue,
            disk,
            stopping,
            tasks: Mutex::new(tasks),
        })
    }

    /// Starts a group of one replica that no other can connect to, and waits until it is ready: for tests,
    /// and tools that read a directory.
    pub async fn alone(replica: ReplicaId, storage: Storage, env: &Env) -> Result<Self, GroupError> {
        // There is no listener, so the secret protects nothing.
        let secret = GroupSecret::new(Zeroizing::new([0; 32]));
        let settings = Settings::new(replica, "localhost:0".to_owned(), secret);
        let clock = Arc::clone(&env.clock);
        let connections = Connections { network: Arc::new(Tcp), listener: None, clock };
        let group = Self::start(settings, storage, connections, Arc::clone(&env.entropy)).await?;
        group.ready().await.map_err(|error| GroupError::Raft(error.to_string()))?;
        Ok(group)
    }

    /// Waits until the replica belongs to a group with a leader, and has caught up with it. Fails if its
    /// storage does.
    pub async fn ready(&self) -> Result<(), ProposeError> {
        let mut failure = self.failure();
        let mut said = None;
        let waiting = async {
            while self.barrier().await.is_err() {
                let missing = self.waits_for();
                if let Some(missing) = missing.as_ref().filter(|_| missing != said) {
                    info!(replica = %self.identity.replica, "waiting for {missing}");
                }
                said = missing;
            }
        };
        tokio::select! {
            () = waiting => Ok(()),
            _ = failure.wait_for(Option::is_some) => Err(self.stopped()),
        }
    }

    /// Becomes `Some` when the storage fails. The replica takes no proposals from then on, and should be
    /// stopped.
    pub fn failure(&self) -> Failure {
        self.disk.failure()
    }

    /// Waits until this replica knows of a leader other than `known`. Never returns if the replica stops
    /// before.
    pub async fn leader_changed(&self, known: Option<ReplicaId>) {
        self.peers.leader_changed(known).await;
    }

    /// The contact with each other member, as this replica has it.
    pub fn contacts(&self) -> BTreeMap<ReplicaId, Contact> {
        self.clocks.contacts()
    }

    /// Log index of the last membership change, 0 without a group. Equal on all replicas that have applied
    /// as much; grows with every change. The group that a restore or recovery makes counts from its own
    /// log.
    pub fn membership_index(&self) -> u64 {
        self.applied_membership.index()
    }

    /// Triggers a snapshot, after which the log that it includes is dropped. Does not wait for it.
    pub async fn snapshot(&self) -> Result<(), MembershipError> {
        let snapshot = self.raft.trigger().snapshot().await;
        snapshot.map_err(|error| MembershipError::Failed(error.to_string()))
    }

    /// Writes a backup of everything that any replica acknowledged before this call. `sink` may block: it
    /// is written to on a thread of its own.
    pub async fn backup(&self, sink: impl io::Write + Send + 'static) -> Result<(), BackupError> {
        self.barrier().await?;
        let backup = Backup { group: self.identity.group(), ledger: self.shared.read(Ledger::clone) };
        let mut salt = [0; 32];
        self.entropy.fill(&mut salt)?;
        let secret = self.secret.clone();
        let written = tokio::task::spawn_blocking(move || backup::write(&backup, &secret, salt, sink)).await;
        Ok(written.map_err(io::Error::other)??)
    }

    /// Stops all tasks and closes the files. The outcome of unanswered proposals is unknown.
    pub async fn stop(&self) {
        self.stopping.cancel();
        let stopped = timeout(STOP_PATIENCE, async {
            if let Err(error) = self.raft.shutdown().await {
                error!(%error, "Raft's task panicked");
            }
            let mut tasks = self.tasks.lock().await;
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended
                    && error.is_panic()
                {
                    error!(%error, "a task of the ledger panicked");
                }
            }
        });
        if stopped.await.is_err() {
            // The flusher ends with the last log store, which openraft drops when it has stopped.
            warn!("the ledger did not stop in time; aborting its remaining tasks");
            self.tasks.lock().await.shutdown().await;
        }
    }

    fn stopped(&self) -> ProposeError {
        match &*self.disk.failure().borrow() {
            Some(error) => ProposeError::Failed(Arc::clone(error)),
            None => ProposeError::Closed,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Without `stop` nothing waits for the tasks, but they end all the same.
        self.stopping.cancel();
    }
}

impl ReplicatedLedger for Group {
    fn propose(&self, commands: Vec<Command>) -> BoxFuture<'_, Result<Vec<Outcome>, ProposeError>> {
        Box::pin(async move {
            let commands: Vec<Bytes> = commands
                .iter()
                .map(|command| serde_json::to_vec(command).map(Bytes::from))
                .collect::<Result<_, _>>()
                .map_err(|error| ProposeError::Unencodable(error.to_string()))?;
            let bytes = commands.iter().map(Bytes::len).sum();
            if commands.len() > MAX_COMMANDS || bytes > MAX_PROPOSAL_BYTES {
                return Err(ProposeError::TooLarge {
                    commands: commands.len(),
                    bytes,
                    max_commands: MAX_COMMANDS,
                    max_bytes: MAX_PROPOSAL_BYTES,
                });
            }
            let mut failure = self.failure();
            let (reply, outcomes) = oneshot::channel();
            let proposing = async {
                let proposal = Proposal { commands, bytes, reply };
                self.queue.send(proposal).await.map_err(|_| self.stopped())?;
                outcomes.await.map_err(|_| self.stopped())?
            };
            tokio::select! {
                biased;
                proposed = proposing => proposed,
                _ = failure.wait_for(Option::is_some) => Err(self.stopped()),
            }
        })
    }

    fn barrier(&self) -> BoxFuture<'_, Result<(), ProposeError>> {
        Box::pin(self.barrier.pass(self.caught_up()))
    }

    fn local(&self) -> &SharedLedger {
        &self.shared
    }

    fn time(&self) -> GroupTime {
        self.clocks.time()
    }
}

/// The error of a start: the failure of the disk, if it failed, and otherwise `error`.
fn start_error(disk: &Disk, error: &io::Error) -> GroupError {
    match &*disk.failure().borrow() {
        Some(cause) => GroupError::Storage(Arc::clone(cause)),
        None => GroupError::Raft(error.to_string()),
    }
}

/// Opens the state machine, and deletes what an interrupted snapshot left on the disk.
async fn open_machine(disk: &Disk, ledger: SharedLedger, waiters: Waiters) -> io::Result<StateMachine> {
    let open = move |disk: &Disk| {
        let machine = StateMachine::open(disk.clone(), ledger, waiters)?;
        machine.snapshots().sweep()?;
        Ok(machine)
    };
    disk.run(open).await
}

/// Serves other replicas until `stopping`. An error is reported as a failure of the storage, which stops
/// the replica.
async fn serve(service: Service, listener: Box<dyn Listener>, tls: ReplicaTls, stopping: CancellationToken) {
    let disk = service.identity.disk().clone();
    if let Err(error) = server::serve(service, listener, tls, stopping).await {
        disk.fail(StorageError::damaged(format!("the Raft port is not served any more: {error}")));
    }
}

async fn until(stopping: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stopping.cancelled() => {}
        () = work => {}
    }
}

/// Reports it as a failure of the storage if Raft ends by itself: otherwise the replica would seem alive
/// and answer nothing.
async fn watch_over(raft: Raft, disk: Disk) {
    // Changes seldom, unlike all metrics; its sender goes with Raft's task, after the reason is published.
    let mut server = raft.server_metrics();
    while server.changed().await.is_ok() {}
    let reason = match &raft.metrics().borrow_watched().running_state {
        Err(error) => error.to_string(),
        Ok(()) => "its task is gone".to_owned(),
    };
    // If the storage was the cause, its own failure is already recorded and stays.
    disk.fail(StorageError::damaged(format!("Raft has stopped: {reason}")));
}
