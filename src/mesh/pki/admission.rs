//! Who is let in: whether the holder of a client certificate is a proxy of this mesh, and which one.
//!
//! Owns the decision (DESIGN §1.1, "nobody gets in who doesn't belong"). It comes after TLS has verified
//! the chain and the possession of the key, and looks only at what the certificate says, the ledger, and
//! the workloads that exist. Refuses to parse certificates and to change the ledger.

use thiserror::Error;

use super::{Fingerprint, SerialNumber, Validity};
use crate::ids::{ProxyName, ServiceAccountId, TrustDomain, WorkloadId};
use crate::ledger::{Ledger, ProxyCertificateState};
use crate::time::Timestamp;

/// What a peer's certificate says, as the shell read it. The chain is verified; nothing here is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The content octets of the serial number.
    pub serial: Vec<u8>,
    /// All Common Names of the subject.
    pub common_names: Vec<String>,
    /// All URIs of the subject alternative names.
    pub uris: Vec<String>,
    /// When it is valid.
    pub validity: Validity,
    /// Whether it is a CA's.
    pub ca: bool,
    /// Whether its extended key usage names client authentication.
    pub client_auth: bool,
    /// The fingerprint of the whole certificate.
    pub fingerprint: Fingerprint,
}

/// The in-mesh workload that a proxy stands beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWorkload {
    /// Its name.
    pub workload: WorkloadId,
    /// Who it is.
    pub service_account: ServiceAccountId,
}

/// A proxy that is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Its name.
    pub proxy: ProxyName,
    /// The workload beside it.
    pub workload: WorkloadId,
    /// Whose policy and certificate it is to receive.
    pub service_account: ServiceAccountId,
    /// The certificate it came with.
    pub serial: SerialNumber,
    /// Whether the certificate is unclaimed: the claim must be committed before the proxy is served.
    pub first_claim: bool,
}

/// Why a peer is not let in. The messages are meant for the peer's log as well as for ours: they name what
/// the peer itself showed, and nothing that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It is a certificate of another kind.
    #[error("this is {0}, not a proxy certificate")]
    OtherKind(&'static str),
    /// Its Common Name is not that of a proxy.
    #[error(
        "the certificate's common name {0:?} is not <proxy-uuid>.<namespace>, nor <proxy-uuid>.<service>.<namespace>"
    )]
    BadName(String),
    /// The ledger has no record of it.
    #[error("certificate {serial} of {proxy} was not issued by this mesh, or is long gone")]
    NotIssued {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number's octets, in hexadecimal digits, cut to 20 octets.
        serial: String,
    },
    /// The ledger's record of this serial is of another certificate.
    #[error("certificate {serial} of {proxy} is not the one that was issued under that serial number")]
    NotTheIssued {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
    },
    /// It was released.
    #[error("certificate {serial} of {proxy} was released")]
    Released {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
    },
    /// It has ended, or has not begun.
    #[error("certificate {serial} of {proxy} is valid from {from} to {to}, not now", from = .validity.not_before.0, to = .validity.not_after.0)]
    NotNow {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
        /// When it is valid, in seconds since 1970.
        validity: Validity,
    },
    /// No workload of the mesh has this proxy. It may appear: the proxy should try again.
    #[error("no workload in the mesh has the proxy {0}")]
    NoWorkload(ProxyName),
    /// The workload that has this proxy has another identity than the one that the certificate was issued for. It may
    /// change back, or its news may be on the way: the proxy should try again.
    #[error("certificate {serial} of {proxy} was issued for another service account than its pod has now")]
    OtherAccount {
        /// The Common Name.
        proxy: ProxyName,
        /// The serial number.
        serial: SerialNumber,
    },
    /// It is not on record for which identity the certificate was issued, so it fits none.
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
    /// The workload that has this proxy is in another namespace than the certificate.
    #[error("the certificate of {0} is for another pod: its namespace is not that of the pod with this UUID")]
    OtherPod(ProxyName),
    /// The node that the proxy says it is is not the one its certificate is for.
    #[error("the certificate of {proxy} is for another pod: the node calls itself {node:?}")]
    OtherNode {
        /// The Common Name.
        proxy: ProxyName,
        /// `node.id` of the xDS request, cut to 128 characters.
        node: String,
    },
}

