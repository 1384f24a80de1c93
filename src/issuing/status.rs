//! The state of the CA, as the administration shows it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use smc_authority::ledger::{
    Authority, GatewayCertificateRecord, Ledger, NextRoot, ProxyCertificateState, Signed,
};
use smc_authority::pki::{Lifetimes, SerialNumber, Validity};
use smc_authority::rules::ca_warnings;
use smc_types::ids::{NamespacedName, TrustDomain};
use smc_types::time::Timestamp;

/// The stage of a CA's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaState {
    /// A root that is trusted and does not sign yet.
    Next,
    /// It signs.
    Signing,
    /// An issuing CA that signs controllers' certificates only.
    ControllerIssuer,
    /// It no longer signs.
    Former,
}

/// One CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaStatus {
    /// Whether it is a root; otherwise it is an issuing CA.
    pub root: bool,
    /// The stage of its life.
    pub state: CaState,
    /// Its serial number.
    pub serial: SerialNumber,
    /// The root that signed it.
    pub issuer: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// The unexpired certificates that it signed; for a root, those under it.
    pub signed: Signed,
    /// The object that declares a root, if one does.
    pub declared_by: Option<NamespacedName>,
}

/// The progress of a root's rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootRotation {
    /// The new root.
    pub root: SerialNumber,
    /// What the new root waits for before it signs; `None` once it signs and the former root is being
    /// retired.
    pub introduction: Option<Introduction>,
}

/// What a new root waits for before it signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// The replicas whose connected proxies have all acknowledged the root. It waits for all members.
    pub acknowledged: BTreeSet<u64>,
    /// The end of the last service certificate that was issued before the root was trusted.
    pub earliest: Timestamp,
}

/// The state of the CA and of the certificates on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityStatus {
    /// The trust domain.
    pub trust_domain: TrustDomain,
    /// The CAs: roots first, and of each kind the signing ones first. Empty only if the authority is not
    /// founded.
    pub cas: Vec<CaStatus>,
    /// The rotation of a root, if one is in progress.
    pub root_rotation: Option<RootRotation>,
    /// The number of identities with a certificate.
    pub service_certificates: usize,
    /// The number of proxy certificates without a connection so far.
    pub proxy_unclaimed: usize,
    /// The number of proxy certificates in use.
    pub proxy_claimed: usize,
    /// The number of released proxy certificates, which are refused.
    pub proxy_released: usize,
    /// The id of the key-encryption key that this replica seals with.
    pub seals_with: String,
    /// The number of private keys sealed with each key-encryption key, by its id.
    pub sealed_with: BTreeMap<String, usize>,
    /// The hash of the ledger's state, equal on all replicas that applied the same log.
    pub state_hash: String,
    /// Warnings that need an operator.
    pub warnings: Vec<String>,
    /// The time that the replicas agreed on last; `None` before the first agreement.
    pub agreed_time: Option<Timestamp>,
}

impl AuthorityStatus {
    /// The next root, if the proxies of this replica have not acknowledged it yet.
    pub fn root_unacknowledged_by(&self, replica: u64) -> Option<SerialNumber> {
        let rotation = self.root_rotation.as_ref()?;
        let acknowledged = &rotation.introduction.as_ref()?.acknowledged;
        (!acknowledged.contains(&replica)).then_some(rotation.root)
    }
}

/// The use of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IssuedKind {
    /// A root, which signs issuing CAs.
    Root,
    /// An issuing CA, which signs leaves.
    Issuing,
    /// A workload identity.
    Service,
    /// A proxy.
    Proxy,
    /// A controller.
    Controller,
    /// A gateway.
    Gateway,
}

/// One certificate on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Issued {
    /// The use.
    pub kind: IssuedKind,
    /// The name in it.
    pub name: String,
    /// Its serial number.
    pub serial: SerialNumber,
    /// The serial number of the CA that signed it.
    pub issuer: SerialNumber,
    /// The start of its validity, in seconds since 1970.
    pub not_before: Timestamp,
    /// The end of its validity, in seconds since 1970.
    pub not_after: Timestamp,
    /// The state of a proxy certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ProxyCertificateState>,
}

pub(super) fn status(
    ledger: &Ledger,
    trust_domain: &TrustDomain,
    lifetimes: &Lifetimes,
    seals_with: &str,
    now: Timestamp,
) -> AuthorityStatus {
    let proxies = ledger.count_proxy_certificates();
    let authority = ledger.authority();
    AuthorityStatus {
        trust_domain: trust_domain.clone(),
        cas: authority.map(|authority| cas(authority, ledger, now)).unwrap_or_default(),
        root_rotation: authority.and_then(root_rotation),
        service_certificates: ledger.service_certificates().count(),
        proxy_unclaimed: proxies.unclaimed,
        proxy_claimed: proxies.claimed,
        proxy_released: proxies.released,
        seals_with: seals_with.to_owned(),
        sealed_with: sealed_with(ledger),
        state_hash: ledger.state_hash().map(|hash| hash.to_string()).unwrap_or_default(),
        warnings: warnings(ledger, lifetimes, now),
        agreed_time: ledger.agreed_time(),
    }
}

