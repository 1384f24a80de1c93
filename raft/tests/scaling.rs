//! Replicas that only their ordinals tell apart: the first one founds, the others ask everybody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use openraft::EntryPayload;
use openraft::raft::AppendEntriesRequest;
use smc_proto::raft::v1 as pb;
use smc_proto::raft::v1::change_membership_request::Change;
use smc_types::ids::ReplicaId;
use tokio::time::{sleep, timeout};

use super::commands::{commit, found, holds, issue};
use super::replicas::{Cluster, address, eventually, voters};
use crate::group::{Claim, ClaimError, FoundingRegister, Place, Replaced};
use crate::membership;
use crate::storage::memory::MemoryDisk;
use crate::types::{Entry, LeaderId, LogId, Membership, Replica, Vote};

/// A record in memory: 0 for none.
#[derive(Debug, Default)]
struct Register(AtomicU64);

/// A platform that knows of another process.
#[derive(Debug)]
struct Elsewhere;

impl FoundingRegister for Elsewhere {
    fn claim(&self, _: u64) -> BoxFuture<'_, Result<Claim, ClaimError>> {
        async { Ok(Claim::FoundedBefore("the test".to_owned())) }.boxed()
    }

    fn may_take_place(&self) -> BoxFuture<'_, Result<Place, ClaimError>> {
        async { Ok(Place::Another("the pod of the test".to_owned())) }.boxed()
    }
}

impl FoundingRegister for Register {
    fn claim(&self, incarnation: u64) -> BoxFuture<'_, Result<Claim, ClaimError>> {
        let recorded = self.0.compare_exchange(0, incarnation, Ordering::SeqCst, Ordering::SeqCst);
        let granted = recorded.is_ok() || recorded == Err(incarnation);
        let claim = if granted { Claim::Granted } else { Claim::FoundedBefore("the test".to_owned()) };
        async move { Ok(claim) }.boxed()
    }
}

/// As a StatefulSet runs them: replica 0 alone is an initial member, and all ask 0 to 4.
fn by_ordinal() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.initial_members = vec![0];
    cluster.possible_members = (0..5).collect();
    cluster.founding = Some(Arc::new(Register::default()));
    cluster
}