impl Refusal {
    /// Whether the same certificate may be let in later without anybody issuing or changing it.
    pub fn temporary(&self) -> bool {
        match self {
            Self::NoWorkload(_) | Self::OtherAccount { .. } => true,
            Self::NotNow { .. }
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
    /// Checks the name that the proxy gives itself (`node.id`) against its certificate. The certificate
    /// alone decides what the proxy receives; a difference shows a bootstrap that was mixed up.
    pub fn check_node(&self, node_id: &str) -> Result<(), Refusal> {
        if node_id == self.proxy.to_string() {
            return Ok(());
        }
        Err(Refusal::OtherNode { proxy: self.proxy.clone(), node: node_id.chars().take(128).collect() })
    }
}

/// Who a certificate says that its holder is, and that the ledger knows it and it is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// The proxy.
    pub proxy: ProxyName,
    /// The identity that its pod must have.
    pub account: ServiceAccountId,
    /// The certificate.
    pub serial: SerialNumber,
    /// Whether it is unclaimed.
    pub first_claim: bool,
}

/// Decides on a certificate by itself: whether it is one that a proxy may be let in with. This is known when the
/// handshake is over, whatever the mesh knows of the proxy's workload by then. The ledger must be as fresh as the caller
/// needs a release to be.
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
        let octets = peer.serial.get(..20).unwrap_or(&peer.serial);
        return Err(Refusal::NotIssued { proxy, serial: super::encode_hex(octets) });
    };
    if record.fingerprint != peer.fingerprint || record.proxy != proxy {
        return Err(Refusal::NotTheIssued { proxy, serial });
    }
    let first_claim = match record.state {
        ProxyCertificateState::Unclaimed => true,
        ProxyCertificateState::Claimed { .. } => false,
        ProxyCertificateState::Released { .. } => return Err(Refusal::Released { proxy, serial }),
    };
    if !record.validity.contains(now) {
        return Err(Refusal::NotNow { proxy, serial, validity: record.validity });
    }
    // Whoever bears a pod's name and UUID is served what the pod is: it must still be the pod that was meant.
    let Some(account) = record.service_account.clone() else {
        return Err(Refusal::NoAccount { proxy, serial });
    };
    Ok(Identified { proxy, account, serial, first_claim })
}

/// Decides on a peer. `find` answers with the in-mesh workload that has the proxy, if there is one. Else as [`identify`].
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
    // Looked up by the whole name, it cannot be; it is what keeps a copied UUID out, so it is checked all the same.
    if workload.namespace() != &*proxy.namespace {
        return Err(Refusal::OtherPod(proxy));
    }
    if service_account != account {
        return Err(Refusal::OtherAccount { proxy, serial });
    }
    Ok(Admission { proxy, workload, service_account, serial, first_claim })
}

/// The one Common Name, in the one form that SMC writes it.
fn proxy_name(common_names: &[String]) -> Result<ProxyName, Refusal> {
    let shown = common_names.join(" and ").chars().take(160).collect();
    let [text] = common_names else { return Err(Refusal::BadName(shown)) };
    match text.parse::<ProxyName>() {
        Ok(name) if name.to_string() == *text => Ok(name),
        _ => Err(Refusal::BadName(shown)),
    }
}

/// The workload identity that a certificate proves: it must be an X.509-SVID leaf with exactly one URI, a
/// SPIFFE ID of this trust domain (X509-SVID §2, §4). A proxy certificate has none.
pub fn service_identity(peer: &PeerCertificate, trust_domain: &TrustDomain) -> Option<ServiceAccountId> {
    match (peer.ca, peer.uris.as_slice()) {
        (false, [uri]) => trust_domain.service_account(uri),
        _ => None,
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