fn sealed_with(ledger: &Ledger) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (_, _, key) in ledger.keys() {
        *counts.entry(key.encryption_key.clone()).or_default() += 1;
    }
    counts
}

fn cas(authority: &Authority, ledger: &Ledger, now: Timestamp) -> Vec<CaStatus> {
    let signed = ledger.signed(now);
    let under = |root: SerialNumber| {
        let counts = signed.iter().filter(|(issuer, _)| authority.root_of(**issuer) == Some(root));
        counts.fold(Signed::default(), |sum, (_, signed)| sum.and(*signed))
    };
    let root = |serial, state, validity| CaStatus {
        root: true,
        state,
        serial,
        issuer: serial,
        validity,
        signed: under(serial),
        declared_by: authority.declared_by(serial).cloned(),
    };
    let issuing = |serial, state, validity, root| CaStatus {
        root: false,
        state,
        serial,
        issuer: root,
        validity,
        signed: signed.get(&serial).copied().unwrap_or_default(),
        declared_by: None,
    };
    let mut all = vec![root(authority.root.serial, CaState::Signing, authority.root.validity)];
    all.extend(authority.next_root.iter().map(|next| root(next.ca.serial, CaState::Next, next.ca.validity)));
    all.extend(
        authority.former_root.iter().map(|former| root(former.serial, CaState::Former, former.validity)),
    );
    let signing = &authority.issuing;
    all.push(issuing(signing.serial, CaState::Signing, signing.validity, authority.root.serial));
    all.extend(authority.former_issuing.iter().map(|former| {
        let still_signs = authority.is_controller_issuer(former.serial);
        let state = if still_signs { CaState::ControllerIssuer } else { CaState::Former };
        issuing(former.serial, state, former.validity, former.root)
    }));
    all
}

/// When a next root may sign at the earliest.
fn signs_from(next: &NextRoot) -> Timestamp {
    if next.hastened { next.trusted_since } else { next.old_trust_ends }
}

fn root_rotation(authority: &Authority) -> Option<RootRotation> {
    if let Some(next) = &authority.next_root {
        let introduction =
            Introduction { acknowledged: next.acknowledged.clone(), earliest: signs_from(next) };
        return Some(RootRotation { root: next.ca.serial, introduction: Some(introduction) });
    }
    authority.former_root.as_ref().map(|_| RootRotation { root: authority.root.serial, introduction: None })
}

/// The texts of the warnings about the authority.
pub(super) fn warnings(ledger: &Ledger, lifetimes: &Lifetimes, now: Timestamp) -> Vec<String> {
    ca_warnings(ledger, lifetimes, now).iter().map(ToString::to_string).collect()
}

pub(super) fn list(ledger: &Ledger, now: Timestamp) -> Vec<Issued> {
    let mut all = Vec::new();
    if let Some(authority) = ledger.authority() {
        all.extend(cas(authority, ledger, now).into_iter().map(|ca| Issued {
            kind: if ca.root { IssuedKind::Root } else { IssuedKind::Issuing },
            name: authority.trust_domain.to_string(),
            serial: ca.serial,
            issuer: ca.issuer,
            not_before: ca.validity.not_before,
            not_after: ca.validity.not_after,
            state: None,
        }));
    }
    for (account, record) in ledger.service_certificates() {
        all.push(Issued {
            kind: IssuedKind::Service,
            name: account.to_string(),
            serial: record.serial,
            issuer: record.issuer,
            not_before: record.validity.not_before,
            not_after: record.validity.not_after,
            state: None,
        });
    }
    for (serial, record) in ledger.proxy_certificates() {
        all.push(Issued {
            kind: IssuedKind::Proxy,
            name: record.proxy.to_string(),
            serial: *serial,
            issuer: record.issuer,
            not_before: record.validity.not_before,
            not_after: record.validity.not_after,
            state: Some(record.state),
        });
    }
    for (serial, record) in ledger.controller_certificates() {
        all.push(Issued {
            kind: IssuedKind::Controller,
            name: record.names.join(" "),
            serial: *serial,
            issuer: record.issuer,
            not_before: record.validity.not_before,
            not_after: record.validity.not_after,
            state: None,
        });
    }
    for (secret, GatewayCertificateRecord { certificate, .. }) in ledger.gateway_certificates() {
        all.push(Issued {
            kind: IssuedKind::Gateway,
            name: secret.to_string(),
            serial: certificate.serial,
            issuer: certificate.issuer,
            not_before: certificate.validity.not_before,
            not_after: certificate.validity.not_after,
            state: None,
        });
    }
    all.sort_by(|a, b| (a.kind, &a.name, a.serial).cmp(&(b.kind, &b.name, b.serial)));
    all
}
