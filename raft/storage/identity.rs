//! The identity of a replica: its id, the incarnation of its disk, and its group.
//!
//! Owns the record of it on the disk, and the refusal of a disk with another replica's record.

use std::fmt;
use std::io;
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use smc_host::env::{Entropy, NoEntropy};
use smc_host::sync::{read, write};
use smc_proto::raft::v1 as pb;
use smc_types::ids::ReplicaId;
use thiserror::Error;

use crate::storage::disk::{Disk, put_record};
use crate::storage::error::StorageError;

pub(crate) const IDENTITY: &str = "identity";

/// The random id of a group, drawn when it is founded, so that replicas of two meshes never mix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(pub(crate) [u8; 16]);

impl GroupId {
    /// A new group's id.
    pub(crate) fn draw(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let mut id = [0; 16];
        entropy.fill(&mut id)?;
        Ok(Self(id))
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The identity of this replica. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Identity {
    disk: Disk,
    pub(crate) replica: ReplicaId,
    pub(crate) incarnation: u64,
    group: Arc<RwLock<Option<GroupId>>>,
}

/// Why a replica has no identity.
#[derive(Debug, Error)]
pub(crate) enum IdentityError {
    #[error(transparent)]
    Storage(#[from] io::Error),
    #[error("cannot draw the incarnation of a new disk")]
    NoEntropy(#[from] NoEntropy),
}

/// A fresh incarnation. Never 0, which stands for "not known".
pub(crate) fn draw_incarnation(entropy: &dyn Entropy) -> Result<u64, NoEntropy> {
    entropy.random_u64().map(|incarnation| incarnation.max(1))
}

/// Fails if the stored identity is another replica's.
pub(crate) fn check_owner(stored: &pb::Identity, expected: ReplicaId) -> Result<(), StorageError> {
    let found = ReplicaId(stored.replica);
    if found == expected { Ok(()) } else { Err(StorageError::OtherReplica { found, expected }) }
}

impl Identity {
    /// Reads the identity from the disk; a new disk becomes that of `replica`, with a fresh incarnation.
    pub(crate) async fn open(
        disk: Disk,
        replica: ReplicaId,
        entropy: &dyn Entropy,
    ) -> Result<Self, IdentityError> {
        let stored = if let Some(stored) = disk.record::<pb::Identity>(IDENTITY)? {
            stored
        } else {
            let incarnation = draw_incarnation(entropy)?;
            let new = pb::Identity { replica: replica.0, incarnation, group: Bytes::new() };
            disk.write(vec![put_record(IDENTITY, &new)])?;
            disk.sync().await?;
            new
        };
        check_owner(&stored, replica).map_err(|other| disk.fail(other))?;
        let group = match &stored.group[..] {
            [] => None,
            bytes => {
                Some(GroupId::read(bytes).ok_or_else(|| disk.malformed("the group's id is not 16 bytes"))?)
            }
        };
        Ok(Self { disk, replica, incarnation: stored.incarnation, group: Arc::new(RwLock::new(group)) })
    }

    /// The group, once the replica belongs to one.
    pub(crate) fn group(&self) -> Option<GroupId> {
        *read(&self.group)
    }

    /// Records the group durably, unless the replica belongs to one already. Returns whether it now belongs
    /// to `group`.
    pub(crate) async fn adopt(&self, group: GroupId) -> io::Result<bool> {
        if let Some(mine) = self.group() {
            return Ok(mine == group);
        }
        self.disk
            .write(vec![put_record(IDENTITY, &pb::Identity { group: group.bytes(), ..self.stored() })])?;
        self.disk.sync().await?;
        let mut mine = write(&self.group);
        Ok(*mine.get_or_insert(group) == group)
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The record on the disk, which is also sent to other replicas.
    pub(crate) fn stored(&self) -> pb::Identity {
        let group = self.group().map(GroupId::bytes).unwrap_or_default();
        pb::Identity { replica: self.replica.0, incarnation: self.incarnation, group }
    }
}
