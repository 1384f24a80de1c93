//! The errors of issuing, claiming and releasing certificates. No message carries key material.

use std::fmt;

use smc_authority::ledger::Rejection;
use smc_authority::pki::{InvalidLifetime, IssuerEnding, SerialNumber};
use smc_host::env::NoEntropy;
use smc_raft::ProposeError;
use smc_types::ids::{NamespacedName, ProxyName, ServiceAccountId, TrustDomain};
use thiserror::Error;

use super::clock::ClockError;
use super::seal::{NoteError, SealError};
use super::verify::UnreadableCertificate;

/// An operation of the CA or on its records, as errors and logs name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaOperation {
    /// Founding the authority.
    Found,
    /// Making a root.
    MakeRoot,
    /// Making an issuing CA.
    MakeIssuing,
    /// Unsealing the key of a CA.
    UnsealCa(SerialNumber),
    /// Issuing a service certificate.
    IssueService(ServiceAccountId),
    /// Reading the current service certificate with its key.
    ReadService(ServiceAccountId),
    /// Issuing the certificate of a gateway.
    IssueGateway(NamespacedName),
    /// Reading the current certificate of a gateway with its key.
    ReadGateway(NamespacedName),
    /// Forgetting the certificate of a gateway.
    ForgetGateway(NamespacedName),
    /// Issuing a proxy certificate.
    IssueProxy(ProxyName),
    /// Issuing a controller's certificate.
    IssueController,
    /// Claiming a proxy certificate.
    Claim(SerialNumber),
    /// Releasing all certificates of a proxy.
    ReleaseProxy(ProxyName),
    /// Releasing this many proxy certificates.
    ReleaseCertificates(usize),
    /// Waiting for the latest state of the ledger.
    Barrier,
    /// Agreeing on the time.
    AgreeOnTime,
    /// Deleting the records of expired certificates.
    Prune,
    /// Forgetting the service certificates of this many identities.
    ForgetServices(usize),
    /// Rekeying all private keys.
    Rekey,
    /// Rekeying one private key.
    RekeyOne(SerialNumber),
    /// Any step of a rotation.
    Rotate,
    /// Replacing the issuing CA.
    RotateIssuing {
        /// The issuing CA before.
        replaces: SerialNumber,
    },
    /// Trusting a new root.
    TrustRoot {
        /// The root that signs.
        beside: SerialNumber,
    },
    /// Acknowledging trust in the next root.
    AcknowledgeRoot {
        /// The replica.
        replica: u64,
        /// The next root.
        root: SerialNumber,
    },
    /// Signing under the next root.
    SignWithNextRoot(SerialNumber),
    /// Ending the signing for controllers under the former root.
    EndControllerIssuer(SerialNumber),
    /// Retiring a former CA.
    RetireCa(SerialNumber),
    /// Giving up a next root.
    CancelRoot(SerialNumber),
    /// Recording the object that declares a root.
    NameRoot {
        /// The root.
        root: SerialNumber,
        /// The object.
        object: NamespacedName,
    },
    /// Not waiting for the certificates from before a next root.
    HastenRoot(SerialNumber),
}

impl fmt::Display for CaOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found => write!(f, "the founding of the authority"),
            Self::MakeRoot => write!(f, "the root CA"),
            Self::MakeIssuing => write!(f, "the issuing CA"),
            Self::UnsealCa(ca) => write!(f, "the CA {ca}"),
            Self::IssueService(account) => write!(f, "a service certificate for {account}"),
            Self::ReadService(account) => write!(f, "the service certificate of {account}"),
            Self::IssueGateway(secret) => write!(f, "a certificate for the gateway with the Secret {secret}"),
            Self::ReadGateway(secret) => write!(f, "the certificate of the gateway with the Secret {secret}"),
            Self::ForgetGateway(secret) => {
                write!(f, "forgetting the certificate of the gateway with the Secret {secret}")
            }
            Self::IssueProxy(proxy) => write!(f, "a proxy certificate for {proxy}"),
            Self::IssueController => write!(f, "a controller certificate"),
            Self::Claim(serial) => write!(f, "the claim of proxy certificate {serial}"),
            Self::ReleaseProxy(proxy) => write!(f, "the release of {proxy}"),
            Self::ReleaseCertificates(count) => write!(f, "the release of {count} proxy certificates"),
            Self::Barrier => write!(f, "the freshness of the ledger"),
            Self::AgreeOnTime => write!(f, "the time of the group"),
            Self::Prune => write!(f, "pruning"),
            Self::ForgetServices(count) => {
                write!(f, "forgetting the certificates of {count} service accounts without a workload")
            }
            Self::Rekey => write!(f, "the rekeying of the private keys"),
            Self::RekeyOne(serial) => write!(f, "certificate {serial}"),
            Self::Rotate => write!(f, "the rotation of a CA"),
            Self::RotateIssuing { replaces } => write!(f, "a new issuing CA in the place of {replaces}"),
            Self::TrustRoot { beside } => write!(f, "a new root beside {beside}"),
            Self::AcknowledgeRoot { replica, root } => {
                write!(f, "replica {replica}'s acknowledgement of the root {root}")
            }
            Self::SignWithNextRoot(root) => write!(f, "signing under the root {root}"),
            Self::EndControllerIssuer(issuing) => write!(f, "the end of signing by {issuing}"),
            Self::RetireCa(ca) => write!(f, "retiring {ca}"),
            Self::CancelRoot(root) => write!(f, "giving up the root {root}"),
            Self::NameRoot { root, object } => write!(f, "the root {root} of MeshRootCertificate {object}"),
            Self::HastenRoot(root) => write!(f, "hastening the root {root}"),
        }
    }
}

