//! The end of a replica in its StatefulSet.
//!
//! Owns the order: the API says whether the replica comes back; leadership goes to another replica before
//! the streams end; a replica that was scaled away leaves the group when it serves no proxy any more, and
//! marks its disk. It does so also when it is asked for again meanwhile: the leader may have removed it
//! already, and a removed replica comes back with an empty disk alone. All of it fits in 30 seconds, beside
//! the ten of the shutdown.
//!
//! A replica that was killed before that learns at its next start that the group removed it, and marks its
//! disk then.

use std::path::PathBuf;
use std::time::Duration;

use smc_raft::Group;
use smc_types::causes::causes;
use smc_types::ids::ReplicaId;
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::OwnObjects;
use super::removed_marker::{self, LeftError};
use super::scaling::{Departure, Desired, departure};

/// How long the removal from the group may take. Several replicas leave one after another, each in some
/// milliseconds; a new leader may have to be elected in between.
const LEAVING: Duration = Duration::from_secs(20);

/// The pause after a removal that failed.
const RETRY: Duration = Duration::from_millis(300);

/// A replica that the group has removed cannot go on with its disk.
#[derive(Debug, Error)]
pub enum Removed {
    #[error("the group removed this replica: at its next start its ledger is empty")]
    Marked,
    #[error("the group removed this replica, and that cannot be noted")]
    NotMarked(#[source] NotMarked),
}

/// The mark could not be written.
#[derive(Debug, Error)]
pub enum NotMarked {
    #[error(transparent)]
    File(#[from] LeftError),
    #[error("writing was interrupted")]
    Broken(#[source] tokio::task::JoinError),
}

/// What a replica needs to end in order.
#[derive(Debug, Clone)]
pub struct Departing {
    /// The namespace of the StatefulSet.
    pub objects: OwnObjects,
    /// Its name.
    pub set: String,
    /// This replica.
    pub replica: ReplicaId,
    /// Its data directory.
    pub data_dir: PathBuf,
}

impl Departing {
    /// What the StatefulSet asks for at this moment, if the API server says so in time.
    async fn desired(&self) -> Option<Desired> {
        match self.objects.desired(&self.set).await {
            Ok(desired) => Some(desired),
            Err(error) => {
                warn!(error = %causes(&error), "cannot see whether this replica comes back; it stays a member");
                None
            }
        }
    }

    /// Returns once it is certain that the group removed this replica. The process ends with that, and starts
    /// again.
    pub async fn removed(&self, group: &Group) -> Removed {
        group.removed().await;
        self.mark().await.map_or_else(Removed::NotMarked, |()| Removed::Marked)
    }

    /// Before the streams end: asks whether this replica comes back, and hands leadership over.
    pub async fn begin(&self, group: &Group) -> Departure {
        let desired = self.desired().await;
        group.hand_over_in_time(|id| desired.is_none_or(|desired| desired.keeps(id))).await;
        departure(self.replica, desired)
    }

    /// After the streams have ended: a replica that was scaled away leaves the group.
    pub async fn end(&self, group: &Group, departure: Departure) {
        if departure == Departure::Returns {
            return;
        }
        let deadline = Instant::now() + LEAVING;
        loop {
            // A leader cannot remove itself; the successor may have been too slow before.
            let desired = self.desired().await;
            group.hand_over_in_time(|id| desired.is_none_or(|desired| desired.keeps(id))).await;
            match group.remove(self.replica).await {
                Ok(()) => break,
                Err(error) if Instant::now() < deadline => {
                    info!(error = %causes(&error), "cannot leave the group yet; will retry");
                    sleep(RETRY).await;
                }
                Err(error) => {
                    warn!(error = %causes(&error), "could not leave the group; the leader removes this replica");
                    return;
                }
            }
        }
        info!("left the group");
        if let Err(error) = self.mark().await {
            warn!(error = %causes(&error), "cannot mark that this replica has left; it needs an empty disk to return");
        }
    }

    async fn mark(&self) -> Result<(), NotMarked> {
        let data_dir = self.data_dir.clone();
        let marked = tokio::task::spawn_blocking(move || removed_marker::mark(&data_dir)).await;
        Ok(marked.map_err(NotMarked::Broken)??)
    }
}
