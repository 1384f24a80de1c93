//! Conversions between openraft's types and their stored and transmitted form.
//!
//! Reading accepts any message: a missing or contradictory field is an error, never a panic.

use std::collections::{BTreeMap, BTreeSet};

use openraft::EntryPayload;
use smc_proto::raft::v1 as pb;
use smc_types::ids::ReplicaId;
use thiserror::Error;

use crate::types::{
    Entry, LeaderId, LogId, Membership, Proposal, Replica, SnapshotMeta, StoredMembership, Vote,
};

/// A message that no replica writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// A type with a stored and transmitted form.
pub(crate) trait Wire: Sized {
    type Form;

    fn to_wire(&self) -> Self::Form;

    fn from_wire(form: Self::Form) -> Result<Self, Malformed>;
}

/// Writes an optional value.
pub(crate) fn write<T: Wire>(value: Option<&T>) -> Option<T::Form> {
    value.map(Wire::to_wire)
}

/// Reads an optional value.
pub(crate) fn read<T: Wire>(form: Option<T::Form>) -> Result<Option<T>, Malformed> {
    form.map(T::from_wire).transpose()
}

/// Reads a required vote.
pub(crate) fn vote(vote: Option<pb::Vote>) -> Result<Vote, Malformed> {
    Vote::from_wire(vote.ok_or(Malformed("the vote is missing"))?)
}

/// Reads a required leader id.
fn leader(id: Option<pb::LeaderId>) -> Result<LeaderId, Malformed> {
    let id = id.ok_or(Malformed("an id names no leader"))?;
    Ok(LeaderId { term: id.term, node_id: ReplicaId(id.replica) })
}

fn leader_to_wire(id: LeaderId) -> pb::LeaderId {
    pb::LeaderId { term: id.term, replica: id.node_id.0 }
}

impl Wire for LogId {
    type Form = pb::LogId;

    fn to_wire(&self) -> pb::LogId {
        pb::LogId { leader: Some(leader_to_wire(self.leader_id)), index: self.index }
    }

    fn from_wire(id: pb::LogId) -> Result<Self, Malformed> {
        Ok(Self { leader_id: leader(id.leader)?, index: id.index })
    }
}

impl Wire for Vote {
    type Form = pb::Vote;

    fn to_wire(&self) -> pb::Vote {
        pb::Vote { leader: Some(leader_to_wire(self.leader_id)), committed: self.committed }
    }

    fn from_wire(vote: pb::Vote) -> Result<Self, Malformed> {
        Ok(Self { leader_id: leader(vote.leader)?, committed: vote.committed })
    }
}

/// A replica with its id.
pub(crate) fn named(id: ReplicaId, replica: &Replica) -> pb::Replica {
    pb::Replica { id: id.0, address: replica.address.clone(), incarnation: replica.incarnation }
}

/// The reverse of [`named`].
pub(crate) fn unnamed(replica: pb::Replica) -> (ReplicaId, Replica) {
    (ReplicaId(replica.id), Replica { address: replica.address, incarnation: replica.incarnation })
}

impl Wire for Membership {
    type Form = pb::Membership;

    fn to_wire(&self) -> pb::Membership {
        let ids = |set: &BTreeSet<ReplicaId>| pb::Voters { ids: set.iter().map(|id| id.0).collect() };
        let replicas = self.nodes().map(|(id, replica)| named(*id, replica));
        pb::Membership {
            configs: self.get_joint_config().iter().map(ids).collect(),
            replicas: replicas.collect(),
        }
    }

    fn from_wire(membership: pb::Membership) -> Result<Self, Malformed> {
        let ids = |voters: pb::Voters| voters.ids.into_iter().map(ReplicaId).collect::<BTreeSet<_>>();
        let configs: Vec<_> = membership.configs.into_iter().map(ids).collect();
        let replicas: BTreeMap<_, _> = membership.replicas.into_iter().map(unnamed).collect();
        // Before the first entry the membership is empty, which `new` would refuse.
        if configs.is_empty() && replicas.is_empty() {
            return Ok(Self::default());
        }
        Self::new(configs, replicas).map_err(|_| Malformed("a membership contradicts itself"))
    }
}

impl Wire for StoredMembership {
    type Form = pb::StoredMembership;

    fn to_wire(&self) -> pb::StoredMembership {
        let id = write(self.log_id().as_ref());
        pb::StoredMembership { id, membership: Some(self.membership().to_wire()) }
    }

    fn from_wire(stored: pb::StoredMembership) -> Result<Self, Malformed> {
        let membership = Membership::from_wire(stored.membership.unwrap_or_default())?;
        Ok(Self::new(read(stored.id)?, membership))
    }
}

impl Wire for Entry {
    type Form = pb::Entry;

    fn to_wire(&self) -> pb::Entry {
        let payload = match &self.payload {
            EntryPayload::Blank => pb::entry::Payload::Blank(pb::Blank {}),
            EntryPayload::Normal(Proposal(bytes)) => pb::entry::Payload::Proposal(bytes.clone()),
            EntryPayload::Membership(membership) => pb::entry::Payload::Membership(membership.to_wire()),
        };
        pb::Entry { id: Some(self.log_id.to_wire()), payload: Some(payload) }
    }

    fn from_wire(entry: pb::Entry) -> Result<Self, Malformed> {
        let log_id = LogId::from_wire(entry.id.ok_or(Malformed("an entry has no id"))?)?;
        let payload = match entry.payload.ok_or(Malformed("an entry has no payload"))? {
            pb::entry::Payload::Blank(pb::Blank {}) => EntryPayload::Blank,
            pb::entry::Payload::Proposal(bytes) => EntryPayload::Normal(Proposal(bytes)),
            pb::entry::Payload::Membership(form) => EntryPayload::Membership(Membership::from_wire(form)?),
        };
        Ok(Self { log_id, payload })
    }
}

/// A snapshot's header, for openraft.
pub(crate) fn snapshot_meta(header: &pb::SnapshotHeader) -> Result<SnapshotMeta, Malformed> {
    let last_membership = StoredMembership::from_wire(header.membership.clone().unwrap_or_default())?;
    Ok(SnapshotMeta { last_log_id: read(header.last)?, last_membership })
}
