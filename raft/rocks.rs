//! The database of a real replica: RocksDB in a directory of its own.
//!
//! ```text
//! DIR/lock      held while the replica runs
//! DIR/format    the version of everything below; written last when the directory is made
//! DIR/synced    how far RocksDB's log is known to be on the disk, so that a log without its end is noticed
//! DIR/db/       RocksDB, one column family for each [`Family`]
//! DIR/trial/    only while a torn log is opened: the log as it is without its torn end
//! ```
//!
//! Owns durability on real disks: a write goes to RocksDB's write-ahead log, and [`Database::sync`] makes all of it
//! durable with one fdatasync. Refuses to touch a directory that it does not understand.

mod directory;
mod open;
mod synced;
mod tear;
mod wal;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use rocksdb::{ColumnFamily, DB, Direction, IteratorMode, ReadOptions, WriteBatch};

use crate::database::{Database, Family, Write};
use crate::error::StorageError;
use crate::replicated::Pending;
use directory::Lock;
use synced::{Position, Synced};

/// The format that this version reads and writes. None before it was ever released.
pub const FORMAT_VERSION: u64 = 3;

pub(crate) const FAMILIES: [Family; 3] = [Family::Log, Family::State, Family::Snapshot];

/// The open files. Dropping it closes them.
pub(crate) struct RocksDisk {
    path: PathBuf,
    files: Arc<Files>,
    /// Held until the files are closed; `None` while somebody else holds it for them.
    _lock: Option<Lock>,
}

struct Files {
    db: DB,
    /// Held to read by who writes to the log, and to write by who looks where it ends: in between two records.
    writing: RwLock<()>,
    /// `None` if they are open to be read only.
    synced: Option<Mutex<Synced>>,
}

impl Files {
    fn new(db: DB, synced: Option<Synced>) -> Arc<Self> {
        Arc::new(Self { db, writing: RwLock::default(), synced: synced.map(Mutex::new) })
    }

    /// Makes what is in the log durable, and notes how far that is. Blocks.
    fn sync(&self) -> Result<(), StorageError> {
        let path = self.db.path();
        let end = {
            // There is nothing behind the lock that a panic could spoil.
            let _between = self.writing.write().unwrap_or_else(PoisonError::into_inner);
            Position::end(path).map_err(StorageError::io("look at the log in", path))?
        };
        self.db.flush_wal(true).map_err(StorageError::database("sync", path))?;
        match &self.synced {
            // It holds what was written last, or what was there before.
            Some(synced) => synced.lock().unwrap_or_else(PoisonError::into_inner).note(end),
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
        let _writing = self.files.writing.read().unwrap_or_else(PoisonError::into_inner);
        self.files.db.write(writes).map_err(self.error("write to"))
    }

    fn sync(&self) -> Pending<'_, Result<(), StorageError>> {
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
