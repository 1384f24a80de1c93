//! The membership of the group: changes of it on the leader, and the way of a replica without a group into
//! one.
//!
//! Owns the steps of a change, and the rule of founding and joining ([`next_step`]), which is a plain
//! function.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{ChangeMembers, ReadPolicy, ServerState};
use smc_proto::raft::v1 as pb;
use smc_types::ids::ReplicaId;
use thiserror::Error;
use tokio::time::timeout;
use tracing::debug;

use crate::state::machine::Raft;
use crate::storage::group_id::GroupId;
use crate::storage::identity::Identity;
use crate::types::{LogId, Membership, Replica, TypeConfig};
use crate::wire::{Wire, named, unnamed};

type Metrics = openraft::RaftMetrics<TypeConfig>;

/// How long a new member may take to catch up, with a snapshot of hundreds of megabytes over a slow network.
const CATCH_UP: Duration = Duration::from_mins(5);

/// How long a change waits for the commit of the one before: several elections.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);

/// How long a transfer of leadership may take: several elections.
const TRANSFER: Duration = Duration::from_secs(3);

/// Why the membership was not changed.
#[derive(Debug, Clone, Error)]
pub(crate) enum ChangeError {
    #[error("this replica is not the leader")]
    NotLeader,
    #[error("{0}")]
    Refused(String),
    #[error("the membership change failed: {0}")]
    Failed(String),
}

type WriteError = RaftError<TypeConfig, ClientWriteError<TypeConfig>>;

