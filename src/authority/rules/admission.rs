//! Admission: whether the holder of a client certificate is a proxy of this mesh, and which one.
//!
//! Owns the decision (docs/design/identity.md). It comes after TLS has verified the chain and the
//! possession of the key, and depends only on the certificate's contents, the ledger and the
//! existing workloads. Does not parse certificates, and does not claim them in the ledger.

use data_encoding::HEXLOWER;
use smc_types::ids::{ProxyName, ServiceAccountId, TrustDomain, WorkloadId};
use smc_types::text::truncated;
use smc_types::time::Timestamp;
use thiserror::Error;

use crate::ledger::{Ledger, ProxyCertificateState};
use crate::pki::{Fingerprint, SerialNumber, Validity};

/// The contents of a peer's certificate. Its chain is verified; the contents are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The DER content bytes of the serial number.
    pub serial: Vec<u8>,
    /// All Common Names of the subject.
    pub common_names: Vec<String>,
    /// All URIs of the subject alternative names.
    pub uris: Vec<String>,
    /// All DNS names of the subject alternative names.
    pub dns_names: Vec<String>,
    /// The certificate's validity.
    pub validity: Validity,
    /// Whether the certificate is a CA's.
    pub ca: bool,
    /// Whether the extended key usage includes client authentication.
    pub client_auth: bool,
    /// The fingerprint of the whole certificate.
    pub fingerprint: Fingerprint,
}

/// The workload in the mesh that a proxy serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWorkload {
    /// The workload's name.
    pub workload: WorkloadId,
    /// The workload's identity.
    pub service_account: ServiceAccountId,
}

/// An admitted proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The proxy's name.
    pub proxy: ProxyName,
    /// The workload that the proxy serves.
    pub workload: WorkloadId,
    /// The identity whose policy and certificate the proxy receives.
    pub service_account: ServiceAccountId,
    /// The proxy's certificate.
    pub serial: SerialNumber,
    /// Whether the certificate is unclaimed: the claim must be committed before the proxy is
    /// served.
    pub first_claim: bool,
}

/// The reason why a peer is refused. The messages go to the peer's log, too: they name only what
/// the peer itself presented.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The certificate is of another kind.
    #[error("this is {0}, not a proxy certificate")]
    OtherKind(&'static str),
    /// The Common Name is not a proxy's.
    #[error(
        "the certificate's common name {0:?} is not <proxy-uuid>.<namespace>, nor <proxy-uuid>.<service>.<namespace>"
    )]
    BadName(String),
    /// The certificate is not on record.
    #[error(
        "certificate {serial} of {proxy} is not on record: this mesh did not issue it, or it has ended or was released"
    )]
    NotIssued {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number in hexadecimal digits, cut to 20 bytes.
        serial: String,
    },
    /// The record with this serial number is of another certificate.
    #[error("certificate {serial} of {proxy} is not the one that was issued under that serial number")]
    NotTheIssued {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
    },
    /// The certificate was released.
    #[error("certificate {serial} of {proxy} was released")]
    Released {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
    },
    /// The certificate was not used in time.
    #[error("certificate {serial} of {proxy} was not used within a day of its issuance")]
    NotClaimedInTime {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
    },
    /// The certificate is expired or not yet valid.
    #[error(
        "certificate {serial} of {proxy} is valid from {from} to {to}, not now",
        from = .validity.not_before.0, to = .validity.not_after.0
    )]
    NotNow {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
        /// The certificate's validity, in seconds since 1970.
        validity: Validity,
    },
    /// No workload of the mesh has this proxy. It may appear later: the proxy should retry.
    #[error("no workload in the mesh has the proxy {0}")]
    NoWorkload(ProxyName),
    /// The proxy's workload has another identity than the certificate was issued for. The identity
    /// may change back, or an update may be on its way: the proxy should retry.
    #[error("certificate {serial} of {proxy} was issued for another service account than its pod has now")]
    OtherAccount {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
    },
    /// The record does not name the identity that the certificate was issued for.
    #[error(
        "it is not on record which service account certificate {serial} of {proxy} was issued for; the proxy needs a \
         new bootstrap"
    )]
    NoAccount {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
    },
    /// The proxy's workload is in another namespace than the certificate.
    #[error("the certificate of {0} is for another pod: its namespace is not that of the pod with this UUID")]
    OtherPod(ProxyName),
    /// The node id that the proxy sends is not the name in its certificate.
    #[error("the certificate of {proxy} is for another pod: the node calls itself {node:?}")]
    OtherNode {
        /// The Common Name.
        proxy: ProxyName,
        /// `node.id` of the xDS request, cut to 128 characters.
        node: String,
    },
}

impl Refusal {
    /// The proxy that the certificate names.
    pub fn proxy(&self) -> Option<&ProxyName> {
        match self {
            Self::OtherKind(_) | Self::BadName(_) => None,
            Self::NoWorkload(proxy)
            | Self::OtherPod(proxy)
            | Self::NotIssued { proxy, .. }
            | Self::NotTheIssued { proxy, .. }
            | Self::Released { proxy, .. }
            | Self::NotClaimedInTime { proxy, .. }
            | Self::NotNow { proxy, .. }
            | Self::OtherAccount { proxy, .. }
            | Self::NoAccount { proxy, .. }
            | Self::OtherNode { proxy, .. } => Some(proxy),
        }
    }

