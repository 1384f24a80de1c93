//! Linearizable reads: gets a read index from the leader, and waits until it is applied here; or, where no
//! leader answers, compares the ends of the logs of a majority ([`crate::majority_read`]).

use std::time::Duration;

use openraft::ReadPolicy;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Group;
use super::peers::{Attempts, Leader};
use crate::majority_read::OwnLog;
use crate::replicated::ProposeError;
use crate::transport::client::{ANSWER, CallError};

/// How long a read waits for a leader and its read index: several elections.
const BARRIER_PATIENCE: Duration = Duration::from_secs(10);

/// How long the leader may take before the others are asked as well. Far more than it needs, and far less
/// than an election takes.
const LEADER_LATE: Duration = Duration::from_millis(50);

/// The longest pause between two questions to a majority. The first is [`LEADER_LATE`], and each is longer
/// by as much, so that a replica without a group asks little.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Group {
    /// Reads by the leader or a majority until one of them succeeds, for at most [`BARRIER_PATIENCE`].
    pub(super) async fn caught_up(&self) -> Result<(), ProposeError> {
        let deadline = Instant::now() + BARRIER_PATIENCE;
        let mut attempts = Attempts::default();
        loop {
            if self.disk.failure().borrow().is_some() {
                return Err(self.stopped());
            }
            let leader = self.peers.leader_id();
            let read = tokio::select! {
                biased;
                read = self.peers.while_leading(leader, self.read_index()) => read,
                () = self.read_by_majority_later() => Ok(()),
            };
            match read {
                Ok(()) => return Ok(()),
                Err(_) if self.read_by_majority().await => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(ProposeError::Unavailable(error.to_string()));
                }
                Err(_) => attempts.wait(&self.peers, leader).await,
            }
        }
    }

    /// Returns once a majority shows that nothing is missing here; asks it while the leader is late.
    async fn read_by_majority_later(&self) {
        let mut pause = LEADER_LATE;
        loop {
            sleep(pause).await;
            if self.read_by_majority().await {
                return;
            }
            pause = (pause + LEADER_LATE).min(LONGEST_PAUSE);
        }
    }

    /// Whether a majority shows that everything acknowledged before this call is applied here.
    async fn read_by_majority(&self) -> bool {
        let Some(own) = OwnLog::of(&self.raft).await else { return false };
        let mut asking = JoinSet::new();
        for id in own.others(self.identity.replica) {
            let Some(peer) = self.peers.peer(id) else { continue };
            asking.spawn(async move { peer.last_entry(ANSWER).await.ok().map(|last| (id, last)) });
        }
        let mut ends = own.ends(self.identity.replica);
        while !own.includes_all(&ends) {
            match asking.join_next().await {
                Some(answered) => ends.extend(answered.ok().flatten()),
                None => return false,
            }
        }
        true
    }

    /// Gets a read index from the leader, and waits until it is applied here.
    async fn read_index(&self) -> Result<(), CallError> {
        match self.peers.leader() {
            Leader::Me => {
                let read = timeout(ANSWER, self.raft.ensure_linearizable(ReadPolicy::ReadIndex)).await;
                let read = read.map_err(|_| CallError::Timeout(ANSWER))?;
                read.map(drop).map_err(|error| CallError::Failed(error.to_string()))
            }
            Leader::Other(leader) => {
                let index = leader.read_index(ANSWER).await?;
                let wait = self.raft.wait(Some(BARRIER_PATIENCE));
                let applied = wait.applied_index_at_least(Some(index), "a read").await;
                applied.map(drop).map_err(|error| CallError::Failed(error.to_string()))
            }
            Leader::Unknown => Err(CallError::NotLeader),
        }
    }
}