/// Three of them, which all vote.
async fn three_by_ordinal() -> Cluster {
    let mut cluster = by_ordinal();
    for id in 0..3 {
        cluster.start(id).await;
    }
    for id in 0..3 {
        cluster.group(id).ready().await.unwrap();
    }
    commit(cluster.any(), vec![found()]).await;
    eventually("three voters", async || (voters(cluster.group(0)) == [0, 1, 2]).then_some(())).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_by_ordinal_grow_to_three_and_back() {
    let mut cluster = by_ordinal();
    for id in [2, 1, 0] {
        cluster.start(id).await;
    }
    for id in 0..3 {
        cluster.group(id).ready().await.unwrap();
    }
    commit(cluster.any(), vec![found(), issue(2)]).await;
    eventually("three voters", async || (voters(cluster.group(0)) == [0, 1, 2]).then_some(())).await;
    // As each does that ends for good: it leaves while it still votes, the leader after it has handed over.
    for id in [2, 1] {
        let leaving = Arc::clone(&cluster.running[&id]);
        eventually("a hand-over", async || leaving.hand_over(|other| other.0 < id).await).await;
        eventually("a removal", async || leaving.remove(ReplicaId(id)).await).await;
        cluster.crash(id).await;
        cluster.disks.remove(&id);
    }
    eventually("one voter", async || (voters(cluster.group(0)) == [0]).then_some(())).await;
    // With a new disk the number can be used again.
    cluster.start(1).await.ready().await.unwrap();
    eventually("two voters", async || (voters(cluster.group(0)) == [0, 1]).then_some(())).await;
    assert!(holds(cluster.group(1), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_replica_without_its_disk_joins_the_others_and_founds_nothing() {
    let mut cluster = by_ordinal();
    for id in [0, 1, 2] {
        cluster.start(id).await.ready().await.unwrap();
    }
    commit(cluster.any(), vec![found(), issue(2)]).await;
    eventually("three voters", async || (voters(cluster.group(0)) == [0, 1, 2]).then_some(())).await;
    for id in [0, 1, 2] {
        cluster.crash(id).await;
    }
    cluster.disks.insert(0, MemoryDisk::default());
    let alone = cluster.start(0).await;
    assert!(timeout(Duration::from_secs(4), alone.ready()).await.is_err(), "nothing is founded");
    assert_eq!(alone.status().group, None);
    for id in [1, 2] {
        cluster.start(id).await;
    }
    alone.ready().await.unwrap();
    assert!(holds(&alone, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founding_that_was_cut_short_after_the_claim_goes_on() {
    let mut cluster = by_ordinal();
    let register = Arc::new(Register::default());
    cluster.founding = Some(Arc::<Register>::clone(&register));
    register.0.store(1, Ordering::SeqCst);
    let refused = cluster.start(0).await;
    assert!(timeout(Duration::from_secs(1), refused.ready()).await.is_err(), "another disk has the claim");
    // A person withdraws the record.
    register.0.store(0, Ordering::SeqCst);
    refused.ready().await.unwrap();
    cluster.crash(0).await;
    cluster.start(0).await.ready().await.unwrap();
}

/// Its first entry is the founding: replica 0 alone, with the disk that it lost. Seen in a cluster, where the
/// rest of the log came too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_its_disk_does_not_elect_itself_by_an_old_membership() {
    let mut cluster = by_ordinal();
    let lost = Arc::new(Register::default());
    lost.0.store(1, Ordering::SeqCst);
    cluster.founding = Some(lost);
    let replica = cluster.start(0).await;
    let before = Replica { address: "replica-0".to_owned(), incarnation: 1 };
    let nodes = BTreeMap::from([(ReplicaId(0), before)]);
    let membership = Membership::new(vec![[ReplicaId(0)].into()], nodes).unwrap();
    let first = LogId { leader_id: LeaderId { term: 0, node_id: ReplicaId(0) }, index: 0 };
    let founding = Entry { log_id: first, payload: EntryPayload::Membership(membership) };
    let request = AppendEntriesRequest {
        vote: Vote::new_committed(5, ReplicaId(1)),
        prev_log_id: None,
        entries: vec![founding],
        leader_commit: None,
    };
    replica.raft.append_entries(request).await.unwrap();
    sleep(Duration::from_secs(6)).await;
    let status = replica.status();
    assert_eq!((status.leader, status.term), (Some(ReplicaId(1)), 5), "it follows the leader of term 5");
}

/// Seen in a cluster: a node that was thought dead came back, its process asked to join with an empty disk,
/// and the rightful one was thrown out for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_not_the_pod_takes_no_place_in_the_group() {
    let mut cluster = three_by_ordinal().await;
    let place = |cluster: &Cluster| membership::member(&cluster.group(0).raft, ReplicaId(1));
    let before = place(&cluster);
    cluster.crash(1).await;
    cluster.disks.remove(&1);
    let founding = cluster.founding.replace(Arc::new(Elsewhere));
    let former = cluster.start(1).await;
    let waits = async || former.waits_for().filter(|what| what.contains("the pod of the test"));
    eventually("the refusal", waits).await;
    assert_eq!(place(&cluster), before, "the former disk keeps its place");
    cluster.crash(1).await;
    cluster.disks.remove(&1);
    cluster.founding = founding;
    cluster.start(1).await.ready().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_place_another_process_took_learns_it() {
    let cluster = three_by_ordinal().await;
    let leader = cluster.leader().await;
    let place = cluster.followers(leader)[0];
    assert!(timeout(Duration::from_secs(1), cluster.group(place).replaced()).await.is_err(), "not yet");
    let other = pb::Replica { id: place, address: address(place), incarnation: 1 };
    // Of the one that leads: on a busy machine, another one may meanwhile.
    let rafts: Vec<_> = [0, 1, 2].map(|replica| cluster.group(replica).raft.clone()).into();
    let adding = tokio::spawn(async move {
        loop {
            for raft in &rafts {
                let _ = membership::change(raft, Change::Add(other.clone())).await;
            }
            sleep(Duration::from_millis(100)).await;
        }
    });
    let replaced = timeout(Duration::from_mins(1), cluster.group(place).replaced()).await.unwrap();
    assert_eq!(replaced, Replaced::Replica(ReplicaId(place)));
    adding.abort();
}
