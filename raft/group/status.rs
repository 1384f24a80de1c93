//! The group as one replica sees it.

use openraft::async_runtime::watch::WatchReceiver;
use smc_types::ids::ReplicaId;

use super::Group;
use crate::storage::identity::GroupId;
use crate::types::Replica;

/// A member of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which replica.
    pub id: ReplicaId,
    /// `HOST:PORT` of its Raft port.
    pub address: String,
    /// Whether it votes; otherwise it is a learner.
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

impl Group {
    /// The group as this replica sees it.
    pub fn status(&self) -> GroupStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let matched = |id: &ReplicaId| Some(metrics.replication.as_ref()?.get(id)?.as_ref()?.index);
        let member = |(id, replica): (&ReplicaId, &Replica)| Member {
            id: *id,
            address: replica.address.clone(),
            voter: membership.voter_ids().any(|voter| voter == *id),
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
