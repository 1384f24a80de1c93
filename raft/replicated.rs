//! The seam between those who need the ledger and whatever keeps it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use smc_mesh::ledger::{Command, Rejection, Reply};
use thiserror::Error;

use crate::error::StorageError;
use crate::shared::SharedLedger;

/// What became of one applied command.
pub type Outcome = Result<Reply, Rejection>;

/// The future of an object-safe asynchronous method.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A ledger that takes commands from many, in one order for all, and loses none that it acknowledged.
pub trait ReplicatedLedger: Send + Sync {
    /// Appends the commands to the log, in this order and next to each other, and waits until they are
    /// durable and applied. The answer has one outcome per command.
    ///
    /// After an error it is unknown whether they were applied; commands that matter are made so that
    /// proposing them again does no harm (a serial number is recorded once, a claim is idempotent).
    fn propose(&self, commands: Vec<Command>) -> Pending<'_, Result<Vec<Outcome>, ProposeError>>;

    /// Waits until [`Self::local`] holds everything that any replica acknowledged before this call, so that
    /// a read after it may decide something.
    fn barrier(&self) -> Pending<'_, Result<(), ProposeError>>;

    /// The state as applied here, which may lag behind unless [`Self::barrier`] came first.
    fn local(&self) -> &SharedLedger;
}

/// Why commands could not be committed.
#[derive(Debug, Clone, Error)]
pub enum ProposeError {
    /// The proposal is too big; the same one will never fit.
    #[error(
        "a proposal of {commands} commands and {bytes} bytes is over the limit of {max_commands} commands and {max_bytes} bytes"
    )]
    TooLarge {
        /// How many commands it has.
        commands: usize,
        /// How many bytes they take in the log.
        bytes: usize,
        /// How many commands it may have.
        max_commands: usize,
        /// How many bytes they may take.
        max_bytes: usize,
    },
    /// A command has no stored form. Cannot happen with commands that [`smc_mesh::ledger`] makes.
    #[error("a command cannot be encoded: {0}")]
    Unencodable(String),
    /// The storage failed; nothing is taken any more, and the replica should stop.
    #[error("the ledger has stopped: {0}")]
    Failed(#[source] Arc<StorageError>),
    /// There was no leader that could be reached, or no quorum, for longer than a proposal is tried. It may still be
    /// applied later. Trying again makes sense.
    #[error("the group is not available: {0}")]
    Unavailable(String),
    /// It was applied, but a snapshot took the place of the entry before its outcome was seen here.
    #[error("the outcome is not known: this replica was brought up to date by a snapshot")]
    Unknown,
    /// The ledger was closed.
    #[error("the ledger is closed")]
    Closed,
}
