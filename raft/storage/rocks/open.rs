//! Opens a ledger's directory: all of it is read and checked through a read-only handle first, and only
//! sound files are opened for writing.

use std::path::Path;

use prost::Message;
use rocksdb::{DB, DBCompressionType, DBRecoveryMode, IteratorMode, LogLevel, Options};
use smc_proto::raft::v1 as pb;
use smc_types::ids::ReplicaId;
use tracing::warn;

use super::directory::{Directory, Found, look};
use super::synced::{self, Position, Synced};
use super::torn_tail::TornTail;
use super::{FAMILIES, Files, RocksDisk, name};
use crate::storage::database::{Database, Family};
use crate::storage::disk::{PURGED, SNAPSHOT};
use crate::storage::error::StorageError;
use crate::storage::identity::{IDENTITY, check_owner};
use crate::types::{Entry, LogId};
use crate::wire::{self, Malformed, Wire};

impl RocksDisk {
    /// Whether there is a ledger in the directory `path`. Changes nothing.
    pub(crate) fn exists(path: &Path) -> Result<bool, StorageError> {
        Ok(path.try_exists().map_err(StorageError::io("look for", path))? && look(path)? == Found::Ledger)
    }

    /// Opens the ledger in the directory `path`, or makes an empty one in an empty or missing directory.
    /// Fails if a replica is given and the ledger is another's. Blocks while it reads. Leaves files
    /// unchanged that it cannot use.
    pub(crate) fn open(path: &Path, replica: Option<ReplicaId>) -> Result<Self, StorageError> {
        let directory = Directory::take(path)?;
        let database = directory.database();
        let made = directory.found == Found::Ledger;
        if made || is_made(&database, path)? {
            let (disk, torn_tail) = Self::read(&directory)?;
            if let Some(expected) = replica {
                check_identity(&disk, expected)?;
            }
            if !made && disk.last(Family::Log)?.is_some() {
                return Err(StorageError::corrupt(path, "it has entries but no format file"));
            }
            drop(disk);
            if let Some(torn_tail) = torn_tail {
                let bytes = torn_tail.cut()?;
                warn!(path = %path.display(), bytes, "cut the torn tail off the log: records that were not yet durable");
            }
        }
        directory.restrict()?;
        let mut options = options();
        options.create_if_missing(!made);
        options.create_missing_column_families(!made);
        let db = DB::open_cf_with_opts(&options, &database, families())
            .map_err(StorageError::database("open", path))?;
        db.flush_wal(true).map_err(StorageError::database("sync", path))?;
        let synced = Synced::begin(path, Position::end(&database)?)?;
        if !made {
            directory.declare()?;
        }
        let Directory { path, lock, .. } = directory;
        Ok(Self { path, files: Files::new(db, Some(synced)), _lock: Some(lock) })
    }

    /// Opens the ledger that is in the directory `path` read-only.
    pub(crate) fn examine(path: &Path) -> Result<Self, StorageError> {
        let directory = Directory::take(path)?;
        let (disk, _) = Self::read(&directory)?;
        Ok(Self { _lock: Some(directory.lock), ..disk })
    }

    /// Reads and checks the ledger without the torn tail of its log, which is returned beside it.
    fn read(directory: &Directory) -> Result<(Self, Option<TornTail>), StorageError> {
        let Directory { path, found, .. } = directory;
        let database = directory.database();
        let synced = synced::read(path)?;
        if *found == Found::Ledger && synced.is_none() {
            return Err(StorageError::corrupt(path, "it has no note of how far its log was synced"));
        }
        let torn_tail = TornTail::find(path, &database, synced.unwrap_or_default())?;
        let mut options = options();
        if let Some(torn_tail) = &torn_tail {
            options.set_wal_dir(torn_tail.scratch());
        }
        let db = DB::open_cf_with_opts_for_read_only(&options, &database, families(), false)
            .map_err(StorageError::database("read", path))?;
        let disk = Self { path: path.clone(), files: Files::new(db, None), _lock: None };
        check(&disk)?;
        Ok((disk, torn_tail))
    }
}

