//! A new group where the old one cannot work any more: from a backup, or from what one replica has left.
//!
//! Owns both, for a replica that does not run. The new group has that replica as its only member; the
//! others join it with empty disks. It gets a new group id: the two groups refuse each other's messages, and
//! remaining members of the old group end when they meet the new one ([`GroupId`]).
//!
//! Does not touch a disk that holds something else, and changes one in a single atomic step.

pub(crate) mod backup;
pub(crate) mod disk_summary;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use smc_authority::ledger::Ledger;
use smc_host::env::{Env, NoEntropy};
use smc_proto::raft::v1 as pb;
use smc_types::ids::ReplicaId;
use thiserror::Error;

use crate::recovery::backup::Backup;
use crate::state::machine::{ImageRef, StateMachine};
use crate::state::sessions::Sessions;
use crate::state::shared::SharedLedger;
use crate::state::waiters::Waiters;
use crate::storage::database::{Family, Write, index_key};
use crate::storage::disk::{COMMITTED, Disk, PURGED, VOTE, put_record};
use crate::storage::error::StorageError;
use crate::storage::group_id::GroupId;
use crate::storage::identity::{IDENTITY, draw_incarnation};
use crate::storage::log::LogStore;
use crate::storage::snapshots::Snapshots;
use crate::storage::{RocksDisk, Storage};
use crate::types::{LeaderId, LogId, Membership, Replica, StoredMembership, Vote};
use crate::wire::Wire;

/// Why there is no new group. The disk is unchanged.
#[derive(Debug, Error)]
pub enum RecoveryError {
    /// The storage cannot be used.
    #[error(transparent)]
    Storage(Arc<StorageError>),
    /// The disk belongs to a replica.
    #[error("the data directory is that of replica {replica}{group}: a backup is restored into an empty one")]
    InUse {
        /// Which replica.
        replica: ReplicaId,
        /// ` of group …`, if it belongs to a group.
        group: String,
    },
    /// The disk holds no ledger.
    #[error("the data directory has no ledger: it never belonged to a group")]
    Nothing,
    /// The ids of the new group could not be drawn.
    #[error("cannot draw the id of the new group")]
    NoEntropy(#[from] NoEntropy),
    /// The new membership contradicts itself. A defect of this program.
    #[error("the membership of the new group is invalid: {0}")]
    Membership(String),
}

/// The content of a replica's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Which replica.
    pub replica: ReplicaId,
    /// The group that it belonged to.
    pub group: GroupId,
    /// All members, as this replica last knew them.
    pub members: BTreeMap<ReplicaId, Replica>,
    /// Those that vote.
    pub voters: BTreeSet<ReplicaId>,
    /// The term of the last entry. Of several replicas, the one with the highest term has the most complete
    /// log, and of those with the same term the one with the highest index.
    pub term: u64,
    /// The index of the last entry.
    pub last: u64,
    /// The ledger after the last entry, committed or not. It includes everything acknowledged if this
    /// replica has the most complete log of a majority.
    pub ledger: Ledger,
}

/// A disk that is open while its replica does not run.
struct InspectedDisk {
    disk: Disk,
    inspection: Inspection,
    identity: pb::Identity,
    sessions: Sessions,
    vote: u64,
}

/// The first state of a new group.
struct Beginning<'a> {
    identity: pb::Identity,
    address: String,
    term: u64,
    index: u64,
    state: ImageRef<'a>,
}

/// Turns an empty disk into that of `replica` at `address`, the only member of a new group with the ledger
/// of `backup`.
pub async fn restore(
    backup: &Backup,
    storage: Storage,
    replica: ReplicaId,
    address: String,
    env: &Env,
) -> Result<GroupId, RecoveryError> {
    if exists(&storage)? {
        let disk = storage.clone().examine().await.map_err(RecoveryError::Storage)?;
        let failed = |error| failure(&disk, &error);
        if let Some(identity) = disk.record::<pb::Identity>(IDENTITY).map_err(failed)? {
            let group = GroupId::read(&identity.group).map(|group| format!(" of group {group}"));
            let group = group.unwrap_or_default();
            return Err(RecoveryError::InUse { replica: ReplicaId(identity.replica), group });
        }
    }
    // Before the storage is opened, which makes it if it is missing.
    let group = GroupId::replacing(backup.group, env.clock.now(), &*env.entropy)?;
    let incarnation = draw_incarnation(&*env.entropy)?;
    let disk = storage.open(None).await.map_err(RecoveryError::Storage)?;
    let identity = pb::Identity { replica: replica.0, incarnation, group: group.bytes() };
    let state = ImageRef { sessions: &Sessions::default(), ledger: &backup.ledger };
    begin(&disk, Beginning { identity, address, term: 1, index: 1, state }).await?;
    Ok(group)
}

/// Reads a disk, and changes nothing on it.
pub async fn inspect(storage: Storage) -> Result<Inspection, RecoveryError> {
    let disk = existing(storage)?.examine().await.map_err(RecoveryError::Storage)?;
    InspectedDisk::of(disk).map(|inspected| inspected.inspection)
}

