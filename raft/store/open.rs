//! Opening: everything is read and checked through a read-only handle first, and only a sound ledger is
//! opened for writing.

use std::path::Path;

use rocksdb::{DB, DBCompressionType, DBRecoveryMode, IteratorMode, LogLevel, Options};
use smc_mesh::ledger::{Command, Ledger, StateHash};

use super::directory::{Directory, Found};
use super::{HEADER, LOG, LedgerStore, SNAPSHOT, STATE, SnapshotHeader, family};
use crate::error::StorageError;

/// What the files hold.
struct Contents {
    ledger: Ledger,
    /// The index that the next entry gets. The first entry of all is 1.
    next_index: u64,
    log_bytes: u64,
    snapshot_bytes: u64,
}

impl Contents {
    fn empty() -> Self {
        Self { ledger: Ledger::default(), next_index: 1, log_bytes: 0, snapshot_bytes: 0 }
    }
}

impl LedgerStore {
    /// Opens the ledger in `path`, or makes an empty one in an empty or missing directory, and gives the
    /// state after the last durable entry. `snapshot_after`: see [`super::SNAPSHOT_AFTER`].
    pub(crate) fn open(path: &Path, snapshot_after: u64) -> Result<(Self, Ledger), StorageError> {
        let directory = Directory::take(path)?;
        let database = directory.database();
        let made = directory.found == Found::Ledger;
        let contents = if made || is_made(&database, path)? {
            let db = DB::open_cf_with_opts_for_read_only(&options(), &database, families(), false)
                .map_err(StorageError::database("read", path))?;
            read(&db, path)?
        } else {
            Contents::empty()
        };
        if !made && contents.next_index != 1 {
            return Err(StorageError::corrupt(path, "it has entries but no format file"));
        }
        directory.restrict()?;
        let mut options = options();
        options.create_if_missing(!made);
        options.create_missing_column_families(!made);
        let db = DB::open_cf_with_opts(&options, &database, families())
            .map_err(StorageError::database("open", path))?;
        if !made {
            directory.declare()?;
        }
        let Contents { ledger, next_index, log_bytes, snapshot_bytes } = contents;
        let Directory { path, lock, .. } = directory;
        let store = Self { path, db, next_index, log_bytes, snapshot_bytes, snapshot_after, _lock: lock };
        Ok((store, ledger))
    }
}

/// Whether a database is there that could hold entries: a creation that was cut short leaves one without
/// its column families, or none.
fn is_made(database: &Path, path: &Path) -> Result<bool, StorageError> {
    let current = database.join("CURRENT");
    if !current.try_exists().map_err(StorageError::io("look for", &current))? {
        return Ok(false);
    }
    let families = DB::list_cf(&options(), database)
        .map_err(StorageError::database("list the column families of", path))?;
    Ok([LOG, STATE].iter().all(|&name| families.iter().any(|family| family == name)))
}

/// The column families, which do not take over the options of the database.
fn families() -> [(&'static str, Options); 2] {
    [(LOG, options()), (STATE, options())]
}

fn options() -> Options {
    let mut options = Options::default();
    // An entry torn by a crash was never acknowledged and is dropped; damage anywhere else is an error. The
    // default mode would stop at damage and silently lose what follows.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_paranoid_checks(true);
    // The ledger lives in memory and its files are read once: small buffers do.
    options.set_write_buffer_size(8 * 1024 * 1024);
    options.set_max_total_wal_size(32 * 1024 * 1024);
    options.set_max_open_files(64);
    // Keys and certificates hardly compress, and a search through the files for what must not be in them
    // sees everything.
    options.set_compression_type(DBCompressionType::None);
    // RocksDB's own diagnostics, bounded.
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1024 * 1024);
    options.set_stats_dump_period_sec(0);
    options
}

/// Reads the snapshot, checks it, and applies the log that follows it.
fn read(db: &DB, path: &Path) -> Result<Contents, StorageError> {
    let mut contents = snapshot(db, path)?;
    for entry in db.iterator_cf(family(db, path, LOG)?, IteratorMode::Start) {
        let (key, value) = entry.map_err(StorageError::database("read", path))?;
        let index = u64::from_be_bytes(
            (*key).try_into().map_err(|_| StorageError::corrupt(path, "a log key has not 8 octets"))?,
        );
        if index != contents.next_index {
            let what = format!("log entry {} is missing, {index} follows", contents.next_index);
            return Err(StorageError::corrupt(path, what));
        }
        let command: Command = serde_json::from_slice(&value)
            .map_err(|source| StorageError::undecodable(path, format!("log entry {index}"), source))?;
        // A rejection is part of the history: it was, and is, rejected everywhere.
        let _ = contents.ledger.apply(&command);
        contents.next_index += 1;
        contents.log_bytes += value.len() as u64;
    }
    Ok(contents)
}

fn snapshot(db: &DB, path: &Path) -> Result<Contents, StorageError> {
    let state = family(db, path, STATE)?;
    let get = |key| db.get_pinned_cf(state, key).map_err(StorageError::database("read", path));
    let (header, bytes) = match (get(HEADER)?, get(SNAPSHOT)?) {
        (Some(header), Some(bytes)) => (header, bytes),
        (None, None) => return Ok(Contents::empty()),
        _ => return Err(StorageError::corrupt(path, "it has half a snapshot")),
    };
    let header: SnapshotHeader = serde_json::from_slice(&header)
        .map_err(|source| StorageError::undecodable(path, "the snapshot's header".to_owned(), source))?;
    if StateHash::of(&bytes).to_string() != header.hash {
        return Err(StorageError::corrupt(path, "the snapshot does not have the hash it was written with"));
    }
    let ledger = serde_json::from_slice(&bytes)
        .map_err(|source| StorageError::undecodable(path, "the snapshot".to_owned(), source))?;
    Ok(Contents { ledger, next_index: header.index + 1, log_bytes: 0, snapshot_bytes: bytes.len() as u64 })
}
