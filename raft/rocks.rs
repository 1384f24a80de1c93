//! The database of a real replica: RocksDB in a directory of its own.
//!
//! ```text
//! DIR/lock      held while the replica runs
//! DIR/format    the version of everything below; written last when the directory is made
//! DIR/floor     an index that the log has reached, so that a log without its end is noticed
//! DIR/db/       RocksDB, one column family for each [`Family`]
//! ```
//!
//! Owns durability on real disks: a write goes to RocksDB's write-ahead log, and [`Database::sync`] makes all of it
//! durable with one fdatasync. Refuses to touch a directory that it does not understand.

mod directory;
mod open;

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rocksdb::{ColumnFamily, DB, Direction, IteratorMode, ReadOptions, WriteBatch};

use crate::database::{Database, Family, Write};
use crate::error::StorageError;
use crate::replicated::Pending;

/// The format that this version reads and writes. Format 1 was that of a single replica, and never released.
pub const FORMAT_VERSION: u64 = 2;

pub(crate) const FAMILIES: [Family; 3] = [Family::Log, Family::State, Family::Snapshot];

/// The open files. Dropping it closes them.
pub(crate) struct RocksDisk {
    path: PathBuf,
    db: Arc<DB>,
    /// Held while the floor is written: it goes through a file of one name.
    floor: Mutex<()>,
    /// Released by the operating system when the process ends, however it ends.
    _lock: Option<File>,
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
        self.db.cf_handle(name).ok_or_else(missing)
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
        self.db.write(writes).map_err(self.error("write to"))
    }

    fn sync(&self) -> Pending<'_, Result<(), StorageError>> {
        let db = Arc::clone(&self.db);
        let error = self.error("sync");
        Box::pin(async move {
            let synced = tokio::task::spawn_blocking(move || db.flush_wal(true)).await;
            synced.map_err(StorageError::interrupted)?.map_err(error)
        })
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let found = self.db.get_pinned_cf(self.family(family)?, key).map_err(self.error("read"))?;
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
        for entry in self.db.iterator_cf_opt(self.family(family)?, options, from) {
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
        let mut entries = self.db.iterator_cf(self.family(family)?, IteratorMode::End);
        let last = entries.next().transpose().map_err(self.error("read"))?;
        Ok(last.map(|(key, value)| (key.into_vec(), Bytes::from(value))))
    }

    fn set_floor(&self, index: u64) -> Result<(), StorageError> {
        // There is nothing behind the lock that a panic could spoil.
        let _alone = self.floor.lock().unwrap_or_else(PoisonError::into_inner);
        directory::write_floor(&self.path, index)
    }

    fn blocks(&self) -> bool {
        true
    }
}
