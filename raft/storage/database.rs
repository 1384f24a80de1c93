//! The interface to ordered keys and values on a disk, as the log and the state machine need it.
//!
//! Owns the interface only. [`super::rocks`] implements it with RocksDB, [`super::memory`] in memory for
//! simulations, where a crash loses what was not synced. All code above the interface is the same for both.

use std::ops::Range;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::storage::error::StorageError;

/// A column family: a separate space of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// Index → entry.
    Log,
    /// A few records by name: the vote, the commit index, the replica's identity, the snapshot's header.
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

/// Ordered keys and values. All methods but [`Database::sync`] may block while a file is read or written.
pub(crate) trait Database: Send + Sync + 'static {
    /// Writes the batch atomically. Visible to readers at once, durable after the next [`Database::sync`].
    /// What is durable is always a prefix of the writes.
    fn write(&self, batch: Vec<Write>) -> Result<(), StorageError>;

    /// Makes all writes before the call durable.
    fn sync(&self) -> BoxFuture<'_, Result<(), StorageError>>;

    /// The value of a key.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StorageError>;

    /// The keys and values in a range of keys, in order. Stops after the value that reaches `max_bytes`, so
    /// it returns at least one if the range is not empty.
    fn scan(
        &self,
        family: Family,
        range: Range<Vec<u8>>,
        max_bytes: usize,
    ) -> Result<Vec<(Vec<u8>, Bytes)>, StorageError>;

    /// The last key and its value.
    fn last(&self, family: Family) -> Result<Option<(Vec<u8>, Bytes)>, StorageError>;

    /// Whether long operations need a thread of their own. A simulation has only one thread.
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
