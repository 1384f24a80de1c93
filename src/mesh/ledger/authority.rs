//! The mesh's authority: the CAs that there are, and where each is in its life.
//!
//! Owns what is kept of each, and questions about them. A root or an issuing CA is replaced in steps, each of them one
//! command ([`super::rotating`]); between any two of them the state here is whole, so whoever takes over goes on from it.
//!
//! ```text
//! root:       next ──► signing ──► former ──► gone
//! issuing:             signing ──► (vouching) ──► former ──► gone
//! ```

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::TrustDomain;
use crate::pki::{SHORTEST_LIFETIME, SealedKey, SerialNumber, TrustBundle, Validity};
use crate::time::Timestamp;

/// One certificate authority of the mesh: its certificate, and its key, sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaCertificate {
    /// Its serial number.
    pub serial: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// Its private key.
    pub key: SealedKey,
}

/// The mesh's authority, founded once. As founded it has the first three fields alone, and no other was written before
/// there were rotations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The domain that all identities belong to.
    pub trust_domain: TrustDomain,
    /// The root that signs, which everybody trusts.
    pub root: CaCertificate,
    /// The issuing CA under it: what signs.
    pub issuing: CaCertificate,
    /// Since when that one signs; `None` if it was founded with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_since: Option<Timestamp>,
    /// The root that is to take the place of `root`: trusted, and nothing is signed under it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_root: Option<Box<NextRoot>>,
    /// The root before `root`: trusted until nothing that is alive was signed under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_root: Option<FormerRoot>,
    /// The last issuing CA under the former root, which signs for controllers alone: a bootstrap names the roots that
    /// its proxy believes once and for all, so a controller has to show one that the oldest bootstrap knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouching: Option<Box<CaCertificate>>,
    /// Issuing CAs that sign no more and signed what is alive, the vouching one included, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_issuing: Vec<FormerIssuing>,
}

/// A root on its way in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextRoot {
    /// The root.
    pub ca: CaCertificate,
    /// Since when it is trusted.
    pub trusted_since: Timestamp,
    /// The end of the last service certificate that was issued before, or before the last acknowledgement. A proxy that was
    /// not connected when its replica acknowledged, and was not heard of since, holds none that is good for longer, so
    /// from then on it harms nobody that it does not trust this root.
    pub untold_until: Timestamp,
    /// The replicas whose connected proxies have all acknowledged it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub acknowledged: BTreeSet<u64>,
}

/// A root that signs no more. Its key is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerRoot {
    /// Its serial number.
    pub serial: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// The certificate, PEM.
    pub certificate_pem: String,
}

/// An issuing CA that signs no more. Whoever it signed for has its certificate in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerIssuing {
    /// Its serial number.
    pub serial: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// The root that signed it.
    pub root: SerialNumber,
}

/// What a certificate is signed for.
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
            vouching: None,
            former_issuing: Vec::new(),
        }
    }

    /// The CA that signs at `now`.
    pub fn signer(&self, what: SignedFor, now: Timestamp) -> &CaCertificate {
        let usable = |ca: &CaCertificate| {
            ca.validity.contains(now) && ca.validity.not_after.since(now) >= SHORTEST_LIFETIME
        };
        match (what, self.vouching.as_deref()) {
            // Near its end there is nobody left who believes it alone: nothing outlives what signed it.
            (SignedFor::Controllers, Some(vouching)) if usable(vouching) => vouching,
            _ => &self.issuing,
        }
    }

    /// An issuing CA by its serial number, if it may sign this.
    pub(super) fn may_sign(&self, what: SignedFor, serial: SerialNumber) -> Option<&CaCertificate> {
        let vouching = self.vouching.as_deref().filter(|_| what == SignedFor::Controllers);
        [Some(&self.issuing), vouching].into_iter().flatten().find(|ca| ca.serial == serial)
    }

    /// The root under which this issuing CA signs or signed; `None` for a CA that is not the mesh's, or is gone.
    pub fn root_of(&self, issuing: SerialNumber) -> Option<SerialNumber> {
        if issuing == self.issuing.serial {
            return Some(self.root.serial);
        }
        let former = self.former_issuing.iter().find(|former| former.serial == issuing);
        former.map(|former| former.root)
    }

    /// The serial numbers of the roots that are trusted, the signing one first.
    pub fn trusted_roots(&self) -> impl Iterator<Item = SerialNumber> + '_ {
        let next = self.next_root.iter().map(|next| next.ca.serial);
        let former = self.former_root.iter().map(|former| former.serial);
        [self.root.serial].into_iter().chain(next).chain(former)
    }

    /// What everybody is to trust: the certificates of [`Self::trusted_roots`].
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
