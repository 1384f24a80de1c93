//! The ticks of openraft, which stop while no replica could miss them, and the elections, in which only a
//! disk that is a voter's stands.
//!
//! A tick looks whether a heartbeat or an election is due. openraft ticks every ten milliseconds at the
//! default heartbeat, and publishes its metrics at each tick, which is most of what an idle replica does.
//! A leader without any other member sends no heartbeats and stands for no election.
//!
//! openraft knows replicas by their ids alone. A replica that lost its disk is added again under its id, and
//! receives the log from its beginning: the memberships in it name the id, with the lost disk's incarnation.
//! If the group was founded by this replica alone, the first of them makes it a majority by itself. It would
//! elect itself with an empty log, and the others would follow it.
//!
//! Owns when openraft ticks, and when it may hold an election.

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::RaftServerMetrics;
use smc_types::ids::ReplicaId;

use crate::state::machine::Raft;
use crate::types::{Membership, StoredMembership, TypeConfig};

/// Stops and resumes the ticks, and allows and forbids elections, until Raft stops. Another member is known
/// here before the first message to it is due, and a vote of another replica makes this one a follower: both
/// change what is watched.
pub(crate) async fn ticking(raft: Raft, me: ReplicaId, incarnation: u64) {
    let mut server = raft.server_metrics();
    loop {
        let (ticks, stands) = {
            let server = server.borrow_watched();
            (is_needed(&server, me), may_stand(server.membership_config.membership(), me, incarnation))
        };
        raft.runtime_config().elect(stands);
        raft.runtime_config().tick(ticks);
        if server.changed().await.is_err() {
            return;
        }
    }
}

/// Whether a heartbeat or an election may become due on replica `me`.
fn is_needed(server: &RaftServerMetrics<TypeConfig>, me: ReplicaId) -> bool {
    let alone = |membership: &StoredMembership| {
        let mut members = membership.membership().nodes().map(|(id, _)| *id);
        members.next() == Some(me) && members.next().is_none()
    };
    server.state != ServerState::Leader
        || !alone(&server.membership_config)
        || !alone(&server.committed_membership_config)
}

/// Whether replica `me` may stand for election: the disk with this incarnation is a voter's. A membership
/// that names another incarnation is from before its disk was lost.
fn may_stand(membership: &Membership, me: ReplicaId, incarnation: u64) -> bool {
    membership.get_node(&me).is_some_and(|member| member.incarnation == incarnation)
        && membership.voter_ids().any(|voter| voter == me)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::types::Replica;

    #[test]
    fn only_the_disk_that_is_a_voters_stands_for_election() {
        let me = ReplicaId(0);
        let membership = |voters: &[u64], incarnation| {
            let voters: BTreeSet<_> = voters.iter().copied().map(ReplicaId).collect();
            let node =
                |id| Replica { address: "a".to_owned(), incarnation: if id == me { incarnation } else { 9 } };
            let ids = [ReplicaId(0), ReplicaId(1)];
            let nodes: BTreeMap<_, _> = ids.into_iter().map(|id| (id, node(id))).collect();
            Membership::new(vec![voters], nodes).unwrap()
        };
        for (sentence, membership, expected) in [
            ("a voter stands", membership(&[0, 1], 7), true),
            ("a learner does not", membership(&[1], 7), false),
            ("nor does a disk that took a lost one's place", membership(&[0], 6), false),
            ("before any membership none does", Membership::default(), false),
        ] {
            assert_eq!(may_stand(&membership, me, 7), expected, "{sentence}");
        }
    }
}
