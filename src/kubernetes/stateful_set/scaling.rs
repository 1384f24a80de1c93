//! What the number of replicas that a person asks for means for the group.
//!
//! Owns two rules as plain functions: whether a replica that ends comes back, and what the leader does about
//! members that the StatefulSet no longer asks for.

use std::collections::BTreeSet;

use smc_raft::GroupStatus;
use smc_types::ids::ReplicaId;

/// The StatefulSet as the API has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Desired {
    /// The replicas asked for. Their ordinals are 0 to one less.
    pub(crate) replicas: u64,
    /// Whether the StatefulSet itself is being deleted.
    pub(crate) ending: bool,
}

impl Desired {
    /// Whether a replica is asked for. With none at all, or without the StatefulSet, the control plane is
    /// stopped and not made smaller: every replica may come back, to its disk and to its group.
    pub(crate) fn keeps(self, replica: ReplicaId) -> bool {
        self.ending || self.replicas == 0 || replica.0 < self.replicas
    }
}

/// What a replica that was asked to end does about its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It comes back, and stays a member.
    Returns,
    /// It was scaled away: it leaves the group.
    Leaves,
}

/// The rule of the end of a replica. Without an answer of the API it stays a member: a member too many is
/// removed by the leader later, and a member too few would have lost its disk.
pub(crate) fn departure(replica: ReplicaId, desired: Option<Desired>) -> Departure {
    match desired {
        Some(desired) if !desired.keeps(replica) => Departure::Leaves,
        _ => Departure::Returns,
    }
}

/// What the leader does next about surplus members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: it does not lead, or no member is surplus for sure.
    Nothing,
    /// It is surplus itself: it hands leadership to a replica that stays.
    HandOver,
    /// It removes this member.
    Remove(ReplicaId),
}

/// The members that the StatefulSet does not keep.
pub(crate) fn surplus(status: &GroupStatus, desired: Desired) -> BTreeSet<ReplicaId> {
    status.members.iter().map(|member| member.id).filter(|id| !desired.keeps(*id)).collect()
}

/// The rule of the leader: it removes members that were surplus in the look before as well (`before`), one at
/// a time, the highest first. One look could be older than a change of the StatefulSet that a new member has
/// already followed. Where no voter stays, nothing is removed.
pub(crate) fn next_step(status: &GroupStatus, before: &BTreeSet<ReplicaId>, desired: Desired) -> Step {
    let stays = |id: ReplicaId| desired.keeps(id);
    if !status.leads() || !status.members.iter().any(|member| member.voter && stays(member.id)) {
        return Step::Nothing;
    }
    let surplus = surplus(status, desired);
    let Some(&last) = surplus.intersection(before).last() else { return Step::Nothing };
    if stays(status.replica) {
        Step::Remove(last)
    } else if status.successor(stays).is_some() {
        Step::HandOver
    } else {
        Step::Nothing
    }
}

#[cfg(test)]
mod tests {
    use smc_raft::Member;

    use super::*;

    fn desired(replicas: u64) -> Desired {
        Desired { replicas, ending: false }
    }

    #[test]
    fn a_replica_leaves_only_if_the_api_says_that_it_was_scaled_away() {
        let ending = Desired { replicas: 1, ending: true };
        for (sentence, replica, desired, expected) in [
            ("a restart keeps the membership", 2, Some(desired(3)), Departure::Returns),
            ("scaled away", 2, Some(desired(2)), Departure::Leaves),
            ("several at once", 4, Some(desired(1)), Departure::Leaves),
            ("the first one stays", 0, Some(desired(1)), Departure::Returns),
            ("scaled to nothing means stopped", 2, Some(desired(0)), Departure::Returns),
            ("uninstalled means stopped", 2, Some(ending), Departure::Returns),
            ("without an answer it may come back", 2, None, Departure::Returns),
        ] {
            assert_eq!(departure(ReplicaId(replica), desired), expected, "{sentence}");
        }
    }

    fn status(replica: u64, leader: Option<u64>, members: &[u64]) -> GroupStatus {
        let member = |id: &u64| Member {
            id: ReplicaId(*id),
            address: format!("replica-{id}:15129"),
            voter: true,
            matched: None,
        };
        GroupStatus {
            replica: ReplicaId(replica),
            group: None,
            leader: leader.map(ReplicaId),
            term: 1,
            last: 1,
            applied: 1,
            snapshot: 0,
            membership_index: 1,
            members: members.iter().map(member).collect(),
        }
    }

    #[test]
    fn the_leader_removes_what_was_surplus_twice_and_the_highest_first() {
        let all = [0, 1, 2, 3, 4];
        for (sentence, status, before, replicas, expected) in [
            ("nothing is surplus", status(0, Some(0), &all), vec![], 5, Step::Nothing),
            ("seen for the first time", status(0, Some(0), &all), vec![], 3, Step::Nothing),
            ("seen twice", status(0, Some(0), &all), vec![3, 4], 3, Step::Remove(ReplicaId(4))),
            (
                "a newcomer was not there before",
                status(0, Some(0), &all),
                vec![3],
                3,
                Step::Remove(ReplicaId(3)),
            ),
            ("wanted again meanwhile", status(0, Some(0), &all), vec![3, 4], 5, Step::Nothing),
            ("a follower leaves it to the leader", status(0, Some(1), &all), vec![3, 4], 3, Step::Nothing),
            ("without a leader nothing happens", status(0, None, &all), vec![3, 4], 3, Step::Nothing),
            ("the leader is surplus itself", status(4, Some(4), &all), vec![3, 4], 3, Step::HandOver),
            ("scaled to nothing", status(0, Some(0), &all), vec![3, 4], 0, Step::Nothing),
            ("no replica would stay", status(4, Some(4), &[3, 4]), vec![3, 4], 3, Step::Nothing),
        ] {
            let before = before.into_iter().map(ReplicaId).collect();
            assert_eq!(next_step(&status, &before, desired(replicas)), expected, "{sentence}");
        }
    }
}
