//! Ordered bytes on a disk, as the log and the state machine need them.
//!
//! Owns the interface only. [`crate::rocks`] keeps it in RocksDB, [`crate::memory`] in memory for simulations,
//! where a crash loses what was not synced. Everything above this line is the same for both.

use std::ops::Range;

use bytes::Bytes;

use crate::error::StorageError;
use crate::replicated::Pending;

/// What is kept apart, each ordered by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// Index → entry.
    Log,
    /// A few facts by name: the vote, what is committed, the identity of the replica, the snapshot's header.
    State,
    /// (Generation, number) → chunk of a snapshot.
    Snapshot,
}

/// One change.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Put(Family, Vec<u8>, Bytes),
    Delete(Family, Vec<u8>),
    /// All keys from the first, inclusive, to the second, exclusive.
    DeleteRange(Family, Range<Vec<u8>>),
}

/// Ordered bytes. All methods but [`Database::sync`] may block for as long as a file takes to read or write.
pub(crate) trait Database: Send + Sync + 'static {
    /// Changes all or nothing. Seen by readers at once; durable after the next [`Database::sync`]. What is durable
    /// is always a prefix of what was written.
    fn write(&self, batch: Vec<Write>) -> Result<(), StorageError>;

    /// Makes everything durable that was written before the call.
    fn sync(&self) -> Pending<'_, Result<(), StorageError>>;

    /// The value of a key.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StorageError>;

    /// Keys and values in a range of keys, in order. Stops after the value with which `max_bytes` are reached, so
    /// that there is at least one where the range is not empty.
    fn scan(
        &self,
        family: Family,
        range: Range<Vec<u8>>,
        max_bytes: usize,
    ) -> Result<Vec<(Vec<u8>, Bytes)>, StorageError>;

    /// The last key and its value.
    fn last(&self, family: Family) -> Result<Option<(Vec<u8>, Bytes)>, StorageError>;

    /// Whether long work on it belongs on a thread of its own. In a simulation there is only one thread.
    fn blocks(&self) -> bool;
}

/// The key of a log entry.
pub(crate) fn index_key(index: u64) -> Vec<u8> {
    index.to_be_bytes().to_vec()
}

/// The key of a chunk.
pub(crate) fn chunk_key(generation: u64, chunk: u64) -> Vec<u8> {
    [generation.to_be_bytes(), chunk.to_be_bytes()].concat()
}
