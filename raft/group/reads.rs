//! Linearizable reads: gets a read index from the leader, and waits until it is applied here.

use std::time::Duration;

use openraft::ReadPolicy;
use tokio::time::{Instant, timeout};

use super::Group;
use super::peers::{Attempts, Leader};
use crate::replicated::ProposeError;
use crate::transport::client::{ANSWER, CallError};

/// How long a read waits for a leader and its read index: several elections.
const BARRIER_PATIENCE: Duration = Duration::from_secs(10);

impl Group {
    /// Retries [`Self::read_index`] until it succeeds, for at most [`BARRIER_PATIENCE`].
    pub(super) async fn caught_up(&self) -> Result<(), ProposeError> {
        let deadline = Instant::now() + BARRIER_PATIENCE;
        let mut attempts = Attempts::default();
        loop {
            if self.disk.failure().borrow().is_some() {
                return Err(self.stopped());
            }
            let leader = self.peers.leader_id();
            match self.peers.while_leading(leader, self.read_index()).await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(ProposeError::Unavailable(error.to_string()));
                }
                Err(_) => attempts.wait(&self.peers, leader).await,
            }
        }
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
