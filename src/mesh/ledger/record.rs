//! What the ledger keeps about each certificate that the authority issued.

use serde::{Deserialize, Serialize};

use crate::ids::{ProxyName, ServiceAccountId};
use crate::pki::{Fingerprint, SealedKey, SerialNumber, Validity};
use crate::time::Timestamp;

/// The certificate that all proxies of one identity share. Kept with its sealed key, so that a restarted or
/// another replica serves the very same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCertificateRecord {
    /// Its serial number.
    pub serial: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// When it was issued, by the clock of the replica that did.
    pub issued_at: Timestamp,
    /// The serial number of the CA that signed it.
    pub issuer: SerialNumber,
    /// Leaf and issuer, concatenated PEM.
    pub chain_pem: String,
    /// The leaf's private key.
    pub key: SealedKey,
}

/// What is left of a service certificate that another took the place of: it may be in use until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupersededCertificate {
    /// Its serial number.
    pub serial: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// The serial number of the CA that signed it, which has to be trusted until then.
    pub issuer: SerialNumber,
}

/// A certificate that was issued to a proxy. Its key is not kept: the proxy alone has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyCertificateRecord {
    /// Whom it names.
    pub proxy: ProxyName,
    /// Whose policy and certificate its holder may be served: the identity of the pod that it was issued for, since
    /// a pod of the same name may come to have another. Records from before this was written down have none, and
    /// fit nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountId>,
    /// When it is valid.
    pub validity: Validity,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// The serial number of the CA that signed it.
    pub issuer: SerialNumber,
    /// The fingerprint of the whole certificate.
    pub fingerprint: Fingerprint,
    /// Where it is in its life.
    pub state: ProxyCertificateState,
}

/// The life of a proxy certificate (the seeds: "unclaimed" until a proxy connects with it). It only ever
/// moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyCertificateState {
    /// Issued, never seen.
    Unclaimed,
    /// A proxy has connected with it.
    Claimed {
        /// When the first one did.
        at: Timestamp,
    },
    /// Refused from now on.
    Released {
        /// When it was released.
        at: Timestamp,
    },
}

/// A certificate that a controller replica serves xDS with. Its key never leaves that replica's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerCertificateRecord {
    /// The names and addresses it carries.
    pub names: Vec<String>,
    /// When it is valid.
    pub validity: Validity,
    /// The serial number of the CA that signed it.
    pub issuer: SerialNumber,
    /// The fingerprint of the whole certificate.
    pub fingerprint: Fingerprint,
}
