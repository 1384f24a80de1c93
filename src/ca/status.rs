//! The authority as it is shown to people.

use std::time::Duration;

use serde::Serialize;
use smc_mesh::ids::TrustDomain;
use smc_mesh::ledger::{Authority, CaCertificate, Ledger, ProxyCertificateState};
use smc_mesh::pki::{Lifetimes, SerialNumber};
use smc_mesh::time::Timestamp;

/// One CA of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaStatus {
    /// Its serial number.
    pub serial: SerialNumber,
    /// Its first moment, in seconds since 1970.
    pub not_before: Timestamp,
    /// Its last moment, in seconds since 1970.
    pub not_after: Timestamp,
}

/// The state of the authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthorityStatus {
    /// The trust domain.
    pub trust_domain: TrustDomain,
    /// The root; absent only if the ledger is not founded.
    pub root: Option<CaStatus>,
    /// What signs.
    pub issuing: Option<CaStatus>,
    /// Identities with a certificate.
    pub service_certificates: usize,
    /// Proxy certificates that nobody connected with yet.
    pub proxy_unclaimed: usize,
    /// Proxy certificates in use.
    pub proxy_claimed: usize,
    /// Proxy certificates that are refused.
    pub proxy_released: usize,
    /// The hash of the ledger's state, equal on all replicas that applied the same log.
    pub state_hash: String,
    /// What a person should do something about.
    pub warnings: Vec<String>,
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
    now: Timestamp,
) -> AuthorityStatus {
    let shown = |ca: &CaCertificate| CaStatus {
        serial: ca.serial,
        not_before: ca.validity.not_before,
        not_after: ca.validity.not_after,
    };
    let proxies = ledger.count_proxy_certificates();
    let authority = ledger.authority();
    AuthorityStatus {
        trust_domain: trust_domain.clone(),
        root: authority.map(|authority| shown(&authority.root)),
        issuing: authority.map(|authority| shown(&authority.issuing)),
        service_certificates: ledger.service_certificates().count(),
        proxy_unclaimed: proxies.unclaimed,
        proxy_claimed: proxies.claimed,
        proxy_released: proxies.released,
        state_hash: ledger.state_hash().map(|hash| hash.to_string()).unwrap_or_default(),
        warnings: warnings(ledger, lifetimes, now),
    }
}

/// Warns from the day on which the end of a CA begins to shorten what it signs.
pub(super) fn warnings(ledger: &Ledger, lifetimes: &Lifetimes, now: Timestamp) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(authority) = ledger.authority() else { return warnings };
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

pub(super) fn list(ledger: &Ledger) -> Vec<Issued> {
    let mut all = Vec::new();
    if let Some(Authority { trust_domain, root, issuing }) = ledger.authority() {
        for (kind, ca) in [(IssuedKind::Root, root), (IssuedKind::Issuing, issuing)] {
            all.push(Issued {
                kind,
                name: trust_domain.to_string(),
                serial: ca.serial,
                issuer: root.serial,
                not_before: ca.validity.not_before,
                not_after: ca.validity.not_after,
                state: None,
            });
        }
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
