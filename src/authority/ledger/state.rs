//! The state of the ledger.
//!
//! Owns its indexes, its canonical form and hash, and the queries over it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use smc_types::ids::{NamespacedName, ProxyName, ServiceAccountId};
use smc_types::time::Timestamp;

use super::authority::Authority;
use super::bounds::{MAX_SERVICE_ACCOUNTS_PER_NAMESPACE, MAX_SUPERSEDED};
use super::forgotten::Forgotten;
use super::placement::Placement;
use super::places::Places;
use super::record::{
    ControllerCertificateRecord, GatewayCertificateRecord, ProxyCertificateRecord, ProxyCertificateState,
    ServiceCertificateRecord, SupersededCertificate,
};
use super::time::LedgerTime;
use crate::pki::SerialNumber;
use data_encoding::HEXLOWER;

/// The certificates that were issued, claimed and released: one in-memory value, changed by
/// [`Ledger::apply`] alone.
///
/// Its JSON form is canonical (sorted maps, one text per value); snapshots hold it and hashes cover
/// it. Clones share unchanged parts, so a clone is O(1): a snapshot is written from one while
/// commands are applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Image")]
pub struct Ledger {
    pub(super) now: LedgerTime,
    pub(super) authority: Option<Authority>,
    pub(super) services: OrdMap<ServiceAccountId, Arc<ServiceCertificates>>,
    pub(super) proxies: OrdMap<SerialNumber, Arc<ProxyCertificateRecord>>,
    pub(super) controllers: OrdMap<SerialNumber, Arc<ControllerCertificateRecord>>,
    #[serde(skip_serializing_if = "OrdMap::is_empty")]
    pub(super) gateways: OrdMap<NamespacedName, Arc<GatewayCertificateRecord>>,
    #[serde(skip_serializing_if = "placement_is_empty")]
    pub(super) placement: Arc<Placement>,
    #[serde(skip_serializing_if = "Forgotten::is_empty")]
    pub(super) forgotten: Forgotten,
    /// Index: the certificates of each proxy.
    #[serde(skip)]
    pub(super) by_proxy: OrdMap<ProxyName, Arc<BTreeSet<SerialNumber>>>,
    /// Index: every serial number on record, of any kind.
    #[serde(skip)]
    pub(super) serials: OrdSet<SerialNumber>,
    /// Index: the proxy certificates that are not in use.
    #[serde(skip)]
    pub(super) places: Places,
}

/// The certificates of one identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServiceCertificates {
    pub(super) current: ServiceCertificateRecord,
    /// Oldest first; at most [`super::MAX_SUPERSEDED`], or one for each issuer of a live
    /// certificate if those are more.
    pub(super) superseded: Vec<SupersededCertificate>,
}

impl ServiceCertificates {
    /// Deletes a superseded certificate if there are too many: the oldest that another one of the
    /// same issuer outlives. The last one of each issuer stays, since the issuer must be trusted
    /// until its end.
    pub(super) fn forget_one(&mut self) -> Option<SerialNumber> {
        if self.superseded.len() <= MAX_SUPERSEDED {
            return None;
        }
        let outlived = self.superseded.iter().position(|old| {
            let others = self.superseded.iter().filter(|other| other.serial != old.serial);
            let mut ends = others
                .map(|other| (other.issuer, other.validity.not_after))
                .chain([(self.current.issuer, self.current.validity.not_after)]);
            ends.any(|(issuer, end)| issuer == old.issuer && end >= old.validity.not_after)
        })?;
        Some(self.superseded.remove(outlived).serial)
    }
}

/// The stored part of the state. The indexes are computed from it.
#[derive(Deserialize)]
struct Image {
    now: LedgerTime,
    authority: Option<Authority>,
    services: OrdMap<ServiceAccountId, Arc<ServiceCertificates>>,
    proxies: OrdMap<SerialNumber, Arc<ProxyCertificateRecord>>,
    controllers: OrdMap<SerialNumber, Arc<ControllerCertificateRecord>>,
    #[serde(default)]
    gateways: OrdMap<NamespacedName, Arc<GatewayCertificateRecord>>,
    #[serde(default)]
    placement: Arc<Placement>,
    #[serde(default)]
    forgotten: Forgotten,
}

fn placement_is_empty(placement: &Arc<Placement>) -> bool {
    placement.is_empty()
}

impl Default for Ledger {
    /// The state before the first command.
    fn default() -> Self {
        Self {
            now: LedgerTime::Latest(Timestamp(0)),
            authority: None,
            services: OrdMap::new(),
            proxies: OrdMap::new(),
            controllers: OrdMap::new(),
            gateways: OrdMap::new(),
            placement: Arc::default(),
            forgotten: Forgotten::default(),
            by_proxy: OrdMap::new(),
            serials: OrdSet::new(),
            places: Places::default(),
        }
    }
}

