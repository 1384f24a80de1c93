//! The group as one replica sees it.

use std::collections::BTreeSet;

use openraft::async_runtime::watch::WatchReceiver;
use smc_types::ids::ReplicaId;

use super::Group;
use crate::storage::group_id::GroupId;
use crate::types::Replica;

/// A member of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which replica.
    pub id: ReplicaId,
    /// `HOST:PORT` of its Raft port.
    pub address: String,
    /// Whether it votes, as far as the group has agreed on it. A change that is not committed may be lost,
    /// and with it the majority that a person counts on.
    pub voter: bool,
    /// The last entry that it is known to have. `None` if this replica does not lead, or has no answer from
    /// it yet.
    pub matched: Option<u64>,
}

/// The group as one replica sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// This replica.
    pub replica: ReplicaId,
    /// The group; `None` as long as the replica belongs to none.
    pub group: Option<GroupId>,
    /// The current leader, if this replica knows one.
    pub leader: Option<ReplicaId>,
    /// The current term.
    pub term: u64,
    /// Index of the last entry of the log here.
    pub last: u64,
    /// Index of the last entry that was applied here.
    pub applied: u64,
    /// Index of the last entry that the snapshot includes.
    pub snapshot: u64,
    /// Log index of the last membership change, see [`Group::membership_index`].
    pub membership_index: u64,
    /// All members, sorted by id.
    pub members: Vec<Member>,
}

impl GroupStatus {
    /// Whether this replica leads the group.
    pub fn leads(&self) -> bool {
        self.leader == Some(self.replica)
    }

    /// The leader, if it can commit anything as far as this replica sees: others remember a leader that is
    /// gone, and a leader that lost its majority goes on as one. `heard` are the members that answer, and
    /// this replica.
    pub fn heard_leader(&self, heard: &BTreeSet<ReplicaId>) -> Option<ReplicaId> {
        let leader = self.leader.filter(|leader| heard.contains(leader))?;
        let voters: Vec<_> = self.members.iter().filter(|member| member.voter).collect();
        let answering = voters.iter().filter(|member| heard.contains(&member.id)).count();
        (leader != self.replica || answering > voters.len() / 2).then_some(leader)
    }

    /// The replica that leadership should go to if this replica is to end: of the other voters that `stays`
    /// names, the one that is known to have the most of the log, and of several the one with the lowest id.
    pub fn successor(&self, stays: impl Fn(ReplicaId) -> bool) -> Option<ReplicaId> {
        let others = self.members.iter().filter(|member| member.voter && member.id != self.replica);
        let staying = others.filter(|member| stays(member.id));
        let best = staying.max_by_key(|member| (member.matched, std::cmp::Reverse(member.id)));
        best.map(|member| member.id)
    }
}

impl Group {
    /// The group as this replica sees it.
    pub fn status(&self) -> GroupStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let voters = self.applied_membership.voters();
        let matched = |id: &ReplicaId| Some(metrics.replication.as_ref()?.get(id)?.as_ref()?.index);
        let member = |(id, replica): (&ReplicaId, &Replica)| Member {
            id: *id,
            address: replica.address.clone(),
            voter: voters.contains(id),
            matched: matched(id),
        };
        GroupStatus {
            replica: self.identity.replica,
            group: self.identity.group(),
            leader: metrics.current_leader,
            term: metrics.current_term,
            last: metrics.last_log_index.unwrap_or_default(),
            applied: metrics.last_applied.map_or(0, |id| id.index),
            snapshot: metrics.snapshot.map_or(0, |id| id.index),
            membership_index: self.membership_index(),
            members: membership.nodes().map(member).collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What a replica that leads sees of a group with these members: their ids, their votes and what they
    /// have.
    pub(in crate::group) fn status(replica: u64, members: &[(u64, bool, Option<u64>)]) -> GroupStatus {
        let member = |&(id, voter, matched): &(u64, bool, Option<u64>)| Member {
            id: ReplicaId(id),
            address: format!("replica-{id}:15129"),
            voter,
            matched,
        };
        GroupStatus {
            replica: ReplicaId(replica),
            group: None,
            leader: Some(ReplicaId(replica)),
            term: 1,
            last: 9,
            applied: 9,
            snapshot: 0,
            membership_index: 1,
            members: members.iter().map(member).collect(),
        }
    }

    #[test]
    fn leadership_goes_to_the_voter_with_the_most_of_the_log() {
        let (yes, no) = (true, false);
        for (sentence, members, stays, expected) in [
            ("a replica alone has no successor", vec![(0, yes, None)], 9, None),
            ("a learner cannot lead", vec![(0, yes, None), (1, no, Some(9))], 9, None),
            ("the furthest leads", vec![(0, yes, None), (1, yes, Some(8)), (2, yes, Some(9))], 9, Some(2)),
            (
                "an unreachable one is last",
                vec![(0, yes, None), (1, yes, None), (2, yes, Some(1))],
                9,
                Some(2),
            ),
            (
                "of equals the lowest id",
                vec![(0, yes, None), (2, yes, Some(9)), (1, yes, Some(9))],
                9,
                Some(1),
            ),
            (
                "one that leaves is passed over",
                vec![(0, yes, None), (1, yes, Some(1)), (4, yes, Some(9))],
                3,
                Some(1),
            ),
            ("where all others leave there is none", vec![(0, yes, None), (3, yes, Some(9))], 3, None),
        ] {
            let successor = status(0, &members).successor(|id| id.0 < stays);
            assert_eq!(successor, expected.map(ReplicaId), "{sentence}");
        }
    }
}
