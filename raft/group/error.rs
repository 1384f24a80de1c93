//! Why a replica does not start, and why the group's membership was not changed.

use std::sync::Arc;

use smc_host::env::NoEntropy;
use thiserror::Error;

use crate::storage::error::StorageError;
use crate::transport::tls::TlsError;

/// Why a replica did not start.
#[derive(Debug, Error)]
pub enum GroupError {
    /// Its storage cannot be used.
    #[error(transparent)]
    Storage(Arc<StorageError>),
    /// It has no certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The random numbers that it starts with could not be drawn.
    #[error("cannot draw the random numbers that the replica starts with")]
    NoEntropy(#[from] NoEntropy),
    /// Raft did not start.
    #[error("Raft did not start: {0}")]
    Raft(String),
}

/// Why the group's membership was not changed.
#[derive(Debug, Clone, Error)]
pub enum MembershipError {
    /// The change makes no sense; a retry will not help.
    #[error("{0}")]
    Refused(String),
    /// No leader could be reached, or it could not commit the change; a retry may help.
    #[error("{0}")]
    Failed(String),
}
