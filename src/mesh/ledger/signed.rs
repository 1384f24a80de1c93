//! What is alive of what each CA signed.
//!
//! Owns the count, which tells how long a CA is needed. Alive is whatever may be used: what has not ended by the caller's
//! clock, with [`PRUNE_MARGIN`] for the others', and was not released.

use std::collections::BTreeMap;

use super::bounds::PRUNE_MARGIN;
use super::state::Ledger;
use crate::pki::{SerialNumber, Validity};
use crate::time::Timestamp;

/// The certificates of one CA that are alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signed {
    /// Current service certificates.
    pub services: usize,
    /// Service certificates that others took the place of.
    pub superseded: usize,
    /// Proxy certificates.
    pub proxies: usize,
    /// Controller certificates.
    pub controllers: usize,
    /// When the last of them ends; `None` if there is none.
    pub last_end: Option<Timestamp>,
}

impl Signed {
    /// Adds up two counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            services: self.services + other.services,
            superseded: self.superseded + other.superseded,
            proxies: self.proxies + other.proxies,
            controllers: self.controllers + other.controllers,
            last_end: self.last_end.max(other.last_end),
        }
    }
}

pub(super) fn is_past(validity: &Validity, now: Timestamp) -> bool {
    validity.not_after.plus(PRUNE_MARGIN) < now
}

impl Ledger {
    /// What is alive at `now`, by the serial number of the issuing CA. Looks at every record.
    pub fn signed(&self, now: Timestamp) -> BTreeMap<SerialNumber, Signed> {
        let mut counts = BTreeMap::new();
        let mut count = |issuer: SerialNumber, validity: &Validity, which: fn(&mut Signed) -> &mut usize| {
            if !is_past(validity, now) {
                let signed: &mut Signed = counts.entry(issuer).or_default();
                *which(signed) += 1;
                signed.last_end = signed.last_end.max(Some(validity.not_after));
            }
        };
        for certificates in self.services.values() {
            count(certificates.current.issuer, &certificates.current.validity, |signed| &mut signed.services);
            for old in &certificates.superseded {
                count(old.issuer, &old.validity, |signed| &mut signed.superseded);
            }
        }
        for record in self.proxies.values().filter(|record| !record.state.is_released()) {
            count(record.issuer, &record.validity, |signed| &mut signed.proxies);
        }
        for record in self.controllers.values() {
            count(record.issuer, &record.validity, |signed| &mut signed.controllers);
        }
        counts
    }

    /// When the last service certificate on record ends; `None` if there is none.
    pub(super) fn last_service_end(&self) -> Option<Timestamp> {
        let ends = |certificates: &super::state::ServiceCertificates| {
            let superseded = certificates.superseded.iter().map(|old| old.validity.not_after).max();
            superseded.max(Some(certificates.current.validity.not_after))
        };
        self.services.values().filter_map(|certificates| ends(certificates)).max()
    }

    /// When the last proxy certificate ends that is alive and was signed under this root; `None` if none is.
    pub fn last_proxy_end_under(&self, root: SerialNumber, now: Timestamp) -> Option<Timestamp> {
        let authority = self.authority.as_ref()?;
        let alive = self.proxies.values().filter(|record| {
            !record.state.is_released()
                && !is_past(&record.validity, now)
                && authority.root_of(record.issuer) == Some(root)
        });
        alive.map(|record| record.validity.not_after).max()
    }
}
