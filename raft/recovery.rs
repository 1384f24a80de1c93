//! The way on when a group cannot help itself: from a backup, or from what one replica has left.
//!
//! Owns both, for a replica that does not run. Either makes a *new* group, whose only member the replica is, and which
//! the others join with empty disks. A new one, since whoever is left of the old group must not be able to go on
//! beside it: its members are refused, and refuse.
//!
//! Refuses to touch a disk that holds something else, and changes one in a single atomic step.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use smc_mesh::ledger::Ledger;
use smc_proto::raft::v1 as pb;
use thiserror::Error;

use crate::backup::Backup;
use crate::database::{Family, Write, index_key};
use crate::disk::{COMMITTED, Disk, PURGED, VOTE, put_fact};
use crate::error::StorageError;
use crate::identity::{GroupId, IDENTITY};
use crate::log::LogStore;
use crate::machine::{ImageRef, StateMachine};
use crate::rocks::RocksDisk;
use crate::sessions::Sessions;
use crate::shared::SharedLedger;
use crate::snapshots::Snapshots;
use crate::storage::Storage;
use crate::types::{LeaderId, LogId, Membership, Replica, ReplicaId, StoredMembership, Vote};
use crate::waiters::Waiters;
use crate::wire::Wire;

/// Why there is no new group. The disk is as it was.
#[derive(Debug, Error)]
pub enum RecoveryError {
    /// It cannot be used.
    #[error(transparent)]
    Storage(Arc<StorageError>),
    /// It belongs to somebody.
    #[error("the data directory is that of replica {replica}{group}: a backup is restored into an empty one")]
    InUse {
        /// Whose it is.
        replica: ReplicaId,
        /// ` of group …`, if it belongs to one.
        group: String,
    },
    /// There is nothing to go on from.
    #[error("the data directory has no ledger: it never belonged to a group")]
    Nothing,
    /// The new group contradicts itself. A defect of this program.
    #[error("the new group cannot be described: {0}")]
    Membership(String),
}

/// What is left on a replica's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remains {
    /// Which replica.
    pub replica: ReplicaId,
    /// The group that it belonged to.
    pub group: GroupId,
    /// Everybody in it, as the replica last heard.
    pub members: BTreeMap<ReplicaId, Replica>,
    /// The term of the last entry. Of several replicas, the one with the latest term has the most, and of those with
    /// the same the one with the latest entry.
    pub term: u64,
    /// The last entry.
    pub last: u64,
    /// The ledger after the last entry, whether or not that was committed: what was acknowledged is part of it if a
    /// majority had it and this is the replica that has the most.
    pub ledger: Ledger,
}

/// A disk that is opened without being run.
struct Survey {
    disk: Disk,
    remains: Remains,
    identity: pb::Identity,
    sessions: Sessions,
    vote: u64,
}

/// What a new group begins with.
struct Beginning<'a> {
    identity: pb::Identity,
    address: String,
    term: u64,
    index: u64,
    state: ImageRef<'a>,
}

/// Makes an empty disk that of the only member, `replica` at `address`, of a new group with the ledger of `backup`.
/// `draw` gives random numbers.
pub async fn restore(
    backup: &Backup,
    storage: Storage,
    replica: ReplicaId,
    address: String,
    draw: impl Fn() -> u64,
) -> Result<GroupId, RecoveryError> {
    if is_there(&storage)? {
        let disk = storage.clone().examine().await.map_err(RecoveryError::Storage)?;
        let failed = |error| failure(&disk, &error);
        if let Some(identity) = disk.fact::<pb::Identity>(IDENTITY).map_err(failed)? {
            let group = GroupId::read(&identity.group).map(|group| format!(" of group {group}"));
            let group = group.unwrap_or_default();
            return Err(RecoveryError::InUse { replica: ReplicaId(identity.replica), group });
        }
    }
    let disk = storage.open(None).await.map_err(RecoveryError::Storage)?;
    let group = GroupId::draw(&draw);
    let identity = pb::Identity { replica: replica.0, incarnation: draw().max(1), group: group.octets() };
    let state = ImageRef { sessions: &Sessions::default(), ledger: &backup.ledger };
    begin(&disk, Beginning { identity, address, term: 1, index: 1, state }).await?;
    Ok(group)
}

