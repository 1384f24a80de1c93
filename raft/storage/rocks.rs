//! The database of a real replica: RocksDB in a directory of its own.
//!
//! ```text
//! DIR/lock      locked while the replica runs
//! DIR/format    the version of everything below; written last when the directory is made
//! DIR/synced    how far RocksDB's log is known to be synced, so that the loss of synced records shows
//! DIR/db/       RocksDB, one column family for each [`Family`]
//! DIR/scratch/  only while a torn log is opened: a copy of the log without its torn end
//! ```
//!
//! Owns durability on real disks: a write goes to RocksDB's write-ahead log, and [`Database::sync`] makes
//! all of it durable with one fdatasync. Does not touch a directory of anything else, of another format, or
//! that is damaged.

mod directory;
mod layout;
mod open;
mod synced;
mod torn_tail;
mod wal;
#[cfg(any(test, fuzzing))]
pub(crate) use wal::fuzzing::log as fuzz_log;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use rocksdb::{ColumnFamily, DB, Direction, IteratorMode, ReadOptions, WriteBatch};
use smc_host::sync::{lock, read, write};

use crate::storage::database::{Database, Family, Write};
use crate::storage::error::StorageError;
use directory::Lock;
use synced::{Position, Synced};

/// The format that this version reads and writes. No earlier one was released.
pub const FORMAT_VERSION: u64 = 3;

pub(crate) const FAMILIES: [Family; 3] = [Family::Log, Family::State, Family::Snapshot];

/// An open ledger. Dropping it closes its files.
pub(crate) struct RocksDisk {
    path: PathBuf,
    files: Arc<Files>,
    /// Held until the files are closed; `None` while the caller holds it.
    _lock: Option<Lock>,
}

struct Files {
    db: DB,
    /// Locked for reading while a record is written to the log, and for writing while its end is
    /// determined, which is then between two records.
    writing: RwLock<()>,
    /// `None` if the files are open read-only.
    synced: Option<Mutex<Synced>>,
}

impl Files {
    fn new(db: DB, synced: Option<Synced>) -> Arc<Self> {
        Arc::new(Self { db, writing: RwLock::default(), synced: synced.map(Mutex::new) })
    }

    /// Makes the present log durable, and notes its end. Blocks.
    fn sync(&self) -> Result<(), StorageError> {
        let path = self.db.path();
        let end = {
            // The lock guards no data that a panic could leave half done.
            let _between = write(&self.writing);
            Position::end(path)?
        };
        self.db.flush_wal(true).map_err(StorageError::database("sync", path))?;
        match &self.synced {
            // After a panic it holds the last position, or the one before.
            Some(synced) => lock(synced).note(end),
            None => Ok(()),
        }
    }
}

fn name(family: Family) -> &'static str {
    match family {
        Family::Log => "log",
        Family::State => "state",
        Family::Snapshot => "snapshot",
    }
}

impl RocksDisk {
    fn family(&self, family: Family) -> Result<&ColumnFamily, StorageError> {
        let name = name(family);
        let missing = || StorageError::corrupt(&self.path, format!("it has no column family {name}"));
        self.files.db.cf_handle(name).ok_or_else(missing)
    }

    fn error(&self, action: &'static str) -> impl FnOnce(rocksdb::Error) -> StorageError + use<> {
        StorageError::database(action, &self.path)
    }
}

impl Database for RocksDisk {
    fn write(&self, batch: Vec<Write>) -> Result<(), StorageError> {
        let mut writes = WriteBatch::default();
        for write in batch {
            match write {
                Write::Put(family, key, value) => writes.put_cf(self.family(family)?, key, value),
                Write::Delete(family, key) => writes.delete_cf(self.family(family)?, key),
                Write::DeleteRange(family, Range { start, end }) if start < end => {
                    writes.delete_range_cf(self.family(family)?, start, end);
                }
                Write::DeleteRange(..) => {}
            }
        }
        let _writing = read(&self.files.writing);
        self.files.db.write(writes).map_err(self.error("write to"))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        let files = Arc::clone(&self.files);
        Box::pin(async move {
            let synced = tokio::task::spawn_blocking(move || files.sync()).await;
            synced.map_err(StorageError::interrupted)?
        })
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let found = self.files.db.get_pinned_cf(self.family(family)?, key).map_err(self.error("read"))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(
        &self,
        family: Family,
        range: Range<Vec<u8>>,
        max_bytes: usize,
    ) -> Result<Vec<(Vec<u8>, Bytes)>, StorageError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(range.end);
        let from = IteratorMode::From(&range.start, Direction::Forward);
        let mut bytes = 0;
        let mut found = Vec::new();
        for entry in self.files.db.iterator_cf_opt(self.family(family)?, options, from) {
            let (key, value) = entry.map_err(self.error("read"))?;
            bytes += value.len();
            found.push((key.into_vec(), Bytes::from(value)));
            if bytes >= max_bytes {
                break;
            }
        }
        Ok(found)
    }

    fn last(&self, family: Family) -> Result<Option<(Vec<u8>, Bytes)>, StorageError> {
        let mut entries = self.files.db.iterator_cf(self.family(family)?, IteratorMode::End);
        let last = entries.next().transpose().map_err(self.error("read"))?;
        Ok(last.map(|(key, value)| (key.into_vec(), Bytes::from(value))))
    }

    fn blocks(&self) -> bool {
        true
    }
}
