//! How a replica without a group comes into one: it looks around, and founds, joins or waits.
//!
//! Owns the asking; [`next_step`] decides.

use std::collections::BTreeMap;
use std::time::Duration;

use smc_proto::raft::v1 as pb;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::error::StorageError;
use crate::identity::{GroupId, Identity};
use crate::machine::StateMachine;
use crate::membership::{NextStep, Situation, member, next_step};
use crate::peers::Peers;
use crate::runtime::Draw;
use crate::transport::client::{ANSWER, CHANGE_PATIENCE};
use crate::types::{Replica, ReplicaId, TypeConfig};

type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// Between two looks of a replica that belongs to no group yet.
const FOUNDING_LOOK: Duration = Duration::from_millis(200);

/// Brings a replica into a group.
pub(crate) struct Forming {
    pub(crate) raft: Raft,
    pub(crate) identity: Identity,
    pub(crate) peers: Peers,
    pub(crate) address: String,
    pub(crate) founders: BTreeMap<ReplicaId, String>,
    /// Where it is noted that there has been an authority, if there has.
    pub(crate) founded_before: Option<String>,
    pub(crate) draw: Draw,
}

impl Forming {
    /// Works until the replica is a member that votes, or was taken out.
    pub(crate) async fn run(self) {
        let me = (self.identity.replica, self.identity.incarnation);
        // Of a founding that was cut short nobody else knows yet.
        let may_found = self.founded_before.is_none() || self.identity.group().is_some();
        let mut waiting_for = "";
        while !self.votes() {
            let initialized = self.raft.is_initialized().await.unwrap_or(true);
            let said = self.ask_around().await;
            match next_step(&Situation { me, initialized, may_found, founders: &self.founders, said: &said })
            {
                NextStep::Found(members) => self.found(members).await,
                NextStep::Refuse => {
                    let note = self.founded_before.clone().unwrap_or_default();
                    self.identity.disk().fail(StorageError::FoundedBefore { note });
                    return;
                }
                NextStep::StayOut => {
                    warn!(replica = %me.0, "was taken out of the group; it joins again with an empty data directory");
                    return;
                }
                NextStep::Join(leader, replica) => self.join(leader, replica).await,
                NextStep::Wait(why) => {
                    if why != waiting_for {
                        info!(replica = %me.0, "not in a group yet: {why}");
                        waiting_for = why;
                    }
                }
            }
            sleep(FOUNDING_LOOK).await;
        }
    }

    /// Whether the replica votes, as far as it knows: with the disk that it has, not with one that it had before.
    fn votes(&self) -> bool {
        member(&self.raft, self.identity.replica)
            .is_some_and(|(member, voter)| voter && member.incarnation == self.identity.incarnation)
    }

    async fn ask_around(&self) -> BTreeMap<ReplicaId, pb::DescribeResponse> {
        let mut asked = JoinSet::new();
        for (id, address) in self.founders.iter().filter(|(id, _)| **id != self.identity.replica) {
            let peer = self.peers.at(*id, Replica { address: address.clone(), incarnation: 0 });
            let id = *id;
            asked.spawn(async move { Some((id, peer.describe(ANSWER).await.ok()?)) });
        }
        asked.join_all().await.into_iter().flatten().collect()
    }

    async fn found(&self, members: BTreeMap<ReplicaId, Replica>) {
        // It may have been at it before: whoever was killed in between has the name of the group, and no group.
        let group = self.identity.group().unwrap_or_else(|| GroupId::draw(&*self.draw));
        let ids: Vec<_> = members.keys().map(ToString::to_string).collect();
        if self.identity.adopt(group).await.is_err() {
            // A disk that fails shows in its own way.
            return;
        }
        match self.raft.initialize(members).await {
            Ok(()) => info!(%group, replicas = ids.join(","), "the group is founded"),
            Err(error) => warn!(%error, "cannot found the group; will try again"),
        }
    }

    async fn join(&self, leader: ReplicaId, replica: Replica) {
        let me = pb::Replica {
            id: self.identity.replica.0,
            address: self.address.clone(),
            incarnation: self.identity.incarnation,
        };
        let leader = self.peers.at(leader, Replica { incarnation: 0, ..replica });
        let change = pb::change_membership_request::Change::Add(me);
        match leader.change_membership(change, CHANGE_PATIENCE).await {
            Ok(()) => info!(replica = %self.identity.replica, "joined the group"),
            Err(error) => warn!(%error, "cannot join the group yet; will try again"),
        }
    }
}
