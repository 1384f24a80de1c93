//! How a replica without a group gets into one: it asks the initial members, and founds, joins or waits.
//!
//! Owns the requests; [`next_step`] decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smc_host::env::Entropy;
use smc_proto::raft::v1 as pb;
use smc_types::causes::causes;
use smc_types::ids::ReplicaId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::group::founding::{Claim, FoundingRegister, Place};
use crate::group::peers::Peers;
use crate::membership::{NextStep, Situation, next_step, own_vote};
use crate::state::machine::Raft;
use crate::storage::error::StorageError;
use crate::storage::group_id::GroupId;
use crate::storage::identity::Identity;
use crate::transport::client::{ANSWER, CHANGE_PATIENCE};
use crate::types::Replica;

/// Pause between two attempts to get into a group.
const RETRY: Duration = Duration::from_millis(200);

/// Pause where only a person's hand helps, as far as this replica knows: the record of the founding, which is
/// outside the group, refuses it, or the group has removed it.
const RETRY_PERSON: Duration = Duration::from_secs(3);

/// What changes the reason why a replica is in no group.
#[derive(Clone, Copy)]
enum Act {
    /// The other replicas, in time.
    Time,
    /// A person.
    Person,
}

/// Brings a replica into a group.
pub(crate) struct GroupJoin {
    pub(crate) raft: Raft,
    pub(crate) identity: Identity,
    pub(crate) peers: Peers,
    pub(crate) address: String,
    pub(crate) initial_members: BTreeMap<ReplicaId, String>,
    /// Others that are asked for the group, and do not found it.
    pub(crate) possible_members: BTreeMap<ReplicaId, String>,
    /// Where it is noted that there has been an authority, if so.
    pub(crate) founded_before: Option<String>,
    /// The record of the founding that outlives all disks, if there is one.
    pub(crate) founding: Option<Arc<dyn FoundingRegister>>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// Why this replica is in no group yet.
    pub(crate) reason: watch::Sender<String>,
}

impl GroupJoin {
    /// Runs until the replica is a voter. One that was removed from its group asks on, and does not join.
    pub(crate) async fn run(self) {
        let me = (self.identity.replica, self.identity.incarnation);
        // With a group id on its disk it began to found a group that no other replica knows yet, and may go
        // on.
        let may_found = self.founded_before.is_none() || self.identity.group().is_some();
        while own_vote(&self.raft, &self.identity) != Some(true) {
            let initialized = self.raft.is_initialized().await.unwrap_or(true);
            let described = self.describe_others().await;
            let initial_members = &self.initial_members;
            let situation = Situation { me, initialized, may_found, initial_members, described: &described };
            match next_step(&situation) {
                NextStep::Found(members) => self.found(members).await,
                NextStep::Refuse => {
                    let note = self.founded_before.clone().unwrap_or_default();
                    self.identity.disk().fail(StorageError::FoundedBefore { note });
                    return;
                }
                NextStep::StayOut => {
                    let needs =
                        "it was removed from its group; to join again it needs an empty data directory";
                    self.waits(needs.to_owned(), Act::Person);
                    // The answer may be that of a follower which lacks the admission yet.
                    sleep(RETRY_PERSON).await;
                }
                NextStep::Join(leader, replica) => {
                    if is_another(me, &described) && !self.may_take_place().await {
                        sleep(RETRY_PERSON).await;
                        continue;
                    }
                    self.join(leader, replica).await;
                }
                NextStep::Wait(reason) => self.waits(reason.to_owned(), Act::Time),
            }
            sleep(RETRY).await;
        }
        self.reason.send_replace(String::new());
    }

    /// Notes why this replica is in no group, and logs it once: as a warning where a person has to act.
    fn waits(&self, reason: String, by: Act) {
        if *self.reason.borrow() != reason {
            let replica = self.identity.replica;
            match by {
                Act::Person => warn!(%replica, "not in a group: {reason}"),
                Act::Time => info!(%replica, "not in a group yet: {reason}"),
            }
            self.reason.send_replace(reason);
        }
    }

    /// Asks the other initial and possible members what they are, all at once; those that do not answer are
    /// missing.
    async fn describe_others(&self) -> BTreeMap<ReplicaId, pb::DescribeResponse> {
        let mut asked = JoinSet::new();
        let known = self.possible_members.iter().chain(&self.initial_members);
        let known: BTreeMap<_, _> = known.filter(|(id, _)| **id != self.identity.replica).collect();
        for (id, address) in known {
            let peer = self.peers.at(*id, Replica { address: address.clone(), incarnation: 0 });
            let id = *id;
            asked.spawn(async move { Some((id, peer.describe(ANSWER).await.ok()?)) });
        }
        asked.join_all().await.into_iter().flatten().collect()
    }

    async fn found(&self, members: BTreeMap<ReplicaId, Replica>) {
        if !self.may_claim().await {
            sleep(RETRY_PERSON).await;
            return;
        }
        // A previous attempt may have persisted the group id and crashed before `initialize`; reuse that id.
        let group = self.identity.group().map_or_else(|| GroupId::founded(&*self.entropy), Ok);
        let group = match group {
            Ok(group) => group,
            Err(error) => {
                warn!(%error, "cannot draw the id of a new group; will retry");
                return;
            }
        };
        let ids: Vec<_> = members.keys().map(ToString::to_string).collect();
        if self.identity.adopt(group).await.is_err() {
            // The disk has recorded its failure.
            return;
        }
        match self.raft.initialize(members).await {
            Ok(()) => info!(%group, replicas = ids.join(","), "the group is founded"),
            Err(error) => warn!(%error, "cannot found the group; will retry"),
        }
    }

    /// Whether the record outside the group, if there is one, leaves the founding to this replica.
    async fn may_claim(&self) -> bool {
        let Some(register) = &self.founding else { return true };
        match register.claim(self.identity.incarnation).await {
            Ok(Claim::Granted) => true,
            Ok(Claim::FoundedBefore(record)) => {
                let reason = format!("there has been a group, and no member of it answers ({record})");
                self.waits(reason, Act::Person);
                false
            }
            Err(error) => {
                self.waits(causes(&error), Act::Person);
                false
            }
        }
    }

    /// Whether this process may take the place of a member with its id and another disk.
    async fn may_take_place(&self) -> bool {
        let Some(register) = &self.founding else { return true };
        match register.may_take_place().await {
            Ok(Place::Granted) => true,
            Ok(Place::Another(process)) => {
                self.waits(format!("{process} is this replica now: end this process"), Act::Person);
                false
            }
            Err(error) => {
                self.waits(causes(&error), Act::Person);
                false
            }
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
            Err(error) => {
                self.waits(format!("the leader does not add this replica: {error}"), Act::Person);
            }
        }
    }
}

/// Whether any replica that answered lists a member with this id and another disk.
fn is_another(
    (id, incarnation): (ReplicaId, u64),
    described: &BTreeMap<ReplicaId, pb::DescribeResponse>,
) -> bool {
    let memberships = described.values().filter_map(|described| described.membership.as_ref());
    let mut members = memberships.flat_map(|membership| &membership.replicas);
    members.any(|member| member.id == id.0 && member.incarnation != incarnation)
}
