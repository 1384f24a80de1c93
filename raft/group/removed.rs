//! How a replica learns that its group removed it: while it did not run, or in the moment in which it came
//! back.
//!
//! Owns the question to all replicas whose addresses it knows. Its own membership is of no use: the removal
//! is missing there. It believes a leader alone, of its own group, to which a majority has just confirmed
//! that it leads: a replica that concludes wrongly forgets what it acknowledged.

use std::time::Duration;

use smc_proto::raft::v1 as pb;
use smc_types::ids::ReplicaId;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Group;
use crate::transport::client::{ANSWER, Peer};
use crate::types::Replica;

/// The pause between two rounds of questions of a replica that hears no leader. An election takes as long;
/// each question costs a heartbeat of the leader.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause of one that hears a leader, which is a member as a rule. One that was removed hears it as well,
/// in what all replicas tell each other.
const PAUSE_OF_A_MEMBER: Duration = Duration::from_secs(10);

impl Group {
    /// Returns once the leader confirms that this replica is no member of its group, with the disk that it
    /// has. Never returns for a member, without a group or without a leader. Asks all others every second,
    /// or every ten where it hears a leader. Cancel-safe.
    pub async fn removed(&self) {
        loop {
            if self.identity.group().is_some() && self.is_removed().await {
                return;
            }
            let hears = self.status().heard_leader(&self.heard()).is_some();
            sleep(if hears { PAUSE_OF_A_MEMBER } else { PAUSE }).await;
        }
    }

    pub(super) async fn is_removed(&self) -> bool {
        let mut asked = JoinSet::new();
        for peer in self.others() {
            asked.spawn(async move { peer.members(ANSWER).await.ok() });
        }
        let me = (self.identity.replica, self.identity.incarnation);
        asked.join_all().await.into_iter().flatten().any(|members| !lists(&members, me))
    }

    /// The other members, and the replicas that this one was started with.
    fn others(&self) -> Vec<Peer> {
        let at = |(id, address): (&ReplicaId, &String)| {
            self.peers
                .peer(*id)
                .unwrap_or_else(|| self.peers.at(*id, Replica { address: address.clone(), incarnation: 0 }))
        };
        let status = self.status();
        let members = status.members.iter().map(|member| (member.id, member.address.clone()));
        let mut known = self.known.clone();
        known.extend(members);
        known.remove(&self.identity.replica);
        known.iter().map(at).collect()
    }
}

fn lists(members: &pb::Membership, (id, incarnation): (ReplicaId, u64)) -> bool {
    members.replicas.iter().any(|member| member.id == id.0 && member.incarnation == incarnation)
}
