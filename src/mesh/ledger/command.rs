//! What can be asked of the ledger, and how it answers.
//!
//! Commands are stored in logs: a variant or a field, once released, keeps its name and meaning; new fields
//! come with a serde default, new variants under a new format version of the log.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::authority::{Authority, CaCertificate};
use super::record::{ControllerCertificateRecord, ProxyCertificateState, ServiceCertificateRecord};
use super::resealing::ResealedKey;
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
    /// Lets a new issuing CA under the same root sign from now on. The key of the one before is forgotten.
    RotateIssuing {
        /// The issuing CA that the proposer saw sign: of several replicas that rotate at once one succeeds.
        replaces: SerialNumber,
        /// The new one.
        issuing: Box<CaCertificate>,
    },
    /// Trusts a new root beside the one that signs. There must be no former root, and no other next one that is valid.
    TrustRoot {
        /// The root that the proposer saw sign.
        beside: SerialNumber,
        /// The new one.
        root: Box<CaCertificate>,
    },
    /// Every proxy that is connected to this replica has acknowledged that the next root is trusted.
    AcknowledgeRoot {
        /// The replica.
        replica: u64,
        /// The root.
        root: SerialNumber,
    },
    /// Signs under the next root from now on. Only when these replicas have acknowledged it, and no service certificate
    /// is alive that was issued before it was trusted. The key of the root before is forgotten.
    SignWithNextRoot {
        /// The next root.
        root: SerialNumber,
        /// The group's members as the proposer saw them.
        replicas: BTreeSet<u64>,
        /// An issuing CA under that root.
        issuing: Box<CaCertificate>,
    },
    /// Signs nothing under the former root any more, not even for controllers. Only when no proxy certificate that was
    /// signed under it is alive. The issuing CA's key is forgotten.
    EndVouching {
        /// The vouching issuing CA.
        issuing: SerialNumber,
    },
    /// Forgets a former issuing CA, or stops trusting a former root. Only when nothing that it signed is alive.
    RetireCa(SerialNumber),
    /// Exchanges these private keys for the same ones, sealed anew; [`super::MAX_RESEALED_TOGETHER`] at most.
    ResealKeys(Vec<ResealedKey>),
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
    /// The authority is another now, as was asked for.
    AuthorityChanged,
    /// The authority was as asked for already.
    AuthorityUnchanged,
    /// Keys are sealed as was asked for.
    Resealed {
        /// How many; the others belong to certificates that are not current any more.
        keys: usize,
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
    /// The certificate names an issuer that was the mesh's, and does not sign this any more.
    #[error("certificate {serial} is signed by {issuer}, which does not sign for this mesh any more")]
    RetiredIssuer {
        /// The certificate.
        serial: SerialNumber,
        /// Its issuer.
        issuer: SerialNumber,
    },
    /// The CA is not valid when it is to sign.
    #[error("the CA {0} has ended, or has not begun")]
    CaNotValid(SerialNumber),
    /// The proposer saw a CA sign that does not any more, or does not yet.
    #[error("the CA {expected} is not the one that signs: {current} is")]
    Overtaken {
        /// The one that was seen.
        expected: SerialNumber,
        /// The one that signs.
        current: SerialNumber,
    },
    /// Another root is on its way in or out.
    #[error("the root {0} is still on its way in or out; one root is rotated at a time")]
    RootRotating(SerialNumber),
    /// There is no such CA.
    #[error("there is no CA {0} of which this could be asked")]
    UnknownCa(SerialNumber),
    /// Proxies may not trust the root yet.
    #[error("the proxies of replica {replica} have not acknowledged the root {root}")]
    NotAcknowledged {
        /// The root.
        root: SerialNumber,
        /// One of the replicas that have not acknowledged it.
        replica: u64,
    },
    /// Something that is alive needs the CA as it is.
    #[error("the CA {ca} is needed until {until} (seconds since 1970)", until = .until.0)]
    StillNeeded {
        /// The CA.
        ca: SerialNumber,
        /// The end of the last certificate that needs it.
        until: Timestamp,
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
