//! The leader's watch over the size of the group.
//!
//! Owns the looks at the StatefulSet; [`next_step`] decides. A replica that is scaled away leaves by itself
//! ([`super::Departing`]): this removes those that could not, because they were killed or lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use smc_raft::Group;
use smc_types::causes::causes;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::OwnObjects;
use super::scaling::{Desired, Step, next_step, surplus};

/// The time between two looks. A surplus member costs a vote that no replica gives, and no request; the
/// API server is asked by the leader alone.
const LOOK: Duration = Duration::from_secs(10);

/// The watch of one replica.
pub struct MemberRemoval {
    /// The namespace of the StatefulSet.
    pub objects: OwnObjects,
    /// Its name.
    pub set: String,
    /// The group.
    pub group: Arc<Group>,
}

impl MemberRemoval {
    /// Looks until `stopping`.
    pub async fn run(self, stopping: CancellationToken) {
        let mut before = BTreeSet::new();
        let mut silent = false;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = sleep(LOOK) => {}
            }
            if !self.group.status().leads() {
                before.clear();
                continue;
            }
            match self.objects.desired(&self.set).await {
                Ok(desired) => {
                    silent = false;
                    self.follow(&before, desired).await;
                    before = surplus(&self.group.status(), desired);
                }
                Err(error) => {
                    before.clear();
                    if !silent {
                        warn!(error = %causes(&error), "cannot see how many replicas are asked for");
                    }
                    silent = true;
                }
            }
        }
    }

    async fn follow(&self, before: &BTreeSet<smc_types::ids::ReplicaId>, desired: Desired) {
        let changed = match next_step(&self.group.status(), before, desired) {
            Step::Nothing => return,
            Step::HandOver => self
                .group
                .hand_over(|id| desired.keeps(id))
                .await
                .map(|to| info!(?to, "handed leadership over")),
            Step::Remove(replica) => {
                let removed = self.group.remove(replica).await;
                removed.map(|()| info!(%replica, "removed a replica that is not asked for any more"))
            }
        };
        if let Err(error) = changed {
            warn!(error = %causes(&error), "cannot make the group smaller yet; will retry");
        }
    }
}