impl From<WriteError> for ChangeError {
    fn from(error: WriteError) -> Self {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Self::NotLeader,
            RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => {
                Self::Refused(error.to_string())
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Changes the membership, if this replica leads.
pub(crate) async fn change(
    raft: &Raft,
    change: pb::change_membership_request::Change,
) -> Result<(), ChangeError> {
    use pb::change_membership_request::Change;

    settled(raft).await;
    match change {
        Change::Add(replica) => {
            let (id, replica) = unnamed(replica);
            timeout(CATCH_UP, add(raft, id, replica)).await.map_err(|_| {
                ChangeError::Failed(format!("replica {id} did not catch up within {} s", CATCH_UP.as_secs()))
            })?
        }
        Change::Remove(id) => remove(raft, ReplicaId(id)).await,
        Change::TransferTo(id) => transfer(raft, ReplicaId(id)).await,
    }
}

/// Waits until the membership is committed. A leader that was just elected has that of its predecessor,
/// commits it within a round trip, and until then openraft refuses every other change. After
/// [`SETTLE`] openraft decides.
async fn settled(raft: &Raft) {
    let is_settled = |metrics: &Metrics| {
        metrics.state != ServerState::Leader || metrics.last_applied >= *metrics.membership_config.log_id()
    };
    if let Err(error) = raft.wait(Some(SETTLE)).metrics(is_settled, "the membership is committed").await {
        debug!(%error, "the membership is not committed");
    }
}

async fn add(raft: &Raft, id: ReplicaId, replica: Replica) -> Result<(), ChangeError> {
    if replica.address.is_empty() || replica.incarnation == 0 {
        return Err(ChangeError::Refused("a member needs an address and an incarnation".to_owned()));
    }
    match member(raft, id) {
        Some((member, voter)) if member.incarnation == replica.incarnation => {
            if member.address != replica.address {
                let moved = ChangeMembers::SetNodes(BTreeMap::from([(id, replica)]));
                raft.change_membership(moved, true).await?;
            }
            if voter {
                return Ok(());
            }
        }
        known => {
            if known.is_some() {
                // It lost its disk, and with it what it had acknowledged: the others must be a quorum
                // without it.
                remove(raft, id).await?;
            }
            raft.add_learner(id, replica, false).await?;
        }
    }
    caught_up(raft, id).await?;
    raft.change_membership(ChangeMembers::AddVoterIds(BTreeSet::from([id])), true).await?;
    Ok(())
}

/// Waits until a learner has the log as it is now. A learner that cannot be reached must not become a
/// voter: a group of one would need it to commit anything, even its removal.
async fn caught_up(raft: &Raft, id: ReplicaId) -> Result<(), ChangeError> {
    let last = raft.metrics().borrow_watched().last_log_index;
    let has_it = |metrics: &Metrics| {
        let matched = metrics.replication.as_ref().and_then(|all| all.get(&id)?.as_ref());
        metrics.state != ServerState::Leader || matched.map(|matched| matched.index) >= last
    };
    let waited = raft.wait(Some(CATCH_UP)).metrics(has_it, "the learner has the log").await;
    waited.map_err(|error| ChangeError::Failed(format!("replica {id} did not catch up: {error}")))?;
    Ok(())
}

/// The membership change that is half done, if there is one and this replica leads. Until it is finished,
/// commits need a majority of both the old and the new voters.
pub(crate) fn unfinished(raft: &Raft) -> Option<LogId> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let joint = metrics.membership_config.membership().get_joint_config().len() > 1;
    if joint && metrics.state == ServerState::Leader { *metrics.membership_config.log_id() } else { None }
}

/// Finishes such a change. openraft leaves that to the caller that began it, which may have died in between.
pub(crate) async fn finish(raft: &Raft) -> Result<(), ChangeError> {
    raft.change_membership(ChangeMembers::AddVoterIds(BTreeSet::new()), false).await?;
    Ok(())
}

async fn remove(raft: &Raft, id: ReplicaId) -> Result<(), ChangeError> {
    let Some((_, voter)) = member(raft, id) else { return without(raft, id).await };
    let ids = BTreeSet::from([id]);
    if !voter {
        raft.change_membership(ChangeMembers::RemoveNodes(ids), false).await?;
    } else if raft.voter_ids().count() == 1 {
        return Err(ChangeError::Refused(format!("replica {id} is the last voter")));
    } else {
        raft.change_membership(ChangeMembers::RemoveVoters(ids), false).await?;
    }
    Ok(())
}

/// Makes sure that a replica is no member: it forgets what it acknowledged when it learns this.
async fn without(raft: &Raft, id: ReplicaId) -> Result<(), ChangeError> {
    match committed(raft).await?.get_node(&id) {
        None => Ok(()),
        Some(_) => Err(ChangeError::Failed(format!("replica {id} has just become a member"))),
    }
}

/// The members as the group has committed them: this replica leads, which a majority confirms, and its
/// membership is committed.
pub(crate) async fn committed(raft: &Raft) -> Result<Membership, ChangeError> {
    let (known, membership) = {
        let metrics = raft.metrics();
        let config = &metrics.borrow_watched().membership_config;
        (*config.log_id(), config.membership().clone())
    };
    if raft.ensure_linearizable(ReadPolicy::ReadIndex).await.is_err() {
        return Err(ChangeError::NotLeader);
    }
    if raft.metrics().borrow_watched().last_applied < known {
        return Err(ChangeError::Failed("the membership is not committed yet".to_owned()));
    }
    Ok(membership)
}

async fn transfer(raft: &Raft, to: ReplicaId) -> Result<(), ChangeError> {
    let leads = raft.current_leader().await;
    if leads == Some(to) {
        return Ok(());
    }
    if leads != Some(*raft.node_id()) {
        return Err(ChangeError::NotLeader);
    }
    if !member(raft, to).is_some_and(|(_, voter)| voter) {
        return Err(ChangeError::Refused(format!("replica {to} does not vote, so it cannot lead")));
    }
    let stopped = |error: openraft::errors::Fatal<TypeConfig>| ChangeError::Failed(error.to_string());
    raft.trigger().transfer_leader(to).await.map_err(stopped)?;
    let wait = raft.wait(Some(TRANSFER));
    let led = wait.metrics(|metrics| metrics.current_leader == Some(to), "the new leader");
    // openraft's own error prints all that it knows.
    match led.await {
        Ok(_) => Ok(()),
        Err(_) => Err(not_taken_over(to, raft.current_leader().await)),
    }
}

fn not_taken_over(to: ReplicaId, leader: Option<ReplicaId>) -> ChangeError {
    let leads = leader.map_or("no replica leads".to_owned(), |leader| format!("replica {leader} leads"));
    let limit = TRANSFER.as_secs();
    ChangeError::Failed(format!("replica {to} did not take over within {limit} s, and {leads}; try again"))
}

/// A member, and whether it is a voter.
pub(crate) fn member(raft: &Raft, id: ReplicaId) -> Option<(Replica, bool)> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let replica = membership.get_node(&id)?.clone();
    Some((replica, membership.voter_ids().any(|voter| voter == id)))
}

/// Whether this replica votes, as far as it knows; `None` if it is no member with the disk that it has.
pub(crate) fn own_vote(raft: &Raft, identity: &Identity) -> Option<bool> {
    let (member, voter) = member(raft, identity.replica)?;
    (member.incarnation == identity.incarnation).then_some(voter)
}

/// Describes this replica to another one.
pub(crate) fn describe(raft: &Raft, identity: &Identity) -> pb::DescribeResponse {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let leader = metrics.current_leader.and_then(|id| Some(named(id, membership.get_node(&id)?)));
    pb::DescribeResponse {
        identity: Some(identity.stored()),
        leader: leader.filter(|_| metrics.state != ServerState::Shutdown),
        membership: Some(membership.to_wire()),
        term: metrics.current_term,
        now: None,
        commands: 0,
    }
}

/// What a replica that is no voter knows.
pub(crate) struct Situation<'a> {
    /// Its id and incarnation.
    pub(crate) me: (ReplicaId, u64),
    /// Whether it has belonged to a group: it has a log, or a term.
    pub(crate) initialized: bool,
    /// Whether it may found a group. Not if there has been one: its authority would be founded a second time.
    pub(crate) may_found: bool,
    /// The replicas that found the group together, with their addresses.
    pub(crate) initial_members: &'a BTreeMap<ReplicaId, String>,
    /// The present answers of the other initial and possible members; those that did not answer are missing.
    pub(crate) described: &'a BTreeMap<ReplicaId, pb::DescribeResponse>,
}

