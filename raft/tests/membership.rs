//! Changes of the membership that meet each other.

use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use smc_proto::raft::v1::change_membership_request::Change;
use smc_types::ids::ReplicaId;
use tokio::time::{Instant, sleep};

use super::replicas::{Cluster, address, entropy, eventually};
use crate::membership::{self, ChangeError, SETTLE};
use crate::storage::disk::Disk;
use crate::storage::identity::Identity;
use crate::types::Replica;

/// A leader adds a voter that does not run: the membership with it is not committed until it does.
#[tokio::test(start_paused = true)]
async fn a_change_waits_for_the_one_before_and_not_for_ever() {
    let mut cluster = Cluster::found(&[0]).await;
    let disk = cluster.disks.entry(1).or_default().clone();
    let identity = Identity::open(Disk::new(Arc::new(disk)), ReplicaId(1), &*entropy()).await.unwrap();
    let replica = Replica { address: address(1), incarnation: identity.incarnation };
    let raft = cluster.group(0).raft.clone();
    raft.add_learner(ReplicaId(1), replica, false).await.unwrap();
    let adding = tokio::spawn({
        let raft = raft.clone();
        async move { raft.change_membership(ChangeMembers::AddVoterIds([ReplicaId(1)].into()), true).await }
    });
    let is_committed = || {
        let metrics = raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.last_applied >= *metrics.membership_config.log_id()
    };
    eventually("a membership that is not committed", async || (!is_committed()).then_some(())).await;

    let asked = Instant::now();
    let refused = membership::change(&raft, Change::Remove(1)).await.unwrap_err();
    assert!(matches!(refused, ChangeError::Refused(_)), "{refused}");
    assert!((SETTLE..SETTLE + Duration::from_secs(1)).contains(&asked.elapsed()), "{:?}", asked.elapsed());

    let removing = tokio::spawn({
        let raft = raft.clone();
        async move { membership::change(&raft, Change::Remove(1)).await }
    });
    let asked = Instant::now();
    sleep(Duration::from_millis(100)).await;
    assert!(!removing.is_finished() && !is_committed(), "it waits");
    cluster.start(1).await;
    removing.await.unwrap().expect("it is made once the one before is committed");
    assert!(asked.elapsed() < SETTLE, "{:?}", asked.elapsed());
    // The first change was half done when the second one came, or had been finished before it.
    let _ = adding.await.unwrap();
    eventually("one voter", async || {
        let status = cluster.group(0).status();
        (status.members.iter().filter(|member| member.voter).count() == 1).then_some(())
    })
    .await;
}
