//! The current leader and the other members, with connections for requests to them, and the pauses between
//! retries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use smc_host::backoff::Backoff;
use smc_host::sync::lock;
use smc_types::ids::ReplicaId;
use tokio::time::timeout;

use crate::state::machine::Raft;
use crate::transport::client::{CallError, Dialer, Peer};
use crate::types::Replica;

/// Where a request goes that only the leader can answer.
pub(crate) enum Leader {
    /// This replica leads.
    Me,
    /// Another replica leads.
    Other(Box<Peer>),
    /// This replica knows no leader.
    Unknown,
}

/// The pauses between attempts at the same leader. A new leader refuses requests until a quorum has
/// acknowledged it, which takes a round trip and a sync; an election takes hundreds of milliseconds.
const RETRY: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(20));

/// The attempts of one request.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    leader: Option<ReplicaId>,
    /// The failed attempts at this leader.
    failed: u32,
}

impl Attempts {
    /// Pauses after a failed attempt at `leader`; ends early if another leader becomes known.
    pub(crate) async fn wait(&mut self, peers: &Peers, leader: Option<ReplicaId>) {
        if self.leader != leader {
            *self = Self { leader, failed: 0 };
        }
        let pause = RETRY.wait(self.failed);
        self.failed = self.failed.saturating_add(1);
        let _ = timeout(pause, peers.leader_changed(leader)).await;
    }
}

/// The other members. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Peers {
    raft: Raft,
    dialer: Dialer,
    /// Connections by replica, each with the address and incarnation that it was made for. At most one per
    /// member.
    connected: Arc<Mutex<BTreeMap<ReplicaId, (Replica, Peer)>>>,
}

impl Peers {
    pub(crate) fn new(raft: Raft, dialer: Dialer) -> Self {
        Self { raft, dialer, connected: Arc::default() }
    }

    /// The current leader, as far as this replica knows.
    pub(crate) fn leader_id(&self) -> Option<ReplicaId> {
        self.raft.server_metrics().borrow_watched().current_leader
    }

    /// Waits until this replica knows of a leader other than `known`.
    pub(crate) async fn leader_changed(&self, known: Option<ReplicaId>) {
        // Not all metrics, which are published with every tick and message.
        let mut server = self.raft.server_metrics();
        while self.leader_id().is_none_or(|leader| Some(leader) == known) {
            if server.changed().await.is_err() {
                // Raft has stopped; the caller is about to be stopped, too.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The answer of `leader`, given up as soon as another leader is known: a leader that was cut off answers
    /// nothing, and would delay a request until its deadline.
    pub(crate) async fn while_leading<T>(
        &self,
        leader: Option<ReplicaId>,
        answer: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        tokio::select! {
            biased;
            answered = answer => answered,
            () = self.leader_changed(leader) => Err(CallError::NotLeader),
        }
    }

    /// The current leader, with a client connected to it.
    pub(crate) fn leader(&self) -> Leader {
        match self.leader_id() {
            Some(leader) if leader == self.dialer.identity.replica => Leader::Me,
            Some(leader) => self.peer(leader).map_or(Leader::Unknown, |peer| Leader::Other(Box::new(peer))),
            None => Leader::Unknown,
        }
    }

    /// Another member, by its id.
    pub(crate) fn peer(&self, id: ReplicaId) -> Option<Peer> {
        if id == self.dialer.identity.replica {
            return None;
        }
        let metrics = self.raft.metrics();
        let replica = metrics.borrow_watched().membership_config.membership().get_node(&id)?.clone();
        Some(self.at(id, replica))
    }

    /// A replica at a known address. Its connection is reused until its address or incarnation changes.
    pub(crate) fn at(&self, id: ReplicaId, replica: Replica) -> Peer {
        let mut connected = lock(&self.connected);
        if let Some((known, peer)) = connected.get(&id)
            && *known == replica
        {
            return peer.clone();
        }
        let peer = self.dialer.peer(id, &replica);
        connected.insert(id, (replica, peer.clone()));
        peer
    }
}