    /// Whether the same certificate may be admitted later.
    pub fn temporary(&self) -> bool {
        match self {
            Self::NoWorkload(_) | Self::OtherAccount { .. } => true,
            Self::NotNow { .. }
            | Self::NotClaimedInTime { .. }
            | Self::OtherKind(_)
            | Self::BadName(_)
            | Self::NotIssued { .. }
            | Self::NotTheIssued { .. }
            | Self::Released { .. }
            | Self::NoAccount { .. }
            | Self::OtherPod(_)
            | Self::OtherNode { .. } => false,
        }
    }
}

impl Admission {
    /// Checks `node.id` of the proxy's request against its certificate. The certificate alone
    /// determines what the proxy receives; a difference shows a bootstrap with another pod's
    /// certificate.
    pub fn check_node(&self, node_id: &str) -> Result<(), Refusal> {
        if node_id == self.proxy.to_string() {
            return Ok(());
        }
        Err(Refusal::OtherNode { proxy: self.proxy.clone(), node: truncated(node_id, 128) })
    }
}

/// The holder of a certificate that is on record and valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// The proxy.
    pub proxy: ProxyName,
    /// The identity that the proxy's pod must have.
    pub account: ServiceAccountId,
    /// The certificate.
    pub serial: SerialNumber,
    /// Whether the certificate is unclaimed.
    pub first_claim: bool,
}

/// Decides whether a certificate identifies a proxy that may be admitted, independently of its
/// workload. This is known right after the handshake. The ledger must be as fresh as the caller
/// needs releases to be.
pub fn identify(peer: &PeerCertificate, ledger: &Ledger, now: Timestamp) -> Result<Identified, Refusal> {
    if peer.ca {
        return Err(Refusal::OtherKind("a certificate authority's certificate"));
    }
    if !peer.uris.is_empty() {
        return Err(Refusal::OtherKind("a service certificate"));
    }
    if !peer.client_auth {
        return Err(Refusal::OtherKind("a certificate that is not for clients"));
    }
    let proxy = proxy_name(&peer.common_names)?;
    let issued = SerialNumber::from_der(&peer.serial)
        .and_then(|serial| Some((serial, ledger.proxy_certificate(&serial)?)));
    let Some((serial, record)) = issued else {
        let bytes = peer.serial.get(..20).unwrap_or(&peer.serial);
        return Err(Refusal::NotIssued { proxy, serial: HEXLOWER.encode(bytes) });
    };
    if record.fingerprint != peer.fingerprint || record.proxy != proxy {
        return Err(Refusal::NotTheIssued { proxy, serial });
    }
    if ledger.is_too_late_to_claim(record) {
        return Err(Refusal::NotClaimedInTime { proxy, serial });
    }
    let first_claim = match record.state {
        ProxyCertificateState::Unclaimed => true,
        ProxyCertificateState::Claimed { .. } => false,
        ProxyCertificateState::Released { .. } => return Err(Refusal::Released { proxy, serial }),
    };
    if !record.validity.contains(now) {
        return Err(Refusal::NotNow { proxy, serial, validity: record.validity });
    }
    // The holder is served by its pod's identity, so the pod must still have the one the
    // certificate was issued for.
    let Some(account) = record.service_account.clone() else {
        return Err(Refusal::NoAccount { proxy, serial });
    };
    Ok(Identified { proxy, account, serial, first_claim })
}

/// Decides whether a peer is admitted: as [`identify`], and its workload must match. `find` returns
/// the workload in the mesh that has the proxy, if there is one.
pub fn admit(
    peer: &PeerCertificate,
    ledger: &Ledger,
    find: impl FnOnce(&ProxyName) -> Option<KnownWorkload>,
    now: Timestamp,
) -> Result<Admission, Refusal> {
    let Identified { proxy, account, serial, first_claim } = identify(peer, ledger, now)?;
    let Some(KnownWorkload { workload, service_account }) = find(&proxy) else {
        return Err(Refusal::NoWorkload(proxy));
    };
    // A lookup by the whole name excludes this. The check stays: it is what refuses a copied UUID.
    if workload.namespace() != &*proxy.namespace {
        return Err(Refusal::OtherPod(proxy));
    }
    if service_account != account {
        return Err(Refusal::OtherAccount { proxy, serial });
    }
    Ok(Admission { proxy, workload, service_account, serial, first_claim })
}

/// The single Common Name, in the canonical form.
fn proxy_name(common_names: &[String]) -> Result<ProxyName, Refusal> {
    let shown = truncated(&common_names.join(" and "), 160);
    let [text] = common_names else { return Err(Refusal::BadName(shown)) };
    match text.parse::<ProxyName>() {
        Ok(name) if name.to_string() == *text => Ok(name),
        _ => Err(Refusal::BadName(shown)),
    }
}

/// The workload identity that a certificate proves: it must be an X.509-SVID leaf with exactly one
/// URI, a SPIFFE ID of this trust domain (X509-SVID §2, §4). A proxy certificate has none.
pub fn service_identity(peer: &PeerCertificate, trust_domain: &TrustDomain) -> Option<ServiceAccountId> {
    match (peer.ca, peer.uris.as_slice()) {
        (false, [uri]) => trust_domain.service_account(uri),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
