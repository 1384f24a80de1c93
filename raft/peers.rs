//! The other members of the group, and connections to them for requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::timeout;

use crate::machine::StateMachine;
use crate::transport::client::{CallError, Dialer, Peer};
use crate::types::{Replica, ReplicaId, TypeConfig};

/// Where a request goes that only the leader can answer.
pub(crate) enum Leader {
    /// This replica leads.
    Me,
    /// Another one does.
    Other(Box<Peer>),
    /// There is none that this replica knows.
    Nobody,
}

/// The first wait before a request to the leader is tried again. Whoever has just come to lead refuses until a quorum has
/// acknowledged it, which takes a round trip and a sync.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The longest such wait. An election takes hundreds of milliseconds.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The waits between attempts of one request.
#[derive(Debug, Default)]
pub(crate) struct BackOff {
    asked: Option<ReplicaId>,
    pause: Duration,
}

impl BackOff {
    /// Waits after `leader` did not do it; less if there is somebody else to ask sooner.
    pub(crate) async fn wait(&mut self, peers: &Peers, leader: Option<ReplicaId>) {
        let same = self.asked == leader;
        self.asked = leader;
        self.pause = if same { (2 * self.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE) } else { FIRST_PAUSE };
        let _ = timeout(self.pause, peers.another_leader(leader)).await;
    }
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Peers {
    raft: openraft::Raft<TypeConfig, StateMachine>,
    dialer: Dialer,
    /// Those that were spoken to, as they were then. As many as there were members.
    connected: Arc<Mutex<BTreeMap<ReplicaId, (Replica, Peer)>>>,
}

impl Peers {
    pub(crate) fn new(raft: openraft::Raft<TypeConfig, StateMachine>, dialer: Dialer) -> Self {
        Self { raft, dialer, connected: Arc::default() }
    }

    /// Who leads, as far as this replica knows.
    pub(crate) fn leader_id(&self) -> Option<ReplicaId> {
        self.raft.metrics().borrow_watched().current_leader
    }

    /// Waits until this replica knows of a leader that is not `known`.
    pub(crate) async fn another_leader(&self, known: Option<ReplicaId>) {
        let mut metrics = self.raft.metrics();
        while self.leader_id().is_none_or(|leader| Some(leader) == known) {
            if metrics.changed().await.is_err() {
                // Raft has stopped, and so does whoever waits.
                std::future::pending::<()>().await;
            }
        }
    }

    /// What `leader` answers, as long as no other replica is known to lead: one that was cut off answers nothing, and would
    /// hold up a request until its deadline.
    pub(crate) async fn while_leading<T>(
        &self,
        leader: Option<ReplicaId>,
        answer: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        tokio::select! {
            biased;
            answered = answer => answered,
            () = self.another_leader(leader) => Err(CallError::NotLeader),
        }
    }

    /// As [`Self::leader_id`], to talk to.
    pub(crate) fn leader(&self) -> Leader {
        match self.leader_id() {
            Some(leader) if leader == self.dialer.identity.replica => Leader::Me,
            Some(leader) => self.peer(leader).map_or(Leader::Nobody, |peer| Leader::Other(Box::new(peer))),
            None => Leader::Nobody,
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

    /// A replica where it is known to be. A connection is kept until it is elsewhere.
    pub(crate) fn at(&self, id: ReplicaId, replica: Replica) -> Peer {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
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
