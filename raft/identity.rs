//! Who this replica is: its id, the incarnation of its disk, and its group.
//!
//! Owns the one fact on the disk that says so, and the refusal of a disk that says otherwise.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use smc_proto::raft::v1 as pb;

use crate::disk::{Disk, put_fact};
use crate::error::StorageError;
use crate::types::ReplicaId;

pub(crate) const IDENTITY: &str = "identity";

/// Which group: drawn at random when it is founded, so that replicas of two meshes never mix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(pub(crate) [u8; 16]);

impl GroupId {
    /// A new group's id; `draw` gives random numbers.
    pub(crate) fn draw(draw: impl Fn() -> u64) -> Self {
        Self(((u128::from(draw()) << 64) | u128::from(draw())).to_be_bytes())
    }

    pub(crate) fn read(octets: &[u8]) -> Option<Self> {
        octets.try_into().ok().map(Self)
    }

    pub(crate) fn octets(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Identity {
    disk: Disk,
    pub(crate) replica: ReplicaId,
    pub(crate) incarnation: u64,
    group: Arc<RwLock<Option<GroupId>>>,
}

/// Whether what is stored is of this replica.
pub(crate) fn check_owner(stored: &pb::Identity, expected: ReplicaId) -> Result<(), StorageError> {
    let found = ReplicaId(stored.replica);
    if found == expected { Ok(()) } else { Err(StorageError::OtherReplica { found, expected }) }
}

impl Identity {
    /// Takes up what the disk says; makes it the disk of `replica` if it is new. `draw` gives a fresh incarnation.
    pub(crate) async fn open(disk: Disk, replica: ReplicaId, draw: impl FnOnce() -> u64) -> io::Result<Self> {
        let stored = if let Some(stored) = disk.fact::<pb::Identity>(IDENTITY)? {
            stored
        } else {
            // 0 stands for "not known".
            let incarnation = draw().max(1);
            let new = pb::Identity { replica: replica.0, incarnation, group: Bytes::new() };
            disk.write(vec![put_fact(IDENTITY, &new)])?;
            disk.sync().await?;
            new
        };
        check_owner(&stored, replica).map_err(|other| disk.fail(other))?;
        let group = match &stored.group[..] {
            [] => None,
            octets => {
                Some(GroupId::read(octets).ok_or_else(|| disk.malformed("the group's id is not 16 octets"))?)
            }
        };
        Ok(Self { disk, replica, incarnation: stored.incarnation, group: Arc::new(RwLock::new(group)) })
    }

    /// The group, once it belongs to one.
    pub(crate) fn group(&self) -> Option<GroupId> {
        *self.group.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a group, durably. Does nothing if it belongs to it already; the answer is whether it does now.
    pub(crate) async fn adopt(&self, group: GroupId) -> io::Result<bool> {
        if let Some(mine) = self.group() {
            return Ok(mine == group);
        }
        self.disk
            .write(vec![put_fact(IDENTITY, &pb::Identity { group: group.octets(), ..self.stored() })])?;
        self.disk.sync().await?;
        let mut mine = self.group.write().unwrap_or_else(PoisonError::into_inner);
        Ok(*mine.get_or_insert(group) == group)
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// As it is stored, and told to others.
    pub(crate) fn stored(&self) -> pb::Identity {
        let group = self.group().map(GroupId::octets).unwrap_or_default();
        pb::Identity { replica: self.replica.0, incarnation: self.incarnation, group }
    }
}