/// Why an operation failed. The fields are the operation that failed and the cause.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the fields of all variants are described once, above")]
pub enum CaError {
    /// The ledger did not commit. The command may or may not be applied later; no certificate was returned.
    #[error("the ledger did not commit {operation}")]
    NotCommitted {
        operation: CaOperation,
        #[source]
        source: ProposeError,
    },
    /// The ledger committed the command and rejected it.
    #[error("the ledger rejects {operation}")]
    Rejected {
        operation: CaOperation,
        #[source]
        source: Rejection,
    },
    /// This replica's clock is not known to be right.
    #[error("{operation} needs a synchronised clock")]
    Clock {
        operation: CaOperation,
        #[source]
        source: ClockError,
    },
    /// The ledger returned no reply, or the reply of another operation.
    #[error("the ledger returned no matching reply to {0}")]
    NoAnswer(CaOperation),
    /// The ledger holds no authority.
    #[error("the authority is not founded")]
    NotFounded,
    /// There is no next root.
    #[error("there is no pending root CA")]
    NoNextRoot,
    /// The CA that would sign has expired, or is about to.
    #[error("{operation} cannot be issued")]
    IssuerEnding {
        operation: CaOperation,
        #[source]
        source: IssuerEnding,
    },
    /// The issuing CA cannot sign, and the root, which would sign another one, cannot, either.
    #[error(
        "the root {root} cannot sign a new issuing CA; correct this replica's clock if it is wrong, and otherwise found \
         the authority again, as docs/operation.md#a-group-that-was-off-for-years says"
    )]
    RootEnded {
        root: SerialNumber,
        #[source]
        source: IssuerEnding,
    },
    /// The requested lifetime is out of bounds.
    #[error("{operation} cannot be issued")]
    Lifetime {
        operation: CaOperation,
        #[source]
        source: InvalidLifetime,
    },
    /// Making a key or a signature failed.
    #[error("{operation} cannot be signed")]
    Signing {
        operation: CaOperation,
        #[source]
        source: rcgen::Error,
    },
    /// A private key could not be sealed or unsealed.
    #[error("the private key of {operation} cannot be handled")]
    Sealing {
        operation: CaOperation,
        #[source]
        source: SealError,
    },
    /// A certificate from the ledger, or one just signed, cannot be read.
    #[error("the certificate that {operation} signed cannot be parsed")]
    Unreadable {
        operation: CaOperation,
        #[source]
        source: UnreadableCertificate,
    },
    /// A certificate just signed differs from the request. It was not recorded.
    #[error("{0} was signed, but does not contain what was requested")]
    Missigned(CaOperation),
    /// The ledger belongs to another mesh.
    #[error("the ledger is of the trust domain {stored}, not {configured}")]
    OtherTrustDomain { stored: TrustDomain, configured: TrustDomain },
    /// An authority was founded with this key-encryption key before, and the ledger holds none.
    #[error(
        "an authority was founded with this key-encryption key, as {note} notes, but the ledger holds none; restore \
         the ledger, or remove {note} to found a new authority: every sidecar that there is will then need a new \
         bootstrap"
    )]
    FoundedBefore { note: String },
    /// The note of an earlier founding cannot be read.
    #[error("cannot tell whether an authority was founded before")]
    Note(#[from] NoteError),
    /// rustls rejects the certificates or the key.
    #[error("cannot set up TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The system returned no random bytes.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

impl CaError {
    /// Whether the same request may succeed later without an operator's intervention.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NotCommitted { source, .. } => {
                matches!(source, ProposeError::Unavailable(_) | ProposeError::Unknown)
            }
            // The next attempt reads the CAs and records that conflicted.
            Self::Rejected { source, .. } => matches!(
                source,
                Rejection::RetiredIssuer { .. }
                    | Rejection::CaConflict { .. }
                    | Rejection::ServiceCertificateConflict { .. }
                    | Rejection::NotDue { .. }
                    | Rejection::WrongClock { .. }
                    | Rejection::NotValidNow(_)
                    | Rejection::DuplicateSerial(_)
            ),
            Self::NoEntropy(_) | Self::Clock { .. } => true,
            Self::NoAnswer(_)
            | Self::NotFounded
            | Self::NoNextRoot
            | Self::IssuerEnding { .. }
            | Self::RootEnded { .. }
            | Self::Lifetime { .. }
            | Self::Signing { .. }
            | Self::Sealing { .. }
            | Self::Unreadable { .. }
            | Self::Missigned(_)
            | Self::OtherTrustDomain { .. }
            | Self::FoundedBefore { .. }
            | Self::Note(_)
            | Self::Tls(_) => false,
        }
    }
}
