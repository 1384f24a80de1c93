//! What can go wrong when certificates are issued and claimed. No message carries key material.

use smc_mesh::ids::TrustDomain;
use smc_mesh::ledger::Rejection;
use smc_mesh::pki::{InvalidLifetime, IssuerEnding};
use smc_raft::ProposeError;
use thiserror::Error;

use super::seal::{NoteError, SealError};
use super::verify::UnreadableCertificate;
use crate::env::NoEntropy;

/// Why the authority did not do what it was asked.
#[derive(Debug, Error)]
pub enum CaError {
    /// The ledger did not commit. What was asked may or may not be on record; nothing was handed out.
    #[error("the ledger did not commit {what}")]
    NotCommitted {
        /// What was proposed.
        what: String,
        /// The reason.
        #[source]
        source: ProposeError,
    },
    /// The ledger committed, and said no.
    #[error("the ledger rejects {what}")]
    Rejected {
        /// What was proposed.
        what: String,
        /// The reason.
        #[source]
        source: Rejection,
    },
    /// The ledger answered something else than was asked.
    #[error("the ledger gave no fitting answer to {0}")]
    NoAnswer(String),
    /// The issuing certificate has ended or is about to.
    #[error("{what} cannot be issued")]
    IssuerEnding {
        /// What was to be issued.
        what: String,
        /// The reason.
        #[source]
        source: IssuerEnding,
    },
    /// The lifetime that was asked for is out of bounds.
    #[error("{what} cannot be issued")]
    Lifetime {
        /// What was to be issued.
        what: String,
        /// The reason.
        #[source]
        source: InvalidLifetime,
    },
    /// Making a key or a signature failed.
    #[error("{what} cannot be signed")]
    Signing {
        /// What was to be signed.
        what: String,
        /// The reason.
        #[source]
        source: rcgen::Error,
    },
    /// A private key could not be sealed or unsealed.
    #[error("the private key of {what} cannot be handled")]
    Sealing {
        /// Whose key.
        what: String,
        /// The reason.
        #[source]
        source: SealError,
    },
    /// A certificate that the ledger holds, or that was just signed, does not read back.
    #[error("the certificate of {what} does not read back")]
    Unreadable {
        /// Whose certificate.
        what: String,
        /// The reason.
        #[source]
        source: UnreadableCertificate,
    },
    /// A certificate that was just signed does not say what it should. It was not recorded.
    #[error("the certificate that was signed for {0} does not name it")]
    Missigned(String),
    /// The ledger belongs to another mesh.
    #[error("the ledger is of the trust domain {stored}, not {configured}")]
    OtherTrustDomain {
        /// The ledger's.
        stored: TrustDomain,
        /// The configured one.
        configured: TrustDomain,
    },
    /// The ledger was lost, or is not the one that belongs to the key.
    #[error(
        "an authority was founded with this key-encryption key, as {note} notes, but the ledger holds none; restore \
         the ledger, or remove {note} to found a new authority: every sidecar that there is will then need a new \
         bootstrap"
    )]
    FoundedBefore {
        /// Where that is noted.
        note: String,
    },
    /// Whether an authority was founded before cannot be found out.
    #[error("cannot tell whether an authority was founded before")]
    Note(#[from] NoteError),
    /// The configured names cannot stand in a certificate.
    #[error("{0:?} cannot be a name in a certificate")]
    InvalidName(String),
    /// TLS does not take what we made.
    #[error("cannot set up TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There is no randomness.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}
