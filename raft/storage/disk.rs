//! Typed access to a replica's [`Database`], in Raft's terms.
//!
//! ```text
//! Log       index                 → Entry
//! State     "identity"            → Identity: the replica and its group
//!           "vote"                → Vote
//!           "committed", "purged" → LogId
//!           "snapshot"            → SnapshotHeader of the current snapshot
//!           "incoming"            → SnapshotHeader of the snapshot that is being received
//! Snapshot  generation, number    → chunk
//! ```
//!
//! Owns these keys, and the record of the first failure with its cause, of which openraft passes on only
//! the text.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use smc_proto::raft::v1 as pb;
use tokio::sync::watch;

use crate::storage::database::{Database, Family, Write};
use crate::storage::error::StorageError;
use crate::types::{LogId, Vote};
use crate::wire::{self, Malformed};

pub(crate) const VOTE: &str = "vote";
pub(crate) const COMMITTED: &str = "committed";
pub(crate) const PURGED: &str = "purged";
pub(crate) const SNAPSHOT: &str = "snapshot";
pub(crate) const INCOMING: &str = "incoming";

/// Becomes `Some` when the storage fails. The replica takes no proposals from then on.
pub type Failure = watch::Receiver<Option<Arc<StorageError>>>;

/// One replica's storage. Cheap to clone; all clones are the same one.
#[derive(Clone)]
pub(crate) struct Disk {
    database: Arc<dyn Database>,
    failed: watch::Sender<Option<Arc<StorageError>>>,
}

impl Disk {
    pub(crate) fn new(database: Arc<dyn Database>) -> Self {
        Self { database, failed: watch::Sender::new(None) }
    }

    /// Reports the first failure.
    pub(crate) fn failure(&self) -> Failure {
        self.failed.subscribe()
    }

    /// Records a failure, unless there is an earlier one, and converts it for openraft.
    pub(crate) fn fail(&self, error: StorageError) -> io::Error {
        let text = error.to_string();
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                *failed = Some(Arc::new(error));
            }
            first
        });
        io::Error::other(text)
    }

    /// As [`Self::fail`], for a record that cannot have been written as it was read.
    pub(crate) fn malformed(&self, what: impl Into<String>) -> io::Error {
        self.fail(StorageError::damaged(what))
    }

    pub(crate) fn database(&self) -> &Arc<dyn Database> {
        &self.database
    }

    pub(crate) fn write(&self, batch: Vec<Write>) -> io::Result<()> {
        self.database.write(batch).map_err(|error| self.fail(error))
    }

    pub(crate) async fn sync(&self) -> io::Result<()> {
        self.database.sync().await.map_err(|error| self.fail(error))
    }

    /// The record called `name`.
    pub(crate) fn record<M: Message + Default>(&self, name: &'static str) -> io::Result<Option<M>> {
        let bytes = self.database.get(Family::State, name.as_bytes()).map_err(|error| self.fail(error))?;
        let decoded = bytes.map(M::decode).transpose();
        decoded.map_err(|error| self.malformed(format!("the {name} cannot be read: {error}")))
    }

    pub(crate) fn vote(&self) -> io::Result<Option<Vote>> {
        let vote = self.record::<pb::Vote>(VOTE)?;
        wire::read(vote).map_err(|Malformed(what)| self.malformed(what))
    }

    /// The log id that is stored under `name`.
    pub(crate) fn log_id(&self, name: &'static str) -> io::Result<Option<LogId>> {
        let id = self.record::<pb::LogId>(name)?;
        wire::read(id).map_err(|Malformed(what)| self.malformed(what))
    }

    /// Runs a long operation on the database without blocking a thread of the async runtime.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if !self.database.blocks() {
            return work(self);
        }
        let disk = self.clone();
        tokio::task::spawn_blocking(move || work(&disk)).await.map_err(io::Error::other)?
    }
}

/// Writes the record `name`.
pub(crate) fn put_record(name: &'static str, record: &impl Message) -> Write {
    Write::Put(Family::State, name.into(), Bytes::from(record.encode_to_vec()))
}
