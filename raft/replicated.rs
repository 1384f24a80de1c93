//! The interface between the users of the ledger and its replication.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use smc_authority::ledger::{Command, Outcome};
use smc_authority::rules::GroupTime;
use smc_host::env::NoEntropy;
use thiserror::Error;

use crate::state::shared::SharedLedger;
use crate::storage::error::StorageError;

/// A ledger that applies the commands of many callers in one order on every replica, and loses none that it
/// acknowledged.
pub trait ReplicatedLedger: Send + Sync {
    /// Appends the commands to the log, in this order and next to each other, and waits until they are
    /// durable and applied. Returns one outcome per command.
    ///
    /// After an error it is unknown whether they were applied. Commands are therefore designed so that a
    /// repeated proposal does no harm (a serial number is recorded once, a claim is idempotent).
    fn propose(&self, commands: Vec<Command>) -> BoxFuture<'_, Result<Vec<Outcome>, ProposeError>>;

    /// Waits until [`Self::local`] holds everything that any replica acknowledged before this call, so that
    /// a decision can be based on a read after it.
    fn barrier(&self) -> BoxFuture<'_, Result<(), ProposeError>>;

    /// The state as applied here, which may lag behind the group without a [`Self::barrier`] before.
    fn local(&self) -> &SharedLedger;

    /// What the clocks of the group's replicas say now.
    fn time(&self) -> GroupTime;
}

/// Why commands could not be committed.
#[derive(Debug, Clone, Error)]
pub enum ProposeError {
    /// The proposal is too large; a retry will not help.
    #[error(
        "a proposal of {commands} commands and {bytes} bytes is over the limit of {max_commands} commands and {max_bytes} bytes"
    )]
    TooLarge {
        /// The number of its commands.
        commands: usize,
        /// Their bytes in the log.
        bytes: usize,
        /// The most commands allowed.
        max_commands: usize,
        /// The most bytes allowed.
        max_bytes: usize,
    },
    /// A command cannot be encoded. Cannot happen with commands that [`smc_authority::ledger`] makes.
    #[error("a command cannot be encoded: {0}")]
    Unencodable(String),
    /// The storage failed. The replica takes no proposals any more, and should be stopped.
    #[error("the ledger has stopped: {0}")]
    Failed(#[source] Arc<StorageError>),
    /// There was no reachable leader, or no quorum, for as long as a proposal is retried. It may still be
    /// applied later. A retry makes sense.
    #[error("the group is not available: {0}")]
    Unavailable(String),
    /// It was applied, but this replica got a snapshot in place of the entry, and so never saw the outcome.
    #[error("the outcome is not known: this replica was brought up to date by a snapshot")]
    Unknown,
    /// The id of a session could not be drawn, so nothing was proposed. A retry makes sense.
    #[error("cannot open a session of the ledger")]
    NoEntropy(#[from] NoEntropy),
    /// The ledger was closed.
    #[error("the ledger is closed")]
    Closed,
}
