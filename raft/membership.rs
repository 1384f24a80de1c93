//! Who belongs to the group: changes on the leader, and what a replica without a group does about it.
//!
//! Owns the order of steps of a change, and the rule of founding ([`next_step`]), which is a plain function.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{ChangeMembers, ServerState};
use smc_proto::raft::v1 as pb;
use thiserror::Error;
use tokio::time::timeout;

use crate::identity::{GroupId, Identity};
use crate::machine::StateMachine;
use crate::types::{LogId, Replica, ReplicaId, TypeConfig};
use crate::wire::{Wire, named, unnamed};

type Raft = openraft::Raft<TypeConfig, StateMachine>;
type Metrics = openraft::RaftMetrics<TypeConfig>;

/// How long a new member may take to catch up, with a snapshot of hundreds of megabytes over a slow network.
const CATCH_UP: Duration = Duration::from_mins(5);

/// How long a transfer of leadership may take: an election's time, several times over.
const TRANSFER: Duration = Duration::from_secs(3);

/// Why the group was not changed.
#[derive(Debug, Clone, Error)]
pub(crate) enum ChangeError {
    #[error("this replica is not the leader")]
    NotLeader,
    #[error("{0}")]
    Refused(String),
    #[error("the change of the group failed: {0}")]
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

/// Changes the group, if this replica leads it.
pub(crate) async fn change(
    raft: &Raft,
    change: pb::change_membership_request::Change,
) -> Result<(), ChangeError> {
    use pb::change_membership_request::Change;

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
                // It lost its disk, and with it what it acknowledged: the others must be a quorum without it.
                remove(raft, id).await?;
            }
            raft.add_learner(id, replica, false).await?;
        }
    }
    caught_up(raft, id).await?;
    raft.change_membership(ChangeMembers::AddVoterIds(BTreeSet::from([id])), true).await?;
    Ok(())
}

/// Waits until a learner has the log as it is now. One that cannot be reached must not vote: a group of one would need it to
/// commit anything, its removal too.
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

/// The change of the group that has been begun and not ended, if this replica leads: both majorities are needed meanwhile.
pub(crate) fn unfinished(raft: &Raft) -> Option<LogId> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let joint = metrics.membership_config.membership().get_joint_config().len() > 1;
    if joint && metrics.state == ServerState::Leader { *metrics.membership_config.log_id() } else { None }
}

/// Ends such a change. openraft leaves that to whoever began it, who may have been lost in the middle.
pub(crate) async fn finish(raft: &Raft) -> Result<(), ChangeError> {
    raft.change_membership(ChangeMembers::AddVoterIds(BTreeSet::new()), false).await?;
    Ok(())
}

async fn remove(raft: &Raft, id: ReplicaId) -> Result<(), ChangeError> {
    let Some((_, voter)) = member(raft, id) else { return Ok(()) };
    let ids = BTreeSet::from([id]);
    if !voter {
        raft.change_membership(ChangeMembers::RemoveNodes(ids), false).await?;
    } else if raft.voter_ids().count() == 1 {
        return Err(ChangeError::Refused(format!("replica {id} is the last one that votes")));
    } else {
        raft.change_membership(ChangeMembers::RemoveVoters(ids), false).await?;
    }
    Ok(())
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
    led.await.map_err(|error| ChangeError::Failed(format!("replica {to} did not take over: {error}")))?;
    Ok(())
}

/// A member, and whether it votes.
pub(crate) fn member(raft: &Raft, id: ReplicaId) -> Option<(Replica, bool)> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let replica = membership.get_node(&id)?.clone();
    Some((replica, membership.voter_ids().any(|voter| voter == id)))
}

/// What this replica is, for another one.
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
    }
}

/// What a replica knows that does not vote in a group.
pub(crate) struct Situation<'a> {
    pub(crate) me: (ReplicaId, u64),
    /// Whether it has had to do with a group: it has a log, or a term.
    pub(crate) initialized: bool,
    /// Whether it may found a group. Not if there has been one: its authority would be founded a second time.
    pub(crate) may_found: bool,
    /// The replicas that found the group together, this one among them, with their addresses.
    pub(crate) founders: &'a BTreeMap<ReplicaId, String>,
    /// What the others said when they were asked just now; who did not answer is missing.
    pub(crate) said: &'a BTreeMap<ReplicaId, pb::DescribeResponse>,
}

/// What such a replica does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// It founds the group, with these members.
    Found(BTreeMap<ReplicaId, Replica>),
    /// It asks this replica, which leads the group, to be added.
    Join(ReplicaId, Replica),
    /// It asks again later.
    Wait(&'static str),
    /// It would found the group, and may not.
    Refuse,
    /// It was taken out of the group, and stays out.
    StayOut,
}