/// Makes a replica the only member of a new group, with everything that is on its disk. Its address becomes
/// `address`, or stays.
pub async fn recover(
    storage: Storage,
    address: Option<String>,
    env: &Env,
) -> Result<(Inspection, GroupId), RecoveryError> {
    let disk = existing(storage)?.open(None).await.map_err(RecoveryError::Storage)?;
    let InspectedDisk { disk, inspection, identity, sessions, vote } = InspectedDisk::of(disk)?;
    let group = GroupId::replacing(Some(inspection.group), env.clock.now(), &*env.entropy)?;
    let identity = pb::Identity { group: group.bytes(), ..identity };
    let before = || inspection.members.get(&inspection.replica).map(|member| member.address.clone());
    let address = address.or_else(before).unwrap_or_default();
    // Above every term and index on this disk, so that its votes in the old group do not count in the new
    // one.
    let (term, index) = (inspection.term.max(vote) + 1, inspection.last + 1);
    let state = ImageRef { sessions: &sessions, ledger: &inspection.ledger };
    begin(&disk, Beginning { identity, address, term, index, state }).await?;
    Ok((inspection, group))
}

/// The storage, if it exists: it must not be made here.
fn existing(storage: Storage) -> Result<Storage, RecoveryError> {
    if exists(&storage)? { Ok(storage) } else { Err(RecoveryError::Nothing) }
}

fn exists(storage: &Storage) -> Result<bool, RecoveryError> {
    let Storage::Directory(path) = storage else { return Ok(true) };
    RocksDisk::exists(path).map_err(|error| RecoveryError::Storage(Arc::new(error)))
}

impl InspectedDisk {
    fn of(disk: Disk) -> Result<Self, RecoveryError> {
        let failed = |error| failure(&disk, &error);
        let identity =
            disk.record::<pb::Identity>(IDENTITY).map_err(failed)?.ok_or(RecoveryError::Nothing)?;
        let group = GroupId::read(&identity.group).ok_or(RecoveryError::Nothing)?;
        let vote = disk.vote().map_err(failed)?.map_or(0, |vote| vote.leader_id.term);
        let shared = SharedLedger::default();
        let mut machine =
            StateMachine::open(disk.clone(), shared.clone(), Waiters::default()).map_err(failed)?;
        let (log, _) = LogStore::new(disk.clone());
        loop {
            let next = machine.applied().map_or(0, |last| last.index + 1);
            let entries = log.next_entries(next).map_err(failed)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                machine.apply_entry(entry).map_err(failed)?;
            }
        }
        let last = machine.applied().ok_or(RecoveryError::Nothing)?;
        let (sessions, membership) = machine.into_parts();
        let inspection = Inspection {
            replica: ReplicaId(identity.replica),
            group,
            voters: membership.voter_ids().collect(),
            members: membership.nodes().map(|(id, member)| (*id, member.clone())).collect(),
            term: last.leader_id.term,
            last: last.index,
            ledger: shared.read(Ledger::clone),
        };
        Ok(Self { disk, inspection, identity, sessions, vote })
    }
}

/// Replaces everything on the disk by the new group's first state, in one atomic step.
async fn begin(disk: &Disk, beginning: Beginning<'_>) -> Result<(), RecoveryError> {
    let Beginning { identity, address, term, index, state } = beginning;
    let me = ReplicaId(identity.replica);
    let last = LogId { leader_id: LeaderId { term, node_id: me }, index };
    let members = BTreeMap::from([(me, Replica { address, incarnation: identity.incarnation })]);
    let membership = Membership::new(vec![BTreeSet::from([me])], members)
        .map_err(|error| RecoveryError::Membership(error.to_string()))?;
    let failed = |error| failure(disk, &error);
    let snapshots = Snapshots::open(disk.clone()).map_err(failed)?;
    snapshots.sweep().map_err(failed)?;
    let mut header = state.write(snapshots.write()).map_err(failed)?;
    header.last = Some(last.to_wire());
    header.membership = Some(StoredMembership::new(Some(last), membership).to_wire());
    let mut batch = snapshots.replacing(&header).map_err(failed)?;
    let vote = Vote { leader_id: last.leader_id, committed: false };
    // A snapshot transfer from the old group is not resumed.
    batch.extend(snapshots.delete_incoming().map_err(failed)?);
    batch.extend([
        put_record(IDENTITY, &identity),
        put_record(VOTE, &vote.to_wire()),
        put_record(COMMITTED, &last.to_wire()),
        put_record(PURGED, &last.to_wire()),
        Write::DeleteRange(Family::Log, index_key(0)..index_key(u64::MAX)),
    ]);
    disk.write(batch).map_err(failed)?;
    disk.sync().await.map_err(failed)?;
    Ok(())
}

/// The cause of a failure, which the disk has recorded.
fn failure(disk: &Disk, error: &io::Error) -> RecoveryError {
    let cause = disk.failure().borrow().clone();
    RecoveryError::Storage(cause.unwrap_or_else(|| Arc::new(StorageError::damaged(error.to_string()))))
}
