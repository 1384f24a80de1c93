//! What can be asked of the ledger, and how it answers.
//!
//! Commands are stored in logs: a variant or a field, once released, keeps its name and meaning; new fields
//! come with a serde default, new variants under a new format version of the log.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::record::{
    Authority, ControllerCertificateRecord, ProxyCertificateState, ServiceCertificateRecord,
};
use crate::ids::{ProxyName, ServiceAccountId, TrustDomain};
use crate::pki::{Fingerprint, SerialNumber, Validity};
use crate::time::Timestamp;

/// One entry of the log: an operation and when it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The clock of the replica that proposed it. The ledger's own time never goes back: an earlier `at` is
    /// taken as the latest one seen.
    pub at: Timestamp,
    /// What is to be done.
    pub operation: Operation,
}

/// What can be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Founds the authority. Only the first one succeeds, however many replicas start at once.
    InitAuthority(Box<Authority>),
    /// Makes this the current certificate of the identity.
    RecordServiceCertificate {
        /// The identity.
        account: ServiceAccountId,
        /// The current certificate that the proposer saw. If another one has come since, that one stands:
        /// so two replicas that renew at the same moment end up with the same certificate.
        replaces: Option<SerialNumber>,
        /// The certificate.
        record: Box<ServiceCertificateRecord>,
    },
    /// Records a proxy certificate as unclaimed.
    RecordProxyCertificate {
        /// Its serial number.
        serial: SerialNumber,
        /// Whom it names.
        proxy: ProxyName,
        /// The identity of the pod that it is issued for; absent from commands of before this was written down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        service_account: Option<ServiceAccountId>,
        /// When it is valid.
        validity: Validity,
        /// The serial number of the CA that signed it.
        issuer: SerialNumber,
        /// The fingerprint of the whole certificate.
        fingerprint: Fingerprint,
    },
    /// Records a controller's own certificate.
    RecordControllerCertificate {
        /// Its serial number.
        serial: SerialNumber,
        /// The rest.
        record: Box<ControllerCertificateRecord>,
    },
    /// A proxy has connected with this certificate. Doing it again changes nothing.
    ClaimProxyCertificate(SerialNumber),
    /// Releases every certificate of this proxy. Doing it again changes nothing.
    ReleaseProxy(ProxyName),
    /// Releases these proxy certificates, [`super::MAX_RELEASED_TOGETHER`] at most, and no other, whatever was issued
    /// since they were seen. Those that are not on record are passed over. Doing it again changes nothing.
    ReleaseProxyCertificates(Vec<SerialNumber>),
    /// Forgets what had ended when it was asked for.
    Prune,
}

/// What an applied command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The authority is founded.
    Founded,
    /// The certificate is on record and may leave.
    Recorded,
    /// The certificate is claimed.
    Claimed {
        /// Whether it was unclaimed before.
        first: bool,
    },
    /// What was asked for is refused from now on.
    Released {
        /// Those that this command released, sorted.
        serials: Vec<SerialNumber>,
    },
    /// What had ended is gone.
    Pruned {
        /// How many records that were.
        certificates: usize,
    },
}

/// Why a command was not applied. It changed nothing, and the same command would be rejected again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Rejection {
    /// There is an authority already.
    #[error("the authority of {0} is founded already")]
    AlreadyFounded(TrustDomain),
    /// There is no authority yet.
    #[error("the authority is not founded yet")]
    NotFounded,
    /// The serial number is taken.
    #[error("serial number {0} is taken")]
    DuplicateSerial(SerialNumber),
    /// The certificate names an issuer that is not the mesh's.
    #[error("certificate {serial} is signed by {issuer}, which is not an issuing CA of this mesh")]
    UnknownIssuer {
        /// The certificate.
        serial: SerialNumber,
        /// Its issuer.
        issuer: SerialNumber,
    },
    /// The certificate's validity is empty or leaves its issuer's.
    #[error("certificate {0} is not valid within the life of its issuer")]
    OutlivesIssuer(SerialNumber),
    /// The identity has another current certificate than the proposer saw.
    #[error("{account} has the certificate {current} by now")]
    Superseded {
        /// The identity.
        account: ServiceAccountId,
        /// Its current certificate.
        current: SerialNumber,
    },
    /// There is no proxy certificate with this serial.
    #[error("there is no proxy certificate {0}")]
    UnknownProxyCertificate(SerialNumber),
    /// The certificate was released.
    #[error("proxy certificate {0} was released")]
    Released(SerialNumber),
    /// A text or a list is too long.
    #[error("{what} has {len} bytes or entries, at most {max} are taken")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// How long it is.
        len: usize,
        /// How long it may be.
        max: usize,
    },
    /// There are too many records of one kind.
    #[error("the ledger is full: {max} {what} are on record")]
    Full {
        /// The kind.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
}

impl ProxyCertificateState {
    /// Whether it was released.
    pub fn is_released(self) -> bool {
        matches!(self, Self::Released { .. })
    }
}