/// The rule of founding and joining.
///
/// The founder with the lowest id founds the group, once all founders have answered and all are empty. So there is
/// one who may, also when all start at once; and a founder that comes back without its disk finds others that are
/// not empty, and joins them. If nobody of a group is left, nothing is founded behind its back: see `recover`. A founder
/// that knows of no other cannot ask whether somebody is left, and may not found a second time what it was told of.
///
/// Whoever is in the group and does not vote, because its admission was cut short, asks again to be admitted.
pub(crate) fn next_step(situation: &Situation<'_>) -> NextStep {
    let Situation { me: (me, incarnation), initialized, may_found, founders, said } = situation;
    let mut groups = said.values().filter(|said| group_of(said).is_some()).peekable();
    if groups.peek().is_some() {
        let known = groups.max_by_key(|said| (said.leader.is_some(), said.term));
        let Some(leader) = known.and_then(|said| said.leader.clone()) else {
            return NextStep::Wait("the group has no leader");
        };
        let membership = known.and_then(|said| said.membership.clone()).unwrap_or_default();
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
        return NextStep::Wait("nobody of the group answers");
    }
    if founders.keys().next() != Some(me) {
        return NextStep::Wait("the founder with the lowest id has not founded the group yet");
    }
    let mut members = BTreeMap::new();
    for (id, address) in *founders {
        let incarnation = match said.get(id).and_then(|said| said.identity.as_ref()) {
            Some(identity) => identity.incarnation,
            None if id == me => *incarnation,
            None => return NextStep::Wait("not all founders can be reached yet"),
        };
        members.insert(*id, Replica { address: address.clone(), incarnation });
    }
    if *may_found { NextStep::Found(members) } else { NextStep::Refuse }
}

fn group_of(said: &pb::DescribeResponse) -> Option<GroupId> {
    GroupId::read(&said.identity.as_ref()?.group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn founders(ids: impl IntoIterator<Item = u64>) -> BTreeMap<ReplicaId, String> {
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
        let identity = pb::Identity { replica: id, incarnation: first(id), group: GroupId([7; 16]).octets() };
        let replicas = members.iter().map(|id| replica(*id)).collect();
        let configs = vec![pb::Voters { ids: members.to_vec() }];
        pb::DescribeResponse {
            identity: Some(identity),
            leader: leader.map(replica),
            membership: Some(pb::Membership { configs, replicas }),
            ..Default::default()
        }
    }

    /// What replica `me` does, with its first disk, or with another one.
    fn step(me: u64, incarnation: u64, ids: &[u64], said: Vec<pb::DescribeResponse>) -> NextStep {
        step_of(me, incarnation, ids, said, (false, true))
    }

    fn step_of(
        me: u64,
        incarnation: u64,
        ids: &[u64],
        said: Vec<pb::DescribeResponse>,
        (initialized, may_found): (bool, bool),
    ) -> NextStep {
        let said =
            said.into_iter().map(|said| (ReplicaId(said.identity.as_ref().unwrap().replica), said)).collect();
        let (me, founders) = ((ReplicaId(me), incarnation), founders(ids.iter().copied()));
        next_step(&Situation { me, initialized, may_found, founders: &founders, said: &said })
    }

    #[test]
    fn nobody_founds_what_was_founded_before() {
        assert_eq!(step_of(0, 999, &[0], vec![], (false, false)), NextStep::Refuse);
        assert_eq!(step_of(0, 999, &[0, 1], vec![empty(1)], (false, false)), NextStep::Refuse);
        let join = NextStep::Join(ReplicaId(1), unnamed(replica(1)).1);
        assert_eq!(step_of(0, 999, &[0, 1], vec![in_group(1, Some(1), &[0, 1])], (false, false)), join);
    }

    #[test]
    fn whose_admission_was_cut_short_asks_again_and_who_was_taken_out_does_not() {
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
    fn of_several_that_start_at_once_the_lowest_founds_when_all_have_answered() {
        let all = [0, 1, 2];
        let members: BTreeMap<_, _> = all.iter().map(|id| unnamed(replica(*id))).collect();
        assert_eq!(step(0, first(0), &all, vec![empty(1), empty(2)]), NextStep::Found(members));
        assert!(matches!(step(0, first(0), &all, vec![empty(1)]), NextStep::Wait(_)), "2 may be in a group");
        assert!(matches!(step(1, first(1), &all, vec![empty(0), empty(2)]), NextStep::Wait(_)));
        assert!(matches!(step(2, first(2), &all, vec![]), NextStep::Wait(_)));
    }

    #[test]
    fn a_founder_without_its_disk_joins_the_group_that_the_others_are_in() {
        let join = NextStep::Join(ReplicaId(1), unnamed(replica(1)).1);
        let said = || vec![in_group(1, Some(1), &[0, 1, 2]), in_group(2, Some(1), &[0, 1, 2])];
        assert_eq!(step(0, 999, &[0, 1, 2], said()), join);
        assert_eq!(step(0, 999, &[0, 1, 2], vec![in_group(1, Some(1), &[0, 1, 2]), empty(2)]), join);
    }

    #[test]
    fn a_founder_that_the_leader_has_not_reached_yet_waits_for_it() {
        let said = vec![in_group(0, Some(0), &[0, 1, 2]), empty(2)];
        assert!(matches!(step(1, first(1), &[0, 1, 2], said), NextStep::Wait(_)));
    }

    #[test]
    fn a_newcomer_joins_once_there_is_a_leader_to_ask() {
        let said = |leader| vec![in_group(0, leader, &[0, 1, 2])];
        assert!(matches!(step(3, first(3), &[0, 1, 2], said(None)), NextStep::Wait(_)));
        assert_eq!(
            step(3, first(3), &[0, 1, 2], said(Some(2))),
            NextStep::Join(ReplicaId(2), unnamed(replica(2)).1)
        );
        assert!(matches!(step(3, first(3), &[0, 1, 2], vec![]), NextStep::Wait(_)), "it founds nothing");
    }
}
