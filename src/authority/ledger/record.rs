//! The ledger's records of certificates and private keys.
//!
//! Owns their stored form.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use smc_types::ids::{NamespacedName, ProxyName, ServiceAccountId, TrustDomain};
use smc_types::time::Timestamp;

use crate::pki::{Fingerprint, SealedKey, SerialNumber, Validity};

/// The certificate that all proxies of one identity share. Its sealed key is kept with it, so that
/// every replica serves the same certificate, also after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCertificateRecord {
    /// The serial number.
    pub serial: SerialNumber,
    /// The certificate's validity.
    pub validity: Validity,
    /// The time of issuance, by the issuing replica's clock.
    pub issued_at: Timestamp,
    /// The serial number of the CA that signed the certificate.
    pub issuer: SerialNumber,
    /// Leaf and issuer, concatenated PEM.
    pub chain_pem: String,
    /// The leaf's private key.
    pub key: SealedKey,
}

/// The certificate of a gateway, with its sealed key: any replica can write the gateway's Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayCertificateRecord {
    /// The DNS names in the certificate.
    pub names: BTreeSet<String>,
    /// The lifetime that was asked for, in seconds, before jitter.
    pub lifetime: u64,
    /// The certificate and its key.
    pub certificate: ServiceCertificateRecord,
}

/// A service certificate that is no longer current, and may be in use until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupersededCertificate {
    /// The serial number.
    pub serial: SerialNumber,
    /// The certificate's validity.
    pub validity: Validity,
    /// The serial number of the CA that signed the certificate, which must be trusted until the
    /// certificate ends.
    pub issuer: SerialNumber,
}

/// A certificate that was issued to a proxy. The proxy alone has the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyCertificateRecord {
    /// The proxy in the certificate's Common Name.
    pub proxy: ProxyName,
    /// The identity of the pod that the certificate was issued for. The holder is served the policy
    /// and the certificate of this identity alone, since a pod of the same name may later have
    /// another one. The oldest records have none, and match no pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountId>,
    /// The certificate's validity.
    pub validity: Validity,
    /// The time of issuance.
    pub issued_at: Timestamp,
    /// The serial number of the CA that signed the certificate.
    pub issuer: SerialNumber,
    /// The fingerprint of the whole certificate.
    pub fingerprint: Fingerprint,
    /// Which of the proxy certificates since the group agreed on a time this is, from 1 on; 0 for
    /// one from before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub number: u64,
    /// The state in the certificate's life.
    pub state: ProxyCertificateState,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The life of a proxy certificate (the seeds: "unclaimed" until a proxy connects with it). A
/// certificate only moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyCertificateState {
    /// No proxy has connected with the certificate.
    Unclaimed,
    /// A proxy has connected with the certificate.
    Claimed {
        /// The time of the first connection.
        at: Timestamp,
    },
    /// The certificate is refused.
    Released {
        /// The time of the release.
        at: Timestamp,
    },
}

impl ProxyCertificateState {
    /// Whether the certificate was released.
    pub fn is_released(self) -> bool {
        matches!(self, Self::Released { .. })
    }
}

/// A certificate that a controller replica serves xDS with. Its key never leaves that replica's
/// memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerCertificateRecord {
    /// The names and addresses in the certificate.
    pub names: Vec<String>,
    /// The certificate's validity.
    pub validity: Validity,
    /// The serial number of the CA that signed the certificate.
    pub issuer: SerialNumber,
    /// The fingerprint of the whole certificate.
    pub fingerprint: Fingerprint,
}

/// The owner of the certificate that a private key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOwner<'a> {
    /// A root of this trust domain.
    Root(&'a TrustDomain),
    /// An issuing CA of this trust domain.
    Issuing(&'a TrustDomain),
    /// A workload identity.
    Service(&'a ServiceAccountId),
    /// A gateway, by its Secret.
    Gateway(&'a NamespacedName),
}

/// A private key, sealed with another key-encryption key than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RekeyedKey {
    /// The identity of the key's certificate; `None` for that of a CA or a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<ServiceAccountId>,
    /// The serial number of the key's certificate.
    pub serial: SerialNumber,
    /// The key.
    pub key: SealedKey,
}
