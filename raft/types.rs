//! The types that openraft is instantiated with.
//!
//! An entry carries an encoded proposal, which only the state machine opens: the log, the network and the leader
//! pass it on as bytes. Nothing is answered through openraft: a proposer waits until its own replica has applied.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::runtime::Runtime;

/// Which replica. Given by its operator once (the ordinal of a `StatefulSet`) and never reused for another one
/// while it is a member; never an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<u64> for ReplicaId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl FromStr for ReplicaId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// What the group knows of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replica {
    /// `HOST:PORT` of its Raft port.
    pub address: String,
    /// Drawn when its disk was first used. A member that comes back with another one has forgotten what it
    /// acknowledged: it has to be removed and added again.
    pub incarnation: u64,
}

/// What an entry of the log proposes, encoded.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proposal(pub(crate) Bytes);

// Proposals hold sealed keys; nobody needs to see even these.
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
    /// See the module.
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