impl From<Image> for Ledger {
    fn from(image: Image) -> Self {
        let Image { now, authority, services, proxies, controllers, gateways, placement, forgotten } = image;
        let mut by_proxy: OrdMap<ProxyName, Arc<BTreeSet<_>>> = OrdMap::new();
        let mut places = Places::default();
        for (serial, record) in &proxies {
            places.insert(*serial, record);
            Arc::make_mut(by_proxy.entry(record.proxy.clone()).or_default()).insert(*serial);
        }
        let mut serials: OrdSet<SerialNumber> = proxies.keys().chain(controllers.keys()).copied().collect();
        for certificates in services.values() {
            serials.insert(certificates.current.serial);
            serials.extend(certificates.superseded.iter().map(|old| old.serial));
        }
        serials.extend(gateways.values().map(|record| record.certificate.serial));
        if let Some(authority) = &authority {
            serials.extend(authority.serials());
        }
        Self {
            now,
            authority,
            services,
            proxies,
            controllers,
            gateways,
            placement,
            forgotten,
            by_proxy,
            serials,
            places,
        }
    }
}

/// The number of proxy certificates in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyCertificateCounts {
    /// No proxy has connected with them.
    pub unclaimed: usize,
    /// A proxy has connected with them.
    pub claimed: usize,
    /// They are refused.
    pub released: usize,
}

/// The SHA-256 of a ledger's canonical form. Equal states have equal hashes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StateHash([u8; 32]);

impl StateHash {
    /// The hash of a canonical form.
    pub fn of(canonical: &[u8]) -> Self {
        Self(Sha256::digest(canonical).into())
    }
}

impl fmt::Display for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Ledger {
    /// The time that the group agreed on last; before the first agreement, the latest time of any
    /// command.
    pub fn now(&self) -> Timestamp {
        self.now.now()
    }

    /// The mesh's authority, once it is founded.
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// The current certificate of an identity. It may have ended.
    pub fn service_certificate(&self, account: &ServiceAccountId) -> Option<&ServiceCertificateRecord> {
        self.services.get(account).map(|certificates| &certificates.current)
    }

    /// How many more identities of a namespace may have a service certificate
    /// ([`MAX_SERVICE_ACCOUNTS_PER_NAMESPACE`]).
    pub fn service_places(&self, namespace: &str) -> usize {
        // No other name sorts before this one.
        let taken = ServiceAccountId::new(namespace, "0").map_or(0, |first| {
            let from_here = self.services.range(first..);
            from_here.take_while(|(account, _)| account.namespace() == namespace).count()
        });
        MAX_SERVICE_ACCOUNTS_PER_NAMESPACE.saturating_sub(taken)
    }

    /// The current certificates of all identities, sorted by identity.
    pub fn service_certificates(
        &self,
    ) -> impl Iterator<Item = (&ServiceAccountId, &ServiceCertificateRecord)> + '_ {
        self.services.iter().map(|(account, certificates)| (account, &certificates.current))
    }

    /// The superseded certificates of an identity, oldest first.
    pub fn superseded_certificates(&self, account: &ServiceAccountId) -> &[SupersededCertificate] {
        self.services.get(account).map_or(&[], |certificates| &certificates.superseded)
    }

    /// The proxy certificate with this serial number, in any state.
    pub fn proxy_certificate(&self, serial: &SerialNumber) -> Option<&ProxyCertificateRecord> {
        self.proxies.get(serial).map(|record| &**record)
    }

    /// All proxy certificates on record, sorted by serial number.
    pub fn proxy_certificates(&self) -> impl Iterator<Item = (&SerialNumber, &ProxyCertificateRecord)> + '_ {
        self.proxies.iter().map(|(serial, record)| (serial, &**record))
    }

    /// Counts the proxy certificates on record by state. O(records).
    pub fn count_proxy_certificates(&self) -> ProxyCertificateCounts {
        let mut counts = ProxyCertificateCounts::default();
        for record in self.proxies.values() {
            match record.state {
                ProxyCertificateState::Unclaimed => counts.unclaimed += 1,
                ProxyCertificateState::Claimed { .. } => counts.claimed += 1,
                ProxyCertificateState::Released { .. } => counts.released += 1,
            }
        }
        counts
    }

    /// The certificates of one proxy, sorted by serial number.
    pub fn certificates_of(
        &self,
        proxy: &ProxyName,
    ) -> impl Iterator<Item = (&SerialNumber, &ProxyCertificateRecord)> + '_ {
        let serials = self.by_proxy.get(proxy).into_iter().flat_map(|serials| &**serials);
        serials.filter_map(|serial| Some((serial, self.proxy_certificate(serial)?)))
    }

    /// All controller certificates on record, sorted by serial number.
    pub fn controller_certificates(
        &self,
    ) -> impl Iterator<Item = (&SerialNumber, &ControllerCertificateRecord)> + '_ {
        self.controllers.iter().map(|(serial, record)| (serial, &**record))
    }

    /// The canonical form: compact JSON.
    pub fn canonical(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// The hash of the canonical form.
    pub fn state_hash(&self) -> Result<StateHash, serde_json::Error> {
        self.canonical().map(|bytes| StateHash::of(&bytes))
    }
}
