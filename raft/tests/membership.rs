//! Changes of the membership that meet each other.

use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use smc_proto::raft::v1::change_membership_request::Change;
use smc_types::ids::ReplicaId;
use tokio::time::{Instant, sleep, timeout};

use super::replicas::{Cluster, address, entropy, eventually, voters};
use crate::group::Group;
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

/// How long a replica that concludes nothing is watched: several rounds of its questions.
const SEVERAL_ROUNDS: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_learns_from_a_leader_alone_that_it_was_removed() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    for id in [2, 0, 1] {
        cluster.crash(id).await;
    }
    let concludes = async |group: &Group| timeout(SEVERAL_ROUNDS, group.removed()).await.is_ok();
    let restarted = cluster.start(2).await;
    assert!(!concludes(&restarted).await, "no other replica runs");
    cluster.start(1).await.ready().await.unwrap();
    assert!(!concludes(&restarted).await, "it is a member");
    cluster.crash(2).await;
    cluster.start(0).await.ready().await.unwrap();
    eventually("a removal", async || cluster.group(0).remove(ReplicaId(2)).await).await;
    eventually("its membership on 1", async || (voters(cluster.group(1)) == [0, 1]).then_some(())).await;
    cluster.crash(0).await;

    let former = cluster.start(2).await;
    assert!(!concludes(&former).await, "1 knows of the removal, and leads no majority");
    cluster.start(0).await.ready().await.unwrap();
    assert!(!concludes(cluster.group(0)).await, "it is a member");
    eventually("the answer of the leader", async || concludes(&former).await.then_some(())).await;
}