/// What such a replica does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// It founds the group, with these members.
    Found(BTreeMap<ReplicaId, Replica>),
    /// It asks this replica, which leads the group, to be added.
    Join(ReplicaId, Replica),
    /// It asks the initial members again later.
    Wait(&'static str),
    /// It is due to found the group, and must not.
    Refuse,
    /// It was removed from the group, and does not join again.
    StayOut,
}

/// The rule of founding and joining.
///
/// The initial member with the lowest id founds the group, once all of them have answered and all are
/// empty. So exactly one replica founds it, also when all start at once. An initial member that returns
/// without its disk finds others that are not empty, and joins them. If all members of a group are lost, no
/// new group is founded by itself: see [`crate::recovery::recover`]. A sole initial member has no other to
/// ask, so it does not found a group where a note says that there was one.
///
/// A learner whose admission was interrupted asks again to be admitted.
pub(crate) fn next_step(situation: &Situation<'_>) -> NextStep {
    let Situation { me: (me, incarnation), initialized, may_found, initial_members, described } = situation;
    let mut in_group = described.values().filter(|described| group_of(described).is_some()).peekable();
    if in_group.peek().is_some() {
        // Beside a group that a person made, members of the former one are about to end.
        let made_at = |described: &pb::DescribeResponse| group_of(described).and_then(GroupId::made_at);
        let latest =
            in_group.max_by_key(|described| (made_at(described), described.leader.is_some(), described.term));
        let Some(leader) = latest.and_then(|described| described.leader.clone()) else {
            return NextStep::Wait("the group has no leader");
        };
        let membership = latest.and_then(|described| described.membership.clone()).unwrap_or_default();
        let listed = |member: &pb::Replica| member.id == me.0 && member.incarnation == *incarnation;
        if !membership.replicas.iter().any(listed) {
            if *initialized {
                return NextStep::StayOut;
            }
        } else if membership.configs.iter().any(|voters| voters.ids.contains(&me.0)) {
            return NextStep::Wait("the leader has not been in touch yet");
        }
        let (leader, replica) = unnamed(leader);
        return NextStep::Join(leader, replica);
    }
    if *initialized {
        return NextStep::Wait("no member of the group answers");
    }
    if initial_members.keys().next() != Some(me) {
        return NextStep::Wait("the initial member with the lowest id has not founded the group yet");
    }
    let mut members = BTreeMap::new();
    for (id, address) in *initial_members {
        let incarnation = match described.get(id).and_then(|described| described.identity.as_ref()) {
            Some(identity) => identity.incarnation,
            None if id == me => *incarnation,
            None => return NextStep::Wait("not all initial members can be reached yet"),
        };
        members.insert(*id, Replica { address: address.clone(), incarnation });
    }
    if *may_found { NextStep::Found(members) } else { NextStep::Refuse }
}