/// Whether there is a database that could hold entries: an interrupted creation leaves one without its
/// column families, or none.
fn is_made(database: &Path, path: &Path) -> Result<bool, StorageError> {
    let current = database.join("CURRENT");
    if !current.try_exists().map_err(StorageError::io("look for", &current))? {
        return Ok(false);
    }
    let found = DB::list_cf(&options(), database)
        .map_err(StorageError::database("list the column families of", path))?;
    Ok(FAMILIES.iter().all(|&family| found.iter().any(|found| found == name(family))))
}

/// The column families with their options, which are not inherited from the database.
fn families() -> [(&'static str, Options); 3] {
    FAMILIES.map(|family| (name(family), options()))
}

fn options() -> Options {
    let mut options = Options::default();
    // A torn tail was cut off before; any other unreadable record is an error. The default mode would stop
    // at damage and silently drop what follows.
    options.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
    options.set_paranoid_checks(true);
    options.set_track_and_verify_wals_in_manifest(true);
    // The state is in memory and the files are read once, so small buffers suffice. A buffer holds what was
    // written to the log since it was last full: it is most of what RocksDB takes in an idle replica.
    options.set_write_buffer_size(4 * 1024 * 1024);
    options.set_max_total_wal_size(32 * 1024 * 1024);
    options.set_max_open_files(64);
    // Keys and certificates hardly compress, and tests search the files for what must not be in them.
    options.set_compression_type(DBCompressionType::None);
    // RocksDB's own diagnostics, bounded.
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1024 * 1024);
    options.set_stats_dump_period_sec(0);
    options
}

/// Checks that the files are those of this replica, or of none yet.
fn check_identity(disk: &RocksDisk, expected: ReplicaId) -> Result<(), StorageError> {
    let identity = disk.get(Family::State, IDENTITY.as_bytes())?.map(pb::Identity::decode).transpose();
    let unreadable =
        |error| StorageError::corrupt(&disk.path, format!("the {IDENTITY} cannot be read: {error}"));
    identity.map_err(unreadable)?.map_or(Ok(()), |identity| check_owner(&identity, expected))
}

/// Checks that every log entry after the last snapshot is there and can be read. (The snapshot itself is
/// checked against its hash when it is read.)
fn check(disk: &RocksDisk) -> Result<(), StorageError> {
    let path = disk.path.as_path();
    let malformed =
        |what: &'static str| move |Malformed(how)| StorageError::corrupt(path, format!("{what}: {how}"));
    let undecodable = |what: String| {
        move |error: prost::DecodeError| {
            StorageError::corrupt(path, format!("{what} cannot be read: {error}"))
        }
    };
    let purged = disk.get(Family::State, PURGED.as_bytes())?.map(pb::LogId::decode).transpose();
    let purged =
        wire::read::<LogId>(purged.map_err(undecodable(PURGED.to_owned()))?).map_err(malformed(PURGED))?;
    let snapshot = disk.get(Family::State, SNAPSHOT.as_bytes())?.map(pb::SnapshotHeader::decode).transpose();
    let snapshot = snapshot.map_err(undecodable(SNAPSHOT.to_owned()))?;
    let included = wire::read(snapshot.and_then(|header| header.last)).map_err(malformed(SNAPSHOT))?;
    if purged > included {
        return Err(StorageError::corrupt(path, "its log begins after the end of its snapshot"));
    }
    let entries = disk.files.db.iterator_cf(disk.family(Family::Log)?, IteratorMode::Start);
    for (next, entry) in (purged.map_or(0, |id| id.index + 1)..).zip(entries) {
        let (key, value) = entry.map_err(StorageError::database("read", path))?;
        let key = (*key).try_into().map_err(|_| StorageError::corrupt(path, "a log key is not 8 bytes"))?;
        let index = u64::from_be_bytes(key);
        if index != next {
            return Err(StorageError::corrupt(path, format!("log entry {next} is missing, {index} follows")));
        }
        let entry = pb::Entry::decode(&*value).map_err(undecodable(format!("log entry {index}")))?;
        let entry = Entry::from_wire(entry).map_err(malformed("the log"))?;
        if entry.log_id.index != index {
            return Err(StorageError::corrupt(
                path,
                format!("log entry {index} says it is {}", entry.log_id.index),
            ));
        }
    }
    Ok(())
}
