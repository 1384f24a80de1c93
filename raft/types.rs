//! The types that openraft is instantiated with.
//!
//! An entry carries an encoded proposal, which only the state machine decodes: the log, the network and the
//! leader pass it on as bytes. No answers go through openraft: a proposer waits until its own replica has
//! applied its entry.

use std::fmt;

use bytes::Bytes;
use smc_types::ids::ReplicaId;

use crate::runtime::Runtime;

/// A member, as the group knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replica {
    /// `HOST:PORT` of its Raft port.
    pub address: String,
    /// Drawn when its disk was first used. A member that returns with another incarnation has lost what it
    /// acknowledged, and must be removed and added again.
    pub incarnation: u64,
}

/// The payload of a log entry: an encoded [`smc_proto::raft::v1::Request`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proposal(pub(crate) Bytes);

// Proposals hold sealed private keys, which do not belong in logs.
impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} bytes)", self.0.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

openraft::declare_raft_types!(
    /// openraft's types.
    pub(crate) TypeConfig:
        D = Proposal,
        R = (),
        AsyncRuntime = Runtime,
        NodeId = ReplicaId,
        Node = Replica,
);

pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type LeaderId = openraft::alias::LeaderIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<ReplicaId, Replica>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
