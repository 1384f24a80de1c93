//! A ledger that one replica keeps alone.
//!
//! RocksDB blocks, so one owned thread does all writing. It takes everything that waits in the queue and
//! commits it as one synced batch: under load the cost of a sync is shared by all who wait for it.

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use smc_mesh::ledger::{Command, Ledger};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::StorageError;
use crate::replicated::{Outcome, Pending, ProposeError, ReplicatedLedger};
use crate::shared::SharedLedger;
use crate::store::{LedgerStore, SNAPSHOT_AFTER};

/// The most commands in one proposal.
pub const MAX_COMMANDS: usize = 256;

/// The most bytes that the commands of one proposal may take in the log.
pub const MAX_PROPOSAL_BYTES: usize = 1024 * 1024;

/// Proposals that wait. Together with [`MAX_PROPOSAL_BYTES`] it bounds the memory of the queue to 256 MiB; in
/// practice a proposal is one command of 3 KiB. Who finds the queue full waits.
const QUEUE: usize = 256;

/// The most bytes of one batch: what a disk writes within a few milliseconds, so that the first in a batch
/// does not wait long for the last.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The ledger of a mesh with one replica: a synced log in RocksDB.
pub struct LocalLedger {
    shared: SharedLedger,
    queue: Option<mpsc::Sender<Proposal>>,
    failure: watch::Receiver<Option<Arc<StorageError>>>,
    writer: Option<JoinHandle<()>>,
}

struct Proposal {
    commands: Vec<Command>,
    encoded: Vec<Vec<u8>>,
    bytes: usize,
    reply: oneshot::Sender<Vec<Outcome>>,
}

impl LocalLedger {
    /// Opens the ledger in the directory `path`, or makes an empty one if `path` is missing or empty.
    /// Blocks while it reads: call it where blocking is allowed.
    ///
    /// An error leaves everything in the directory as it was.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        Self::open_with(path, SNAPSHOT_AFTER)
    }

    pub(crate) fn open_with(path: &Path, snapshot_after: u64) -> Result<Self, StorageError> {
        let (store, ledger) = LedgerStore::open(path, snapshot_after)?;
        let shared = SharedLedger::new(ledger);
        let (queue, proposals) = mpsc::channel(QUEUE);
        let (failed, failure) = watch::channel(None);
        let writer = Writer { store, shared: shared.clone(), proposals, failed };
        let writer = thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(StorageError::io("start the writer of the ledger in", path))?;
        Ok(Self { shared, queue: Some(queue), failure, writer: Some(writer) })
    }

    /// Becomes `Some` when the storage fails. Nothing is taken any more then, and the replica should stop.
    pub fn failure(&self) -> watch::Receiver<Option<Arc<StorageError>>> {
        self.failure.clone()
    }

    /// Commits what waits and closes the files. Blocks for as long as a few syncs take.
    pub fn close(self) {
        drop(self);
    }

    fn stopped(&self) -> ProposeError {
        match &*self.failure.borrow() {
            Some(error) => ProposeError::Failed(Arc::clone(error)),
            None => ProposeError::Closed,
        }
    }
}

impl ReplicatedLedger for LocalLedger {
    fn propose(&self, commands: Vec<Command>) -> Pending<'_, Result<Vec<Outcome>, ProposeError>> {
        Box::pin(async move {
            let encoded: Vec<Vec<u8>> = commands
                .iter()
                .map(serde_json::to_vec)
                .collect::<Result<_, _>>()
                .map_err(|error| ProposeError::Unencodable(error.to_string()))?;
            let bytes = encoded.iter().map(Vec::len).sum();
            if commands.len() > MAX_COMMANDS || bytes > MAX_PROPOSAL_BYTES {
                return Err(ProposeError::TooLarge {
                    commands: commands.len(),
                    bytes,
                    max_commands: MAX_COMMANDS,
                    max_bytes: MAX_PROPOSAL_BYTES,
                });
            }
            let (reply, outcomes) = oneshot::channel();
            let queue = self.queue.as_ref().ok_or(ProposeError::Closed)?;
            let proposal = Proposal { commands, encoded, bytes, reply };
            queue.send(proposal).await.map_err(|_| self.stopped())?;
            outcomes.await.map_err(|_| self.stopped())
        })
    }

    fn barrier(&self) -> Pending<'_, Result<(), ProposeError>> {
        // There is one replica, and it applies before it acknowledges.
        Box::pin(async move { if self.failure.borrow().is_some() { Err(self.stopped()) } else { Ok(()) } })
    }

    fn local(&self) -> &SharedLedger {
        &self.shared
    }
}

impl Drop for LocalLedger {
    /// Lets the writer finish, so that the directory is free when this returns.
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the ledger's writer panicked");
        }
    }
}

struct Writer {
    store: LedgerStore,
    shared: SharedLedger,
    proposals: mpsc::Receiver<Proposal>,
    failed: watch::Sender<Option<Arc<StorageError>>>,
}

impl Writer {
    fn run(mut self) {
        while let Some(first) = self.proposals.blocking_recv() {
            let mut bytes = first.bytes;
            let mut batch = vec![first];
            while bytes < MAX_BATCH_BYTES
                && let Ok(next) = self.proposals.try_recv()
            {
                bytes += next.bytes;
                batch.push(next);
            }
            if let Err(error) = self.commit(batch) {
                tracing::error!(error = &*error as &dyn std::error::Error, "the ledger has stopped");
                return;
            }
        }
    }

    fn commit(&mut self, batch: Vec<Proposal>) -> Result<(), Arc<StorageError>> {
        let entries = batch.iter().flat_map(|proposal| &proposal.encoded).map(Vec::as_slice);
        let appended = self.store.append(entries);
        // Said before the batch is dropped, so that whoever waits in it learns why.
        appended.map_err(|error| self.fail(error))?;
        for proposal in batch {
            let outcomes = self.shared.apply(proposal.commands.iter());
            // The proposer may have gone away; what it proposed holds all the same.
            let _ = proposal.reply.send(outcomes);
        }
        if self.store.snapshot_due() {
            self.snapshot().map_err(|error| self.fail(error))?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), StorageError> {
        let canonical = self.shared.read(Ledger::canonical);
        self.store.snapshot(canonical)
    }

    fn fail(&self, error: StorageError) -> Arc<StorageError> {
        let error = Arc::new(error);
        self.failed.send_replace(Some(Arc::clone(&error)));
        error
    }
}
