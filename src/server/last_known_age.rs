//! Whether the last known mesh, which a replica serves while it cannot read its API server, may lack what
//! another replica has read.
//!
//! Owns the questions to the other replicas, and what follows for readiness. A replica that may lack a
//! change, such as a grant that was taken back, is not ready while another replica has that change. Where all
//! replicas serve copies, or no other one answers from the start, the copy is the best that there is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use smc_host::tasks::Tasks;
use smc_proto::peer::v1::RevisionQuestion;
use smc_proto::peer::v1::answer::Answer;
use smc_proto::peer::v1::question::Question;
use smc_raft::Group;
use smc_types::ids::ReplicaId;
use smc_xds::revision::{Revision, Versions};
use smc_xds::served_state::ServedState;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The pause between two rounds of questions.
const PAUSE: Duration = Duration::from_secs(2);

/// How long a replica has to answer. One that does not answer holds nothing up.
const LIMIT: Duration = Duration::from_secs(2);

/// What a replica knows of the age of the copy that it serves. Clones share it.
#[derive(Clone)]
pub(crate) struct LastKnownAge {
    served: watch::Receiver<Option<Arc<ServedState>>>,
    /// The others were asked, and none has read what the copy may lack.
    latest: Arc<AtomicBool>,
}

impl LastKnownAge {
    /// Starts the task that asks the others while this replica serves a copy.
    pub(crate) fn watch(
        group: &Arc<Group>,
        served: &watch::Receiver<Option<Arc<ServedState>>>,
        tasks: &mut Tasks,
    ) -> Self {
        let age = Self { served: served.clone(), latest: Arc::default() };
        let (watched, group) = (age.clone(), Arc::clone(group));
        tasks.spawn("age of the last known mesh", |stopping| watched.run(group, stopping));
        age
    }

    /// Whether the mesh that this replica serves is as new as those of its peers, as far as they say.
    pub(crate) fn may_serve(&self) -> bool {
        self.copied().is_none() || self.latest.load(Ordering::Relaxed)
    }

    /// The revision, while a copy is served.
    fn copied(&self) -> Option<Arc<Revision>> {
        let revision = self.served.borrow().as_ref()?.revision.clone();
        revision.filter(|revision| revision.copy.is_some())
    }

    async fn run(mut self, group: Arc<Group>, stopping: CancellationToken) {
        let watching = async {
            // An error means that the publisher has ended, and the replica with it.
            let _ = self.served.wait_for(Option::is_some).await.map(drop);
            let (mut heard, mut lacking) = (BTreeMap::new(), None);
            while self.copied().is_some() {
                hear(&group, &mut heard).await;
                let Some(revision) = self.copied() else { break };
                let newer = newer(&revision, &heard);
                self.latest.store(newer.is_none(), Ordering::Relaxed);
                if newer != lacking {
                    log(newer);
                    lacking = newer;
                }
                sleep(PAUSE).await;
            }
            if lacking.is_some() {
                info!("the mesh was read: no other replica has read more");
            }
            // A source that has read everything never returns to the copy.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = watching => {}
        }
    }
}

/// The first replica that has read what the copy may lack.
fn newer(revision: &Revision, heard: &BTreeMap<ReplicaId, Versions>) -> Option<ReplicaId> {
    heard.iter().find(|(_, changed)| revision.may_lack(changed)).map(|(replica, _)| *replica)
}

/// Asks the other members what they have read. What one said before stands while it does not answer.
async fn hear(group: &Group, heard: &mut BTreeMap<ReplicaId, Versions>) {
    let status = group.status();
    let others: BTreeSet<_> = status.members.iter().map(|member| member.id).collect();
    heard.retain(|replica, _| others.contains(replica));
    let asked = others.into_iter().filter(|id| *id != status.replica).map(async |replica| {
        let answer = group.ask(replica, Question::Revision(RevisionQuestion {}), LIMIT).await;
        let Ok(Answer::Revision(answer)) = answer else { return None };
        Some((replica, answer.changed.parse().ok()?))
    });
    heard.extend(join_all(asked).await.into_iter().flatten());
}

fn log(newer: Option<ReplicaId>) {
    if let Some(replica) = newer {
        warn!(%replica, "not ready: the last known mesh may lack changes that another replica has read");
    } else {
        info!("no other replica has read more than the last known mesh has");
    }
}

#[cfg(test)]
mod tests {
    use smc_types::kind::Kind;

    use super::*;

    #[test]
    fn the_first_replica_that_has_read_more_than_the_copy_is_found() {
        let versions = |pods| -> Versions { [(Kind::Pod, pods)].into_iter().collect() };
        let peers = |of: [u64; 2]| [1, 2].map(ReplicaId).into_iter().zip(of.map(versions)).collect();
        let copy = |copy: Option<Versions>| Revision { copy: copy.map(Box::new), ..Revision::default() };
        for (revision, others, expected) in [
            (copy(None), [9, 9], None),
            (copy(Some(versions(7))), [0, 7], None),
            (copy(Some(versions(7))), [7, 8], Some(ReplicaId(2))),
            (copy(Some(Versions::default())), [1, 8], Some(ReplicaId(1))),
            (copy(Some(Versions::default())), [0, 0], None),
        ] {
            assert_eq!(newer(&revision, &peers(others)), expected, "{revision:?} and {others:?}");
        }
        assert_eq!(newer(&copy(Some(Versions::default())), &BTreeMap::new()), None, "alone");
    }
}
