//! Several replicas in one process, on disks in memory and a [`Switch`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use smc_host::env::fixed::{SeededEntropy, SettableClock};
use smc_host::env::{Entropy, Env};
use smc_proto::raft::v1 as pb;
use smc_proto::raft::v1::change_membership_request::Change;
use smc_testkit::eventually::{self, Look, Patience};
use smc_types::ids::ReplicaId;
use tokio::time::{Instant, sleep, timeout};
use zeroize::Zeroizing;

use super::commands::{commit, found, hash, holds, issue};
use super::switch::Switch;
use crate::group::{Connections, FoundingRegister, Group, Settings};
use crate::membership;
use crate::replicated::ReplicatedLedger;
use crate::storage::Storage;
use crate::storage::disk::{Disk, SNAPSHOT};
use crate::storage::identity::Identity;
use crate::storage::memory::MemoryDisk;
use crate::transport::tls::GroupSecret;
use crate::types::Replica;

/// The timeout of every wait, for a busy machine.
const PATIENCE: Patience = Patience { limit: Duration::from_mins(1), pause: Duration::from_millis(10) };

/// A different sequence for each replica and start.
pub(super) fn entropy() -> Arc<dyn Entropy> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Arc::new(SeededEntropy::new(NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn clock() -> Arc<SettableClock> {
    Arc::new(SettableClock::at(super::commands::NOW))
}

/// A clock at a fixed time, and a different sequence each time.
pub(super) fn env() -> Env {
    Env { clock: clock(), entropy: entropy(), ..Env::system() }
}

pub(super) fn address(id: u64) -> String {
    format!("replica-{id}")
}

/// Replicas that start and stop; their disks stay.
#[derive(Default)]
pub(super) struct Cluster {
    switch: Switch,
    pub(super) initial_members: Vec<u64>,
    pub(super) possible_members: Vec<u64>,
    pub(super) founding: Option<Arc<dyn FoundingRegister>>,
    pub(super) disks: BTreeMap<u64, MemoryDisk>,
    pub(super) running: BTreeMap<u64, Arc<Group>>,
    pub(super) clocks: BTreeMap<u64, Arc<SettableClock>>,
}

impl Cluster {
    /// Starts the initial members, all at once.
    pub(super) async fn found(ids: &[u64]) -> Self {
        let mut cluster = Self { initial_members: ids.to_vec(), ..Self::default() };
        for id in ids {
            cluster.start(*id).await;
        }
        for group in cluster.running.values() {
            group.ready().await.unwrap();
        }
        commit(cluster.any(), vec![found()]).await;
        cluster
    }

    pub(super) async fn start(&mut self, id: u64) -> Arc<Group> {
        self.start_as(id, 1).await
    }

    async fn start_as(&mut self, id: u64, secret: u8) -> Arc<Group> {
        let secret = GroupSecret::new(Zeroizing::new([secret; 32]));
        let addresses = |ids: &[u64]| ids.iter().map(|id| (ReplicaId(*id), address(*id))).collect();
        let settings = Settings {
            initial_members: addresses(&self.initial_members),
            possible_members: addresses(&self.possible_members),
            founding: self.founding.clone(),
            ..Settings::new(ReplicaId(id), address(id), secret)
        };
        let connections = Connections {
            network: self.switch.network(&address(id)),
            listener: Some(self.switch.listen(&address(id))),
            clock: Arc::<SettableClock>::clone(self.clocks.entry(id).or_insert_with(clock)),
        };
        let disk = self.disks.entry(id).or_default().clone();
        let group =
            Arc::new(Group::start(settings, Storage::Memory(disk), connections, entropy()).await.unwrap());
        self.running.insert(id, Arc::clone(&group));
        group
    }

    /// Kills the process, and loses what was not synced.
    pub(super) async fn crash(&mut self, id: u64) {
        self.switch.unplug(&address(id));
        self.running.remove(&id).unwrap().stop().await;
        self.disks[&id].crash();
        self.switch.plug_in(&address(id));
    }

    pub(super) fn group(&self, id: u64) -> &Group {
        &self.running[&id]
    }

    pub(super) fn any(&self) -> &Group {
        self.running.values().next().unwrap()
    }

    /// Waits for one leader that all running replicas agree on.
    pub(super) async fn leader(&self) -> u64 {
        let agreed = || {
            let mut leaders = self.running.values().map(|group| group.status().leader);
            let first = leaders.next().flatten()?;
            leaders.all(|leader| leader == Some(first)).then_some(first.0)
        };
        eventually("one leader", async || agreed().filter(|leader| self.running.contains_key(leader))).await
    }

    /// The index of the last membership change, once all running replicas agree on one.
    async fn membership_index(&self) -> u64 {
        eventually("one membership index", async || {
            let mut indexes = self.running.values().map(|group| group.status().membership_index);
            let first = indexes.next().filter(|index| *index > 0)?;
            indexes.all(|index| index == first).then_some(first)
        })
        .await
    }

    pub(super) fn followers(&self, leader: u64) -> Vec<u64> {
        self.running.keys().copied().filter(|id| *id != leader).collect()
    }

    /// Whether these replicas stand for election.
    fn let_elect(&self, ids: [u64; 2], elect: bool) {
        for id in ids {
            self.group(id).raft.runtime_config().elect(elect);
        }
    }

    /// Waits until all running replicas have applied the same entries, and checks that their states are
    /// equal.
    pub(super) async fn converge(&self) {
        for group in self.running.values() {
            eventually("a barrier", || group.barrier()).await;
        }
        let last = self.running.values().map(|group| group.status().applied).max();
        eventually("the last entry everywhere", async || {
            self.running.values().all(|group| Some(group.status().applied) >= last).then_some(())
        })
        .await;
        let mut hashes: Vec<_> = self.running.values().map(|group| hash(group).to_string()).collect();
        hashes.dedup();
        assert_eq!(hashes.len(), 1, "the states of the replicas differ");
    }
}

pub(super) fn voters(group: &Group) -> Vec<u64> {
    let status = group.status();
    status.members.iter().filter(|member| member.voter).map(|member| member.id.0).collect()
}

/// Waits until a look finds something.
pub(super) async fn eventually<L: Look>(what: &str, look: impl AsyncFnMut() -> L) -> L::Found {
    eventually::eventually(PATIENCE, what, look).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_that_start_at_once_found_one_group_and_all_take_proposals() {
    let cluster = Cluster::found(&[0, 1, 2]).await;
    for (n, group) in cluster.running.values().enumerate() {
        let n = 2 + u32::try_from(n).unwrap();
        commit(group, vec![issue(n)]).await;
        assert!(holds(group, n), "the proposer sees it at once");
    }
    cluster.converge().await;
    let groups: Vec<_> = cluster.running.values().map(|group| group.status().group.unwrap()).collect();
    assert!(groups.iter().all(|group| *group == groups[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_leader_continues_with_a_follower_that_cannot_lead() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    let leader = cluster.leader().await;
    let followers = cluster.followers(leader);
    for id in &followers {
        cluster.switch.unplug(&address(*id));
    }
    let alone = Arc::clone(&cluster.running[&leader]);
    let before = alone.status().last;
    let proposed = tokio::spawn({
        let alone = Arc::clone(&alone);
        async move { commit(&alone, vec![issue(2)]).await }
    });
    // Without this entry, which the others do not have, none of them is elected by the leader.
    eventually("an entry", async || (alone.status().last > before).then_some(())).await;
    for id in &followers {
        cluster.crash(*id).await;
    }
    // It has stopped sending by now.
    sleep(Duration::from_secs(2)).await;
    cluster.start(followers[0]).await;
    proposed.await.unwrap();
    assert_eq!(cluster.leader().await, leader);
    cluster.converge().await;
}

// With a paused clock, a connection takes no time.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_a_quorum_by_itself_never_stops_sending() {
    let mut cluster = Cluster::found(&[0]).await;
    for id in 1..5 {
        sleep(Duration::from_hours(1) + Duration::from_millis(777) * u32::try_from(id).unwrap()).await;
        let began = Instant::now();
        cluster.start(id).await;
        cluster.group(id).ready().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(1), "replica {id} waited for {:?}", began.elapsed());
        eventually("a removal", || cluster.group(0).remove(ReplicaId(id))).await;
        cluster.running.remove(&id).unwrap().stop().await;
    }
}

/// Whether openraft has published its metrics within a second, which it does at each tick.
async fn ticks(group: &Group) -> bool {
    let mut metrics = group.raft.metrics();
    let published = async {
        // What has happened before is not counted.
        metrics.changed().await.unwrap();
        metrics.changed().await.unwrap();
    };
    timeout(Duration::from_secs(1), published).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn raft_does_not_tick_while_the_group_has_one_member() {
    let mut cluster = Cluster::found(&[0]).await;
    let rests = async |cluster: &Cluster| {
        eventually("rest", async || (!ticks(cluster.group(0)).await).then_some(())).await;
    };
    rests(&cluster).await;
    commit(cluster.group(0), vec![issue(2)]).await;
    rests(&cluster).await;
    for _ in 0..2 {
        cluster.start(1).await;
        cluster.group(1).ready().await.unwrap();
        assert!(ticks(cluster.group(0)).await && ticks(cluster.group(1)).await);
        cluster.group(0).remove(ReplicaId(1)).await.unwrap();
        cluster.running.remove(&1).unwrap().stop().await;
        cluster.disks.remove(&1);
        rests(&cluster).await;
    }
    // A replica that begins does not lead yet.
    cluster.crash(0).await;
    cluster.start(0).await.ready().await.unwrap();
    rests(&cluster).await;
    commit(cluster.group(0), vec![issue(3)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_the_crash_of_the_leader_and_then_of_all() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    let leader = cluster.leader().await;
    for n in 2..40 {
        commit(cluster.group(leader), vec![issue(n)]).await;
    }
    cluster.crash(leader).await;
    let survivor = cluster.leader().await;
    assert_ne!(survivor, leader);
    for n in 40..80 {
        commit(cluster.group(survivor), vec![issue(n)]).await;
    }
    cluster.start(leader).await;
    cluster.converge().await;
    for id in [0, 1, 2] {
        cluster.crash(id).await;
    }
    for id in [0, 1, 2] {
        cluster.start(id).await;
    }
    cluster.converge().await;
    for (id, group) in &cluster.running {
        for n in 2..80 {
            assert!(holds(group, n), "replica {id} lost {n}");
        }
    }
}

/// Asked of the replica that is cut off. The others may elect for reasons of their own, as a slow disk.
const DEPOSES: &str = "one that is alone raises no term, by which it would depose a healthy leader later";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_acknowledges_nothing_and_follows_later() {
    let cluster = Cluster::found(&[0, 1, 2]).await;
    let old = cluster.leader().await;
    let others = cluster.followers(old);
    let term = cluster.group(old).status().term;
    cluster.switch.unplug(&address(old));
    let lost = cluster.group(old).propose(vec![issue(2)]);
    let (lost, ()) = tokio::join!(lost, async {
        let group = cluster.group(others[0]);
        eventually("a new leader", || group.propose(vec![issue(3)])).await;
    });
    lost.unwrap_err();
    assert_eq!(cluster.group(old).status().term, term, "{DEPOSES}");
    cluster.switch.plug_in(&address(old));
    cluster.converge().await;
    assert!(holds(cluster.group(old), 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_cut_off_serves_no_decisive_read() {
    let cluster = Cluster::found(&[0, 1, 2]).await;
    let leader = cluster.leader().await;
    let cut = cluster.followers(leader)[0];
    let term = cluster.group(leader).status().term;
    cluster.switch.unplug(&address(cut));
    commit(cluster.group(leader), vec![issue(2)]).await;
    // It waits for longer than several elections take.
    cluster.group(cut).barrier().await.unwrap_err();
    assert_eq!(cluster.group(cut).status().term, term, "{DEPOSES}");
    cluster.switch.plug_in(&address(cut));
    eventually("a barrier", || cluster.group(cut).barrier()).await;
    assert!(holds(cluster.group(cut), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_reads_while_there_is_no_leader() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    let leader = cluster.leader().await;
    let [behind, other] = cluster.followers(leader)[..] else { panic!("two followers") };
    commit(cluster.group(leader), vec![issue(2)]).await;
    cluster.converge().await;
    let term = cluster.group(other).status().term;
    cluster.let_elect([behind, other], false);
    cluster.crash(leader).await;
    for reader in [behind, other] {
        let read = timeout(Duration::from_secs(5), cluster.group(reader).barrier()).await;
        read.expect("a read without a leader").unwrap();
    }
    assert_eq!(cluster.group(other).status().term, term, "there was an election");

    cluster.let_elect([behind, other], true);
    cluster.start(leader).await;
    let leader = cluster.leader().await;
    let [behind, other] = cluster.followers(leader)[..] else { panic!("two followers") };
    cluster.switch.unplug(&address(behind));
    commit(cluster.group(leader), vec![issue(3)]).await;
    eventually("the entry", async || holds(cluster.group(other), 3).then_some(())).await;
    cluster.let_elect([behind, other], false);
    cluster.crash(leader).await;
    cluster.switch.plug_in(&address(behind));
    let read = timeout(Duration::from_secs(2), cluster.group(behind).barrier()).await;
    assert!(read.is_err() && !holds(cluster.group(behind), 3), "it lacks an entry that was acknowledged");
    let read = timeout(Duration::from_secs(5), cluster.group(other).barrier()).await;
    read.expect("a read by the one that has it").unwrap();
    cluster.let_elect([behind, other], true);
    eventually("a barrier", || cluster.group(behind).barrier()).await;
    assert!(holds(cluster.group(behind), 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_replica_that_the_leader_cannot_reach_does_not_vote() {
    let cluster = Cluster::found(&[0]).await;
    let group = cluster.group(0);
    let nowhere = pb::Replica { id: 1, address: "nowhere".to_owned(), incarnation: 7 };
    let adding = membership::change(&group.raft, Change::Add(nowhere));
    assert!(timeout(Duration::from_secs(2), adding).await.is_err(), "it never catches up");
    commit(group, vec![issue(2)]).await;
    group.remove(ReplicaId(1)).await.unwrap();
    // The status follows what is applied, and may be a moment late.
    eventually("one member", async || (group.status().members.len() == 1).then_some(())).await;
}

/// A group of replica 0 that has begun to admit replica 1, which is not running, and what 1 is in it.
async fn interrupted_admission() -> (Cluster, Replica) {
    let mut cluster = Cluster::found(&[0]).await;
    let disk = cluster.disks.entry(1).or_default().clone();
    let identity = Identity::open(Disk::new(Arc::new(disk)), ReplicaId(1), &*entropy()).await.unwrap();
    let replica = Replica { address: address(1), incarnation: identity.incarnation };
    cluster.group(0).raft.add_learner(ReplicaId(1), replica.clone(), false).await.unwrap();
    // It knows no initial member to ask, and still learns from the leader.
    let initial_members = std::mem::take(&mut cluster.initial_members);
    let learner = cluster.start(1).await;
    eventually("a log", async || (learner.status().last > 0).then_some(())).await;
    drop(learner);
    cluster.crash(1).await;
    cluster.initial_members = initial_members;
    (cluster, replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_replica_whose_admission_was_interrupted_is_admitted() {
    let (mut cluster, _) = interrupted_admission().await;
    cluster.start(1).await;
    let voters = || voters(cluster.group(0));
    eventually("two voters", async || (voters() == [0, 1]).then_some(())).await;
}

/// A follower that lacks the admission yet answers in the same way as a group that has removed the replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_no_member_by_one_answer_is_admitted_by_a_later_one() {
    let (mut cluster, replica) = interrupted_admission().await;
    let leader = cluster.group(0).raft.clone();
    let removal = ChangeMembers::RemoveNodes([ReplicaId(1)].into());
    leader.change_membership(removal, false).await.unwrap();
    let outside = cluster.start(1).await;
    let waits = async || outside.waits_for().filter(|what| what.contains("it was removed"));
    eventually("the reason", waits).await;
    leader.add_learner(ReplicaId(1), replica, false).await.unwrap();
    eventually("two voters", async || (voters(cluster.group(0)) == [0, 1]).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_membership_change_is_finished() {
    let cluster = Cluster::found(&[0, 1, 2]).await;
    let leader = cluster.leader().await;
    let gone = cluster.followers(leader)[0];
    let group = cluster.group(leader);
    loop {
        let begun = async {
            let mut metrics = group.raft.metrics();
            while membership::unfinished(&group.raft).is_none() {
                metrics.changed().await.unwrap();
            }
        };
        let removal = ChangeMembers::RemoveVoters([ReplicaId(gone)].into());
        tokio::select! {
            biased;
            () = begun => break,
            // It was too fast to be interrupted; once more.
            _ = group.raft.change_membership(removal, true) => {
                let again = ChangeMembers::AddVoterIds([ReplicaId(gone)].into());
                group.raft.change_membership(again, true).await.unwrap();
            }
        }
    }
    let others: Vec<_> = [0, 1, 2].into_iter().filter(|id| *id != gone).collect();
    eventually("a group without it", async || {
        (membership::unfinished(&group.raft).is_none() && voters(group) == others).then_some(())
    })
    .await;
    commit(group, vec![issue(2)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_transferred_on_request() {
    let cluster = Cluster::found(&[0, 1, 2]).await;
    let old = cluster.leader().await;
    let new = cluster.followers(old)[0];
    let (asked, led) = (cluster.group(new), cluster.group(old));
    let another = || led.leader_changed(Some(ReplicaId(old)));
    assert!(another().now_or_never().is_none(), "there is no other leader yet");
    // Asked of a follower, so that the request is forwarded.
    let (moved, noticed) =
        tokio::join!(asked.transfer(ReplicaId(new)), timeout(Duration::from_secs(10), another()));
    moved.unwrap();
    noticed.expect("the former leader learns the new one");
    assert_eq!(cluster.leader().await, new);
    commit(cluster.group(old), vec![issue(2)]).await;
    cluster.converge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_grows_to_three_to_five_and_shrinks_to_three() {
    let mut cluster = Cluster::found(&[0]).await;
    for id in 1..5u32 {
        commit(cluster.group(0), vec![issue(100 + id)]).await;
        cluster.start(id.into()).await;
        cluster.group(id.into()).ready().await.unwrap();
    }
    eventually("five voters", async || (voters(cluster.group(4)).len() == 5).then_some(())).await;
    cluster.converge().await;
    let five = cluster.membership_index().await;
    let applied = cluster.group(3).status().applied;
    cluster.group(3).snapshot().await.unwrap();
    eventually("a snapshot", async || (cluster.group(3).status().snapshot >= applied).then_some(())).await;
    cluster.crash(3).await;
    cluster.start(3).await;
    assert_eq!(cluster.membership_index().await, five, "no member came or left");
    for id in [0, 1] {
        cluster.group(4).remove(ReplicaId(id)).await.unwrap();
        cluster.running.remove(&id).unwrap().stop().await;
        cluster.leader().await;
    }
    eventually("three voters", async || (voters(cluster.group(4)).len() == 3).then_some(())).await;
    assert!(cluster.membership_index().await > five);
    commit(cluster.group(3), vec![issue(200)]).await;
    cluster.converge().await;
}

/// Without that it would not mark its disk, and could not come back: the others do not talk to it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_replica_that_knows_a_former_leader_learns_that_it_has_left() {
    let cluster = Cluster::found(&[0, 1, 2]).await;
    let leader = cluster.leader().await;
    let [removed, next] = cluster.followers(leader)[..] else { panic!("three replicas") };
    cluster.switch.unplug(&address(removed));
    let group = cluster.group(leader);
    group.remove(ReplicaId(removed)).await.unwrap();
    eventually("the next leader", || group.transfer(ReplicaId(next))).await;
    let leaving = cluster.group(removed);
    assert!(leaving.remove(ReplicaId(removed)).await.is_err(), "no member answers");
    cluster.switch.plug_in(&address(removed));
    assert_eq!(leaving.status().leader, Some(ReplicaId(leader)));
    eventually("an answer", || leaving.remove(ReplicaId(removed))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lost_its_disk_is_replaced_and_nothing_else_is_lost() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    // The replica that would found a group, if there were none.
    let lost = 0;
    for n in 2..20 {
        commit(cluster.group(1), vec![issue(n)]).await;
    }
    cluster.crash(lost).await;
    cluster.disks.remove(&lost);
    cluster.start(lost).await;
    cluster.group(lost).ready().await.unwrap();
    cluster.converge().await;
    assert!((2..20).all(|n| holds(cluster.group(lost), n)));
    // It votes: without one of the others there is still a quorum.
    cluster.crash(1).await;
    eventually("a commit", || cluster.group(lost).propose(vec![issue(30)])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_with_another_secret_gets_nowhere() {
    let mut cluster = Cluster::found(&[0, 1, 2]).await;
    let stranger = cluster.start_as(7, 2).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stranger.status().group, None);
    assert!(cluster.group(0).status().members.iter().all(|member| member.id != ReplicaId(7)));
    cluster.running.remove(&7);
    commit(cluster.group(0), vec![issue(2)]).await;
    stranger.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_replica_is_brought_up_to_date_by_a_snapshot() {
    let mut cluster = Cluster::found(&[0]).await;
    // More entries than are kept beside a snapshot, and more than fit into one of its chunks.
    for n in 0..700 {
        commit(cluster.group(0), (0..10).map(|i| issue(2 + 10 * n + i)).collect()).await;
    }
    cluster.group(0).snapshot().await.unwrap();
    eventually("a snapshot", async || (cluster.group(0).status().snapshot > 600).then_some(())).await;
    let disk = Disk::new(Arc::new(cluster.disks[&0].clone()));
    let header: pb::SnapshotHeader = disk.record(SNAPSHOT).unwrap().unwrap();
    assert!(header.chunks > 1, "{} bytes are one chunk", header.bytes);
    cluster.start(1).await;
    cluster.group(1).ready().await.unwrap();
    cluster.converge().await;
    assert!((0..7000).all(|n| holds(cluster.group(1), 2 + n)));
    // The snapshot is on its own disk now.
    cluster.crash(1).await;
    cluster.start(1).await;
    cluster.converge().await;
}
