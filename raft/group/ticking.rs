//! The ticks of openraft: they stop while no replica could miss them.
//!
//! A tick looks whether a heartbeat or an election is due. openraft ticks every ten milliseconds at the
//! default heartbeat, and publishes its metrics at each tick, which is most of what an idle replica does.
//! A leader without any other member sends no heartbeats and stands for no election.
//!
//! Owns when openraft ticks.

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::RaftServerMetrics;
use smc_types::ids::ReplicaId;

use crate::state::machine::Raft;
use crate::types::{StoredMembership, TypeConfig};

/// Stops and resumes the ticks, until Raft stops. Another member is known here before the first message to
/// it is due, and a vote of another replica makes this one a follower: both change what is watched.
pub(crate) async fn ticking(raft: Raft, me: ReplicaId) {
    let mut server = raft.server_metrics();
    loop {
        let ticks = is_needed(&server.borrow_watched(), me);
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
