//! The Raft log on a [`Disk`]: openraft's log storage.
//!
//! Owns the order of writing and syncing. An entry can be read as soon as it is written, and counts as
//! flushed once a sync that began later has ended; one sync serves all waiting appends (group commit). A
//! vote is durable before it is sent.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt, stream};
use openraft::alias::VoteOf;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use prost::Message;
use smc_proto::raft::v1 as pb;
use tokio::sync::mpsc;

use crate::storage::database::{Family, Write, index_key};
use crate::storage::disk::{COMMITTED, Disk, PURGED, VOTE, put_record};
use crate::types::{Entry, LogId, TypeConfig};
use crate::wire::{Malformed, Wire};

/// Appends queued for a sync; an append waits while the queue is full. openraft has a handful in flight.
const FLUSH_QUEUE: usize = 1024;

/// The most bytes read from the log at once for replication. Together with its last entry they must fit into
/// [`crate::transport::MAX_MESSAGE`].
const MAX_READ: usize = 4 * 1024 * 1024;

/// The log. Cheap to clone; readers are clones.
#[derive(Clone)]
pub(crate) struct LogStore {
    disk: Disk,
    flushes: mpsc::Sender<IOFlushed<TypeConfig>>,
}

/// The task that syncs appends. Ends when the last [`LogStore`] is dropped.
pub(crate) struct Flusher {
    disk: Disk,
    waiting: mpsc::Receiver<IOFlushed<TypeConfig>>,
}

impl LogStore {
    pub(crate) fn new(disk: Disk) -> (Self, Flusher) {
        let (flushes, waiting) = mpsc::channel(FLUSH_QUEUE);
        (Self { disk: disk.clone(), flushes }, Flusher { disk, waiting })
    }

    /// The next entries from this index on, a bounded number; empty at the end of the log.
    pub(crate) fn next_entries(&self, from: u64) -> io::Result<Vec<Entry>> {
        self.entries(from, u64::MAX, MAX_READ)
    }

    fn entries(&self, from: u64, to: u64, max_bytes: usize) -> io::Result<Vec<Entry>> {
        let found = self.disk.database().scan(Family::Log, index_key(from)..index_key(to), max_bytes);
        let found = found.map_err(|error| self.disk.fail(error))?;
        found.into_iter().map(|(_, bytes)| self.entry(bytes)).collect()
    }

    fn entry(&self, bytes: Bytes) -> io::Result<Entry> {
        let entry = pb::Entry::decode(bytes)
            .map_err(|error| self.disk.malformed(format!("a log entry cannot be read: {error}")))?;
        Entry::from_wire(entry).map_err(|Malformed(what)| self.disk.malformed(what))
    }
}

impl Flusher {
    pub(crate) async fn run(mut self) {
        let mut flushed = Vec::new();
        while self.waiting.recv_many(&mut flushed, FLUSH_QUEUE).await > 0 {
            let synced = self.disk.sync().await;
            for waiting in flushed.drain(..) {
                let result = synced.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()));
                waiting.io_completed(result.copied());
            }
        }
    }
}

/// The range as indexes, the end exclusive.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(&index) => index,
        Bound::Excluded(&index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(&index) => index.saturating_add(1),
        Bound::Excluded(&index) => index,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, io::Error> {
        let (from, to) = bounds(&range);
        self.entries(from, to, usize::MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf<TypeConfig>>, io::Error> {
        self.disk.vote()
    }

    // Read in pieces: a replica that restarts applies all entries after its snapshot.
    async fn entries_stream<R>(
        &mut self,
        range: R,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        let pieces = stream::try_unfold((self.clone(), from), move |(store, from)| async move {
            let piece = store.entries(from, to, MAX_READ)?;
            let Some(last) = piece.last() else { return Ok::<_, io::Error>(None) };
            let next = last.log_id.index + 1;
            Ok(Some((stream::iter(piece.into_iter().map(Ok)), (store, next))))
        });
        Box::pin(pieces.try_flatten())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.entries(start, end, MAX_READ)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let purged = self.disk.log_id(PURGED)?;
        let last = self.disk.database().last(Family::Log).map_err(|error| self.disk.fail(error))?;
        let last = last.map(|(_, bytes)| self.entry(bytes)).transpose()?.map(|entry| entry.log_id);
        Ok(LogState { last_purged_log_id: purged, last_log_id: last.or(purged) })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<TypeConfig>) -> Result<(), io::Error> {
        self.disk.write(vec![put_record(VOTE, &vote.to_wire())])?;
        self.disk.sync().await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        // Not synced: it only bounds what a restarted replica may apply before it hears from its peers.
        let write = match committed {
            Some(id) => put_record(COMMITTED, &id.to_wire()),
            None => Write::Delete(Family::State, COMMITTED.into()),
        };
        self.disk.write(vec![write])
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        self.disk.log_id(COMMITTED)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let put = |entry: Entry| {
            let key = index_key(entry.log_id.index);
            Write::Put(Family::Log, key, entry.to_wire().encode_to_vec().into())
        };
        self.disk.write(entries.into_iter().map(put).collect())?;
        let stopped = |_| io::Error::other("the task that syncs the log has stopped");
        self.flushes.send(callback).await.map_err(stopped)
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let from = last.map_or(0, |id| id.index + 1);
        self.disk.write(vec![Write::DeleteRange(Family::Log, index_key(from)..index_key(u64::MAX))])
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.disk.write(vec![
            put_record(PURGED, &upto.to_wire()),
            Write::DeleteRange(Family::Log, index_key(0)..index_key(upto.index + 1)),
        ])
    }
}
