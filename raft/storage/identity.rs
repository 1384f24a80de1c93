//! The identity of a replica: its id, the incarnation of its disk, and its group.
//!
//! Owns the record of it on the disk, and the refusal of a disk with another replica's record.

use std::io;
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use smc_host::env::{Entropy, NoEntropy};
use smc_host::sync::{read, write};
use smc_proto::raft::v1 as pb;
use smc_types::ids::ReplicaId;
use thiserror::Error;
use tokio::sync::{Notify, watch};

use crate::storage::disk::{Disk, put_record};
use crate::storage::error::StorageError;
use crate::storage::group_id::GroupId;

pub(crate) const IDENTITY: &str = "identity";

/// The identity of this replica. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Identity {
    disk: Disk,
    pub(crate) replica: ReplicaId,
    pub(crate) incarnation: u64,
    group: Arc<RwLock<Option<GroupId>>>,
    doubts: Arc<Doubts>,
}

/// What other replicas say against this one going on. All of them are authenticated.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// A group that a person made in place of this replica's.
    pub(crate) replaced_by: watch::Sender<Option<GroupId>>,
    /// A message was for this replica with another disk. It may be late, or this disk is no member any more.
    pub(crate) other_disk: Notify,
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
        Ok(Self {
            disk,
            replica,
            incarnation: stored.incarnation,
            group: Arc::new(RwLock::new(group)),
            doubts: Arc::default(),
        })
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

    /// Notes that a replica of `other` answered, or asked.
    pub(crate) fn met(&self, other: GroupId) {
        if self.group().is_some_and(|mine| other.replaces(mine)) {
            self.doubts.replaced_by.send_if_modified(|known| {
                let news = known.is_none_or(|known| other.replaces(known));
                *known = if news { Some(other) } else { *known };
                news
            });
        }
    }

    pub(crate) fn doubts(&self) -> &Doubts {
        &self.doubts
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