/// Looks at what is left on a disk, and changes nothing.
pub async fn survey(storage: Storage) -> Result<Remains, RecoveryError> {
    if !is_there(&storage)? {
        return Err(RecoveryError::Nothing);
    }
    let disk = storage.examine().await.map_err(RecoveryError::Storage)?;
    Survey::of(disk).map(|survey| survey.remains)
}

/// Makes a replica the only member of a new group, with everything that is left on its disk. It is at `address` from now
/// on, or where it was. `draw` gives random numbers.
pub async fn recover(
    storage: Storage,
    address: Option<String>,
    draw: impl Fn() -> u64,
) -> Result<(Remains, GroupId), RecoveryError> {
    if !is_there(&storage)? {
        return Err(RecoveryError::Nothing);
    }
    let disk = storage.open(None).await.map_err(RecoveryError::Storage)?;
    let Survey { disk, remains, identity, sessions, vote } = Survey::of(disk)?;
    let group = GroupId::draw(&draw);
    let identity = pb::Identity { group: group.octets(), ..identity };
    let before = || remains.members.get(&remains.replica).map(|member| member.address.clone());
    let address = address.or_else(before).unwrap_or_default();
    // Above everything that this disk has seen, so that what it promised in the old group binds nobody in the new one.
    let (term, index) = (remains.term.max(vote) + 1, remains.last + 1);
    let state = ImageRef { sessions: &sessions, ledger: &remains.ledger };
    begin(&disk, Beginning { identity, address, term, index, state }).await?;
    Ok((remains, group))
}

/// Whether there is a ledger: one that is looked for is not made.
fn is_there(storage: &Storage) -> Result<bool, RecoveryError> {
    let Storage::Directory(path) = storage else { return Ok(true) };
    RocksDisk::exists(path).map_err(|error| RecoveryError::Storage(Arc::new(error)))
}

impl Survey {
    fn of(disk: Disk) -> Result<Self, RecoveryError> {
        let failed = |error| failure(&disk, &error);
        let identity = disk.fact::<pb::Identity>(IDENTITY).map_err(failed)?.ok_or(RecoveryError::Nothing)?;
        let group = GroupId::read(&identity.group).ok_or(RecoveryError::Nothing)?;
        let vote = disk.vote().map_err(failed)?.map_or(0, |vote| vote.leader_id.term);
        let shared = SharedLedger::default();
        let mut machine =
            StateMachine::open(disk.clone(), shared.clone(), Waiters::default()).map_err(failed)?;
        let (log, _) = LogStore::new(disk.clone());
        loop {
            let next = machine.applied().map_or(0, |last| last.index + 1);
            let entries = log.piece(next).map_err(failed)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                machine.apply_entry(entry).map_err(failed)?;
            }
        }
        let last = machine.applied().ok_or(RecoveryError::Nothing)?;
        let (sessions, membership) = machine.into_parts();
        let remains = Remains {
            replica: ReplicaId(identity.replica),
            group,
            members: membership.nodes().map(|(id, member)| (*id, member.clone())).collect(),
            term: last.leader_id.term,
            last: last.index,
            ledger: shared.read(Ledger::clone),
        };
        Ok(Self { disk, remains, identity, sessions, vote })
    }
}

/// Puts the beginning in the place of everything that is there, all or nothing.
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
    // What was on its way from the old group will not be gone on with.
    batch.extend(snapshots.forget_incoming().map_err(failed)?);
    batch.extend([
        put_fact(IDENTITY, &identity),
        put_fact(VOTE, &vote.to_wire()),
        put_fact(COMMITTED, &last.to_wire()),
        put_fact(PURGED, &last.to_wire()),
        Write::DeleteRange(Family::Log, index_key(0)..index_key(u64::MAX)),
    ]);
    disk.write(batch).map_err(failed)?;
    disk.sync().await.map_err(failed)?;
    Ok(())
}

/// The cause of a failure, which the disk knows better.
fn failure(disk: &Disk, error: &io::Error) -> RecoveryError {
    let cause = disk.failure().borrow().clone();
    RecoveryError::Storage(cause.unwrap_or_else(|| Arc::new(StorageError::damaged(error.to_string()))))
}
