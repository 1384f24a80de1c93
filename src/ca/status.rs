//! The authority as it is shown to people.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use smc_mesh::ids::TrustDomain;
use smc_mesh::ledger::{Authority, Ledger, ProxyCertificateState, Signed};
use smc_mesh::pki::{Lifetimes, SerialNumber, Validity};
use smc_mesh::time::Timestamp;

/// How long a root may take to sign after nothing but acknowledgements is missing: they take seconds.
const LATE: Duration = Duration::from_hours(1);

/// Where a CA is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaState {
    /// A root that is trusted, under which nothing is signed yet.
    Next,
    /// It signs.
    Signing,
    /// An issuing CA that signs for controllers alone.
    Vouching,
    /// It signs no more.
    Former,
}

/// One CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaStatus {
    /// Whether it is a root, and not an issuing CA.
    pub root: bool,
    /// Where it is in its life.
    pub state: CaState,
    /// Its serial number.
    pub serial: SerialNumber,
    /// The root that signed it.
    pub issuer: SerialNumber,
    /// When it is valid.
    pub validity: Validity,
    /// What it signed that is alive: of a root all under it.
    pub signed: Signed,
}

/// How far the rotation of a root is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootRotation {
    /// The root that comes, or has come.
    pub root: SerialNumber,
    /// While everybody is told to trust it: what that waits for. `None` once it signs, and the root before it is on its
    /// way out.
    pub introduction: Option<Introduction>,
}

/// What a root that does not sign yet waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// The replicas whose connected proxies have all acknowledged it; it waits for all that are members.
    pub acknowledged: BTreeSet<u64>,
    /// The end of the last service certificate that was issued before it was trusted.
    pub earliest: Timestamp,
}

/// The state of the authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityStatus {
    /// The trust domain.
    pub trust_domain: TrustDomain,
    /// The CAs, roots first, and of each kind those that sign first; none only if the ledger is not founded.
    pub cas: Vec<CaStatus>,
    /// A root that is being rotated.
    pub root_rotation: Option<RootRotation>,
    /// Identities with a certificate.
    pub service_certificates: usize,
    /// Proxy certificates that nobody connected with yet.
    pub proxy_unclaimed: usize,
    /// Proxy certificates in use.
    pub proxy_claimed: usize,
    /// Proxy certificates that are refused.
    pub proxy_released: usize,
    /// The id of the key-encryption key that this replica seals with.
    pub seals_with: String,
    /// How many private keys are sealed with which key-encryption key, by its id.
    pub sealed_with: BTreeMap<String, usize>,
    /// The hash of the ledger's state, equal on all replicas that applied the same log.
    pub state_hash: String,
    /// What a person should do something about.
    pub warnings: Vec<String>,
}

impl AuthorityStatus {
    /// The root that the proxies of this replica have not acknowledged yet, and are to.
    pub fn awaited_from(&self, replica: u64) -> Option<SerialNumber> {
        let rotation = self.root_rotation.as_ref()?;
        let acknowledged = &rotation.introduction.as_ref()?.acknowledged;
        (!acknowledged.contains(&replica)).then_some(rotation.root)
    }
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IssuedKind {
    /// Signs CAs.
    Root,
    /// Signs leaves.
    Issuing,
    /// A workload identity.
    Service,
    /// A proxy.
    Proxy,
    /// A controller.
    Controller,
}

/// One certificate on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Issued {
    /// What it is for.
    pub kind: IssuedKind,
    /// Whom it names.
    pub name: String,
    /// Its serial number.
    pub serial: SerialNumber,
    /// The serial number of what signed it.
    pub issuer: SerialNumber,
    /// Its first moment, in seconds since 1970.
    pub not_before: Timestamp,
    /// Its last moment, in seconds since 1970.
    pub not_after: Timestamp,
    /// Where a proxy certificate is in its life.
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
    };
    let issuing = |serial, state, validity, root| CaStatus {
        root: false,
        state,
        serial,
        issuer: root,
        validity,
        signed: signed.get(&serial).copied().unwrap_or_default(),
    };
    let mut all = vec![root(authority.root.serial, CaState::Signing, authority.root.validity)];
    all.extend(authority.next_root.iter().map(|next| root(next.ca.serial, CaState::Next, next.ca.validity)));
    all.extend(
        authority.former_root.iter().map(|former| root(former.serial, CaState::Former, former.validity)),
    );
    let signing = &authority.issuing;
    all.push(issuing(signing.serial, CaState::Signing, signing.validity, authority.root.serial));
    all.extend(authority.former_issuing.iter().map(|former| {
        let vouches = authority.vouching.as_ref().is_some_and(|vouching| vouching.serial == former.serial);
        let state = if vouches { CaState::Vouching } else { CaState::Former };
        issuing(former.serial, state, former.validity, former.root)
    }));
    all
}

fn root_rotation(authority: &Authority) -> Option<RootRotation> {
    if let Some(next) = &authority.next_root {
        let introduction =
            Introduction { acknowledged: next.acknowledged.clone(), earliest: next.untold_until };
        return Some(RootRotation { root: next.ca.serial, introduction: Some(introduction) });
    }
    authority.former_root.as_ref().map(|_| RootRotation { root: authority.root.serial, introduction: None })
}

/// Warns from the day on which the end of a CA begins to shorten what it signs, and when a root should sign and does not.
pub(super) fn warnings(ledger: &Ledger, lifetimes: &Lifetimes, now: Timestamp) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(authority) = ledger.authority() else { return warnings };
    if let Some(next) = &authority.next_root
        && now.since(next.untold_until) > LATE
    {
        let said: Vec<_> = next.acknowledged.iter().map(ToString::to_string).collect();
        warnings.push(format!(
            "the root {} is trusted and does not sign: it waits for the proxies of all replicas to acknowledge it, and \
             those of replicas [{}] have",
            next.ca.serial,
            said.join(", ")
        ));
    }
    for (name, ca, signs) in
        [("root CA", &authority.root, lifetimes.issuing), ("issuing CA", &authority.issuing, lifetimes.proxy)]
    {
        let left = ca.validity.not_after.since(now);
        if left == Duration::ZERO {
            warnings.push(format!("the {name} {} has ended: nothing can be issued", ca.serial));
        } else if left < signs {
            let days = left.as_secs() / (24 * 3600);
            warnings
                .push(format!("the {name} {} ends in {days} days: what it signs ends with it", ca.serial));
        }
    }
    warnings
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
    all.sort_by(|a, b| (a.kind, &a.name, a.serial).cmp(&(b.kind, &b.name, b.serial)));
    all
}
