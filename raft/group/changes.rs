//! Changes of the group's membership and leadership, made on the leader wherever it is.

use std::time::Duration;

use smc_proto::raft::v1 as pb;
use smc_types::causes::causes;
use smc_types::ids::ReplicaId;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::info;

use super::Group;
use super::error::MembershipError;
use crate::membership::{self, ChangeError};
use crate::transport::client::{ANSWER, CHANGE_PATIENCE, CallError};
use crate::types::Replica;

/// How long [`Group::hand_over_in_time`] waits for a successor to lead.
const HAND_OVER: Duration = Duration::from_secs(2);

impl Group {
    /// Adds a replica that runs at `address`, waits until it has caught up, and makes it a voter. A member
    /// that lost its disk is removed first.
    pub async fn add(&self, id: ReplicaId, address: String) -> Result<(), MembershipError> {
        let unknown = Replica { address: address.clone(), incarnation: 0 };
        let described = self.peers.at(id, unknown).describe(ANSWER).await;
        let described = described.map_err(|error| {
            MembershipError::Failed(format!("replica {id} at {address} does not answer: {error}"))
        })?;
        let incarnation = described.identity.map_or(0, |identity| identity.incarnation);
        let replica = pb::Replica { id: id.0, address, incarnation };
        self.change(pb::change_membership_request::Change::Add(replica)).await
    }

    /// Removes a replica. It may be gone for good, as long as a quorum is left.
    pub async fn remove(&self, id: ReplicaId) -> Result<(), MembershipError> {
        self.change(pb::change_membership_request::Change::Remove(id.0)).await
    }

    /// Transfers leadership to a replica.
    pub async fn transfer(&self, to: ReplicaId) -> Result<(), MembershipError> {
        self.change(pb::change_membership_request::Change::TransferTo(to.0)).await
    }

    /// Hands leadership over if this replica leads: to the best other voter among those that `stays` names.
    /// Returns the new leader, or `None` if this replica does not lead or there is no other voter to lead.
    pub async fn hand_over(
        &self,
        stays: impl Fn(ReplicaId) -> bool,
    ) -> Result<Option<ReplicaId>, MembershipError> {
        let status = self.status();
        let Some(successor) = status.successor(stays).filter(|_| status.leads()) else { return Ok(None) };
        self.transfer(successor).await?;
        Ok(Some(successor))
    }

    /// Hands leadership over as [`Group::hand_over`] does, and logs what becomes of it. Returns after two
    /// elections at the latest: the group elects a leader itself if it takes longer.
    pub async fn hand_over_in_time(&self, stays: impl Fn(ReplicaId) -> bool) {
        match timeout(HAND_OVER, self.hand_over(stays)).await {
            Ok(Ok(Some(leader))) => info!(%leader, "handed leadership over"),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => info!(error = %causes(&error), "cannot hand leadership over"),
            Err(_) => info!("the successor has not taken over in time"),
        }
    }

    /// Makes a change here, if this replica leads, and otherwise where it is accepted: all members are
    /// asked. A member that was removed may know a former leader, and hears of no other.
    async fn change(&self, change: pb::change_membership_request::Change) -> Result<(), MembershipError> {
        let status = self.status();
        if status.leads() {
            return membership::change(&self.raft, change).await.map_err(|error| match error {
                ChangeError::Refused(reason) => MembershipError::Refused(reason),
                error => MembershipError::Failed(error.to_string()),
            });
        }
        let mut asked = JoinSet::new();
        for peer in status.members.iter().filter_map(|member| self.peers.peer(member.id)) {
            let change = change.clone();
            asked.spawn(async move { peer.change_membership(change, CHANGE_PATIENCE).await });
        }
        let mut failure = CallError::NotLeader;
        while let Some(answered) = asked.join_next().await {
            match answered {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(CallError::Refused(reason))) => return Err(MembershipError::Refused(reason)),
                Ok(Err(error)) => failure = error,
                Err(_) => {}
            }
        }
        Err(MembershipError::Failed(failure.to_string()))
    }
}
