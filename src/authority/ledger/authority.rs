//! The mesh's authority: its CAs, and the state of each.
//!
//! Owns what is kept of each CA, and the queries over them. A root or an issuing CA is replaced in
//! steps, each one command (`ca_rotation.rs`). The state is consistent between any two steps, so
//! any replica can take the next one.
//!
//! ```text
//! root:       next ──► signing ──► former ──► gone
//! issuing:             signing ──► (signing for controllers) ──► former ──► gone
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use smc_types::ids::{NamespacedName, TrustDomain};
use smc_types::time::Timestamp;

use crate::pki::{SHORTEST_LIFETIME, SealedKey, SerialNumber, TrustBundle, Validity};

/// One certificate authority of the mesh: its certificate and its sealed key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaCertificate {
    /// The serial number.
    pub serial: SerialNumber,
    /// The CA's validity.
    pub validity: Validity,
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// The private key.
    pub key: SealedKey,
}

/// The mesh's authority, founded once. At its founding it has the first three fields alone, which
/// is also the stored form from before rotations existed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The trust domain of all identities.
    pub trust_domain: TrustDomain,
    /// The root that signs. Every proxy trusts it.
    pub root: CaCertificate,
    /// The issuing CA under the root: it signs leaves.
    pub issuing: CaCertificate,
    /// The time since which this issuing CA signs; `None` for the one of the founding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_since: Option<Timestamp>,
    /// The root that will replace `root`: trusted, but nothing is signed under it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_root: Option<Box<NextRoot>>,
    /// The root before `root`: trusted until nothing that was signed under it is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_root: Option<FormerRoot>,
    /// The last issuing CA under the former root, which signs for controllers alone. A bootstrap
    /// fixes the roots that its proxy trusts, so a controller's certificate must chain to a root of
    /// the oldest bootstrap in use.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "vouching")]
    pub controller_issuer: Option<Box<CaCertificate>>,
    /// Issuing CAs that no longer sign for workloads, and signed certificates that are alive,
    /// oldest first. Includes `controller_issuer`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_issuing: Vec<FormerIssuing>,
    /// The objects that declare roots, by the root: one each, and trusted roots alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) declared_roots: BTreeMap<SerialNumber, NamespacedName>,
}

/// A trusted root that does not sign yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextRoot {
    /// The root.
    pub ca: CaCertificate,
    /// The time since which the root is trusted.
    pub trusted_since: Timestamp,
    /// The latest `not_after` of any service certificate that was issued before the root was
    /// trusted, or before the last acknowledgement. A proxy that was disconnected when its replica
    /// acknowledged holds no certificate that is valid for longer. After this time no valid peer
    /// distrusts the root.
    #[serde(rename = "untold_until")]
    pub old_trust_ends: Timestamp,
    /// The replicas whose connected proxies have all acknowledged the root.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub acknowledged: BTreeSet<u64>,
    /// Whether a person decided not to wait for `old_trust_ends`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hastened: bool,
}

/// A root that no longer signs. Its key is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerRoot {
    /// The serial number.
    pub serial: SerialNumber,
    /// The CA's validity.
    pub validity: Validity,
    /// The certificate, PEM.
    pub certificate_pem: String,
}

/// An issuing CA that no longer signs. The holders of its certificates have its own certificate in
/// their chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerIssuing {
    /// The serial number.
    pub serial: SerialNumber,
    /// The CA's validity.
    pub validity: Validity,
    /// The root that signed the CA.
    pub root: SerialNumber,
}

/// The kind of subject that a certificate is signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedFor {
    /// Workloads and their proxies.
    Workloads,
    /// Controllers.
    Controllers,
}

impl Authority {
    /// A new authority.
    pub fn new(trust_domain: TrustDomain, root: CaCertificate, issuing: CaCertificate) -> Self {
        Self {
            trust_domain,
            root,
            issuing,
            signing_since: None,
            next_root: None,
            former_root: None,
            controller_issuer: None,
            former_issuing: Vec::new(),
            declared_roots: BTreeMap::new(),
        }
    }

    /// The CA that signs at `now`.
    pub fn signer(&self, what: SignedFor, now: Timestamp) -> &CaCertificate {
        let usable = |ca: &CaCertificate| {
            ca.validity.contains(now) && ca.validity.not_after.since(now) >= SHORTEST_LIFETIME
        };
        match (what, self.controller_issuer.as_deref()) {
            // Near the CA's end no proxy depends on it alone: no certificate outlives its issuer.
            (SignedFor::Controllers, Some(issuer)) if usable(issuer) => issuer,
            _ => &self.issuing,
        }
    }

    /// An issuing CA by its serial number, if it may sign for such subjects.
    pub(super) fn may_sign(&self, what: SignedFor, serial: SerialNumber) -> Option<&CaCertificate> {
        let for_controllers = self.controller_issuer.as_deref().filter(|_| what == SignedFor::Controllers);
        [Some(&self.issuing), for_controllers].into_iter().flatten().find(|ca| ca.serial == serial)
    }

    /// Whether this issuing CA signs for controllers alone.
    pub fn is_controller_issuer(&self, issuing: SerialNumber) -> bool {
        self.controller_issuer.as_ref().is_some_and(|issuer| issuer.serial == issuing)
    }

    /// The root above an issuing CA, signing or former; `None` for a CA that is not on record.
    pub fn root_of(&self, issuing: SerialNumber) -> Option<SerialNumber> {
        if issuing == self.issuing.serial {
            return Some(self.root.serial);
        }
        let former = self.former_issuing.iter().find(|former| former.serial == issuing);
        former.map(|former| former.root)
    }

    /// The serial numbers of the trusted roots, the signing one first.
    pub fn trusted_roots(&self) -> impl Iterator<Item = SerialNumber> + '_ {
        let next = self.next_root.iter().map(|next| next.ca.serial);
        let former = self.former_root.iter().map(|former| former.serial);
        [self.root.serial].into_iter().chain(next).chain(former)
    }

    /// The object that declares a root, if one does.
    pub fn declared_by(&self, root: SerialNumber) -> Option<&NamespacedName> {
        self.declared_roots.get(&root)
    }

    /// Whether any root has an object.
    pub fn has_declared_roots(&self) -> bool {
        !self.declared_roots.is_empty()
    }

    /// The trusted root that an object declares.
    pub fn root_declared_by(&self, object: &NamespacedName) -> Option<SerialNumber> {
        self.declared_roots.iter().find(|(_, by)| *by == object).map(|(root, _)| *root)
    }

    /// The mesh's trust bundle: the certificates of [`Self::trusted_roots`].
    pub fn bundle(&self) -> TrustBundle {
        let next = self.next_root.iter().map(|next| next.ca.certificate_pem.as_str());
        let former = self.former_root.iter().map(|former| former.certificate_pem.as_str());
        TrustBundle {
            pem: [self.root.certificate_pem.as_str()].into_iter().chain(next).chain(former).collect(),
        }
    }

    /// The serial numbers of all CAs.
    pub(super) fn serials(&self) -> impl Iterator<Item = SerialNumber> + '_ {
        let issuing = self.former_issuing.iter().map(|former| former.serial);
        self.trusted_roots().chain([self.issuing.serial]).chain(issuing)
    }
}
