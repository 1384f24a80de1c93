//! Checks that a message is for this replica and group, and from the replica that its certificate names.
//!
//! Owns the rule, and how a refusal names the group of the replica that refuses.

use smc_proto::raft::v1 as pb;
use smc_types::ids::ReplicaId;
use thiserror::Error;
use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::storage::group_id::GroupId;

/// The metadata of a refusal that names the group of the replica that refuses. The connection is
/// authenticated, and so is what it says.
const GROUP: &str = "smc-group";

/// Says in a refusal which group this replica belongs to.
pub(super) fn name_group(refusal: &mut Status, group: Option<GroupId>) {
    if let Some(group) = group.and_then(|group| MetadataValue::try_from(group.to_string()).ok()) {
        refusal.metadata_mut().insert(GROUP, group);
    }
}

/// The group of the replica that refused.
pub(super) fn named_group(refusal: &Status) -> Option<GroupId> {
    GroupId::parse(refusal.metadata().get(GROUP)?.as_bytes())
}

/// Why a message is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Misrouted {
    #[error("the message names no sender and receiver")]
    NoRoute,
    #[error("the message is for replica {0}")]
    OtherReplica(ReplicaId),
    #[error(
        "the certificate is that of replica {certificate}, but the message names {message} as its sender"
    )]
    OtherSender { certificate: ReplicaId, message: ReplicaId },
    #[error("the message is of another group, {0}")]
    OtherGroup(GroupId),
    #[error("this replica lost its disk since it became a member, and waits to be added again")]
    OtherIncarnation,
    #[error("the message names no group")]
    NoGroup,
}

/// This replica, as messages must address it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receiver {
    pub(super) replica: ReplicaId,
    pub(super) incarnation: u64,
    pub(super) group: Option<GroupId>,
}

/// The sender of a message, and its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) replica: ReplicaId,
    pub(super) group: Option<GroupId>,
}

impl Receiver {
    /// Checks a message of Raft itself: it must name a group, and this incarnation. A replica without a
    /// group accepts one of any group: only a member that knows this incarnation can send it.
    pub(super) fn raft(self, route: Option<&pb::Route>, peer: ReplicaId) -> Result<GroupId, Misrouted> {
        let sender = self.any(route, peer)?;
        let group = sender.group.ok_or(Misrouted::NoGroup)?;
        if route.map(|route| route.to_incarnation) != Some(self.incarnation) {
            return Err(Misrouted::OtherIncarnation);
        }
        Ok(group)
    }

    /// Checks a message that replicas also exchange before they belong to one group.
    pub(super) fn any(self, route: Option<&pb::Route>, peer: ReplicaId) -> Result<Sender, Misrouted> {
        let route = route.ok_or(Misrouted::NoRoute)?;
        let (from, to) = (ReplicaId(route.from), ReplicaId(route.to));
        if from != peer {
            return Err(Misrouted::OtherSender { certificate: peer, message: from });
        }
        if to != self.replica {
            return Err(Misrouted::OtherReplica(to));
        }
        let group = match &route.group[..] {
            [] => None,
            bytes => Some(GroupId::read(bytes).ok_or(Misrouted::NoRoute)?),
        };
        match (group, self.group) {
            (Some(theirs), Some(mine)) if theirs != mine => Err(Misrouted::OtherGroup(theirs)),
            _ => Ok(Sender { replica: from, group }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: GroupId = GroupId([1; 16]);
    const OTHER: GroupId = GroupId([2; 16]);
    const PEER: ReplicaId = ReplicaId(0);

    fn receiver(group: Option<GroupId>) -> Receiver {
        Receiver { replica: ReplicaId(1), incarnation: 7, group }
    }

    fn route(group: Option<GroupId>, from: u64, to: u64, to_incarnation: u64) -> pb::Route {
        pb::Route { group: group.map(GroupId::bytes).unwrap_or_default(), from, to, to_incarnation }
    }

    #[test]
    fn a_message_of_raft_has_to_be_for_this_incarnation_of_this_member() {
        let check = |route: &pb::Route| receiver(Some(MINE)).raft(Some(route), PEER);
        assert_eq!(check(&route(Some(MINE), 0, 1, 7)), Ok(MINE));
        assert_eq!(check(&route(Some(OTHER), 0, 1, 7)), Err(Misrouted::OtherGroup(OTHER)));
        assert_eq!(check(&route(None, 0, 1, 7)), Err(Misrouted::NoGroup));
        assert_eq!(check(&route(Some(MINE), 0, 2, 7)), Err(Misrouted::OtherReplica(ReplicaId(2))));
        assert_eq!(check(&route(Some(MINE), 0, 1, 6)), Err(Misrouted::OtherIncarnation));
        assert_eq!(check(&route(Some(MINE), 0, 1, 0)), Err(Misrouted::OtherIncarnation));
        let lie = Misrouted::OtherSender { certificate: PEER, message: ReplicaId(2) };
        assert_eq!(check(&route(Some(MINE), 2, 1, 7)), Err(lie));
        assert_eq!(receiver(Some(MINE)).raft(None, PEER), Err(Misrouted::NoRoute));
    }

    #[test]
    fn a_replica_without_a_group_accepts_messages_for_its_incarnation() {
        assert_eq!(receiver(None).raft(Some(&route(Some(MINE), 0, 1, 7)), PEER), Ok(MINE));
        let stale = receiver(None).raft(Some(&route(Some(MINE), 0, 1, 6)), PEER);
        assert_eq!(stale, Err(Misrouted::OtherIncarnation), "meant for the disk that it had before");
    }

    #[test]
    fn before_a_common_group_only_another_groups_messages_are_refused() {
        let asks = receiver(Some(MINE)).any(Some(&route(None, 0, 1, 0)), PEER);
        assert_eq!(asks, Ok(Sender { replica: PEER, group: None }));
        let other = receiver(Some(MINE)).any(Some(&route(Some(OTHER), 0, 1, 0)), PEER);
        assert_eq!(other, Err(Misrouted::OtherGroup(OTHER)));
    }
}
