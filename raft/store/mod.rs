//! The files of one replica's ledger: a log and a snapshot in RocksDB.
//!
//! ```text
//! DIR/lock      held while the ledger is open
//! DIR/format    the version of everything below; written last when a ledger is made
//! DIR/db/       RocksDB: column family `log`   index (8 octets, big-endian) → Command as JSON
//!                                      `state` "header"   → SnapshotHeader as JSON
//!                                              "snapshot" → Ledger::canonical
//! ```
//!
//! Owns durability: when [`LedgerStore::append`] returns, the commands are on disk (WAL, fdatasync). Owns
//! the bound of the log: a snapshot replaces it once it has grown as long as the last snapshot, so that
//! opening reads at most about twice the state, and each byte is rewritten about once. Refuses to apply
//! commands except to rebuild the state at opening.

mod directory;
mod open;

use std::fs::File;
use std::path::PathBuf;

use rocksdb::{ColumnFamily, DB, WriteBatch, WriteOptions};
use serde::{Deserialize, Serialize};
use smc_mesh::ledger::StateHash;

use crate::error::StorageError;

/// The newest format that this version reads, and the one it writes.
pub const FORMAT_VERSION: u64 = 1;

pub(crate) const LOG: &str = "log";
pub(crate) const STATE: &str = "state";
const HEADER: &[u8] = b"header";
const SNAPSHOT: &[u8] = b"snapshot";

/// The least length of log, in bytes, that is worth a snapshot: what a small mesh writes in months.
pub(crate) const SNAPSHOT_AFTER: u64 = 1024 * 1024;

/// What goes with a snapshot, so that a damaged one is noticed.
#[derive(Debug, Serialize, Deserialize)]
struct SnapshotHeader {
    /// The last log index that the snapshot includes.
    index: u64,
    /// The hash of its bytes.
    hash: String,
}

/// The open files. One writer owns it.
pub(crate) struct LedgerStore {
    path: PathBuf,
    db: DB,
    next_index: u64,
    log_bytes: u64,
    snapshot_bytes: u64,
    snapshot_after: u64,
    /// Released by the operating system when the process ends, however it ends.
    _lock: File,
}

impl LedgerStore {
    /// Writes encoded commands to the log, all or none, and returns when they are durable.
    pub(crate) fn append<'a>(&mut self, entries: impl Iterator<Item = &'a [u8]>) -> Result<(), StorageError> {
        let mut batch = WriteBatch::default();
        let mut next = self.next_index;
        let mut bytes = 0;
        let log = self.family(LOG)?;
        for entry in entries {
            batch.put_cf(log, next.to_be_bytes(), entry);
            next += 1;
            bytes += entry.len() as u64;
        }
        self.commit(batch, "append to")?;
        self.next_index = next;
        self.log_bytes += bytes;
        Ok(())
    }

    /// Whether the log has grown long enough to be replaced by a snapshot.
    pub(crate) fn snapshot_due(&self) -> bool {
        self.log_bytes > self.snapshot_after.max(self.snapshot_bytes)
    }

    /// Replaces the log by this canonical form of the state after its last entry, in one durable step.
    pub(crate) fn snapshot(
        &mut self,
        canonical: Result<Vec<u8>, serde_json::Error>,
    ) -> Result<(), StorageError> {
        let unencodable = |source| StorageError::unencodable(&self.path, source);
        let canonical = canonical.map_err(unencodable)?;
        let header =
            SnapshotHeader { index: self.next_index - 1, hash: StateHash::of(&canonical).to_string() };
        let header = serde_json::to_vec(&header).map_err(unencodable)?;
        let mut batch = WriteBatch::default();
        let state = self.family(STATE)?;
        batch.put_cf(state, HEADER, header);
        batch.put_cf(state, SNAPSHOT, &canonical);
        batch.delete_range_cf(self.family(LOG)?, 0u64.to_be_bytes(), self.next_index.to_be_bytes());
        self.commit(batch, "write a snapshot to")?;
        self.log_bytes = 0;
        self.snapshot_bytes = canonical.len() as u64;
        Ok(())
    }

    /// Bytes of log, and of the last snapshot.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (u64, u64) {
        (self.log_bytes, self.snapshot_bytes)
    }

    fn commit(&self, batch: WriteBatch, action: &'static str) -> Result<(), StorageError> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.db.write_opt(batch, &options).map_err(StorageError::database(action, &self.path))
    }

    fn family(&self, name: &str) -> Result<&ColumnFamily, StorageError> {
        family(&self.db, &self.path, name)
    }
}

fn family<'a>(db: &'a DB, path: &std::path::Path, name: &str) -> Result<&'a ColumnFamily, StorageError> {
    db.cf_handle(name).ok_or_else(|| StorageError::corrupt(path, format!("it has no column family {name}")))
}