fn group_of(described: &pb::DescribeResponse) -> Option<GroupId> {
    GroupId::read(&described.identity.as_ref()?.group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn initial_members(ids: impl IntoIterator<Item = u64>) -> BTreeMap<ReplicaId, String> {
        ids.into_iter().map(|id| (ReplicaId(id), format!("replica-{id}:15129"))).collect()
    }

    /// The incarnation of a replica's first disk.
    fn first(id: u64) -> u64 {
        100 + id
    }

    fn replica(id: u64) -> pb::Replica {
        pb::Replica { id, address: format!("replica-{id}:15129"), incarnation: first(id) }
    }

    fn empty(id: u64) -> pb::DescribeResponse {
        let identity = pb::Identity { replica: id, incarnation: first(id), ..Default::default() };
        pb::DescribeResponse { identity: Some(identity), ..Default::default() }
    }

    fn in_group(id: u64, leader: Option<u64>, members: &[u64]) -> pb::DescribeResponse {
        let identity = pb::Identity { replica: id, incarnation: first(id), group: GroupId([7; 16]).bytes() };
        let replicas = members.iter().map(|id| replica(*id)).collect();
        let configs = vec![pb::Voters { ids: members.to_vec() }];
        pb::DescribeResponse {
            identity: Some(identity),
            leader: leader.map(replica),
            membership: Some(pb::Membership { configs, replicas }),
            ..Default::default()
        }
    }

    /// The next step of replica `me`, whose disk has this `incarnation`.
    fn step(me: u64, incarnation: u64, ids: &[u64], described: Vec<pb::DescribeResponse>) -> NextStep {
        step_of(me, incarnation, ids, described, (false, true))
    }

    fn step_of(
        me: u64,
        incarnation: u64,
        ids: &[u64],
        described: Vec<pb::DescribeResponse>,
        (initialized, may_found): (bool, bool),
    ) -> NextStep {
        let id = |described: &pb::DescribeResponse| ReplicaId(described.identity.as_ref().unwrap().replica);
        let described = described.into_iter().map(|described| (id(&described), described)).collect();
        let (me, initial_members) = ((ReplicaId(me), incarnation), initial_members(ids.iter().copied()));
        next_step(&Situation {
            me,
            initialized,
            may_found,
            initial_members: &initial_members,
            described: &described,
        })
    }

    #[test]
    fn a_group_that_was_founded_before_is_not_founded_again() {
        assert_eq!(step_of(0, 999, &[0], vec![], (false, false)), NextStep::Refuse);
        assert_eq!(step_of(0, 999, &[0, 1], vec![empty(1)], (false, false)), NextStep::Refuse);
        let join = NextStep::Join(ReplicaId(1), unnamed(replica(1)).1);
        assert_eq!(step_of(0, 999, &[0, 1], vec![in_group(1, Some(1), &[0, 1])], (false, false)), join);
    }

    #[test]
    fn an_interrupted_admission_is_asked_for_again_and_a_removal_stands() {
        let join = NextStep::Join(ReplicaId(0), unnamed(replica(0)).1);
        let mut learning = in_group(0, Some(0), &[0]);
        learning.membership.as_mut().unwrap().replicas.push(replica(3));
        for initialized in [false, true] {
            assert_eq!(step_of(3, first(3), &[0], vec![learning.clone()], (initialized, true)), join);
        }
        let without = || vec![in_group(0, Some(0), &[0])];
        assert_eq!(step_of(3, first(3), &[0], without(), (false, true)), join);
        assert_eq!(step_of(3, first(3), &[0], without(), (true, true)), NextStep::StayOut);
        assert!(
            matches!(step_of(0, first(0), &[0], vec![], (true, true)), NextStep::Wait(_)),
            "it has a group"
        );
    }

    #[test]
    fn a_replica_alone_founds_its_group_at_once() {
        let members = BTreeMap::from([unnamed(replica(0))]);
        assert_eq!(step(0, first(0), &[0], vec![]), NextStep::Found(members));
    }

    #[test]
    fn the_lowest_initial_member_founds_when_all_have_answered() {
        let all = [0, 1, 2];
        let members: BTreeMap<_, _> = all.iter().map(|id| unnamed(replica(*id))).collect();
        assert_eq!(step(0, first(0), &all, vec![empty(1), empty(2)]), NextStep::Found(members));
        assert!(matches!(step(0, first(0), &all, vec![empty(1)]), NextStep::Wait(_)), "2 may be in a group");
        assert!(matches!(step(1, first(1), &all, vec![empty(0), empty(2)]), NextStep::Wait(_)));
        assert!(matches!(step(2, first(2), &all, vec![]), NextStep::Wait(_)));
    }

    #[test]
    fn an_initial_member_without_its_disk_joins_the_group_of_the_others() {
        let join = NextStep::Join(ReplicaId(1), unnamed(replica(1)).1);
        let described = || vec![in_group(1, Some(1), &[0, 1, 2]), in_group(2, Some(1), &[0, 1, 2])];
        assert_eq!(step(0, 999, &[0, 1, 2], described()), join);
        assert_eq!(step(0, 999, &[0, 1, 2], vec![in_group(1, Some(1), &[0, 1, 2]), empty(2)]), join);
    }

    #[test]
    fn an_empty_replica_joins_the_group_that_a_person_made() {
        let entropy = smc_host::env::fixed::SeededEntropy::new(1);
        let made = GroupId::replacing(None, smc_types::time::Timestamp(1_800_000_000), &entropy).unwrap();
        let mut restored = in_group(0, Some(0), &[0]);
        restored.identity.as_mut().unwrap().group = made.bytes();
        let former = pb::DescribeResponse { term: 40, ..in_group(1, Some(1), &[1, 2]) };
        let join = NextStep::Join(ReplicaId(0), unnamed(replica(0)).1);
        assert_eq!(step(3, first(3), &[0], vec![restored, former]), join);
    }

    #[test]
    fn an_initial_member_that_the_leader_has_not_reached_yet_waits() {
        let described = vec![in_group(0, Some(0), &[0, 1, 2]), empty(2)];
        assert!(matches!(step(1, first(1), &[0, 1, 2], described), NextStep::Wait(_)));
    }

    #[test]
    fn a_later_replica_joins_once_there_is_a_leader_to_ask() {
        let described = |leader| vec![in_group(0, leader, &[0, 1, 2])];
        assert!(matches!(step(3, first(3), &[0, 1, 2], described(None)), NextStep::Wait(_)));
        assert_eq!(
            step(3, first(3), &[0, 1, 2], described(Some(2))),
            NextStep::Join(ReplicaId(2), unnamed(replica(2)).1)
        );
        assert!(matches!(step(3, first(3), &[0, 1, 2], vec![]), NextStep::Wait(_)), "it founds nothing");
    }
}
