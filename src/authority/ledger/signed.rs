//! The live certificates of each CA.
//!
//! Owns their count, which determines how long a CA is needed. A certificate is alive while it may
//! be used: it was not released, and has not ended by the caller's clock, with [`PRUNE_MARGIN`] for
//! the clocks of others.

use std::collections::BTreeMap;

use super::bounds::PRUNE_MARGIN;
use super::rules::Rules;
use super::state::Ledger;
use crate::pki::{LONGEST_SERVICE_LIFETIME, SerialNumber, Validity};
use smc_types::time::Timestamp;

/// The number of live certificates of one CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signed {
    /// Current service certificates.
    pub services: usize,
    /// Superseded service certificates.
    pub superseded: usize,
    /// Proxy certificates.
    pub proxies: usize,
    /// Controller certificates.
    pub controllers: usize,
    /// The end of the last one, also of those of gateways, and of those that are forgotten
    /// ([`super::Operation::ForgetServices`]); `None` if there is none.
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

/// Whether a certificate has ended, with [`PRUNE_MARGIN`].
pub(super) fn is_ended(validity: &Validity, now: Timestamp) -> bool {
    is_past(validity.not_after, now)
}

/// As [`is_ended`], for the end of a validity.
pub(super) fn is_past(end: Timestamp, now: Timestamp) -> bool {
    end.plus(PRUNE_MARGIN) < now
}

impl Ledger {
    /// The certificates alive at `now`, by the serial number of their issuing CA. O(records).
    pub fn signed(&self, now: Timestamp) -> BTreeMap<SerialNumber, Signed> {
        let mut counts = BTreeMap::new();
        let mut count = |issuer: SerialNumber, validity: &Validity, which: fn(&mut Signed) -> &mut usize| {
            if !is_ended(validity, now) {
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
        let gateways = self.gateways.values().map(|record| &record.certificate);
        let gateways = gateways.filter(|record| !is_ended(&record.validity, now));
        let gateways = gateways.map(|record| (record.issuer, record.validity.not_after));
        for (issuer, end) in self.forgotten.alive(now).chain(gateways) {
            let signed = counts.entry(issuer).or_default();
            signed.last_end = signed.last_end.max(Some(end));
        }
        counts
    }

    /// The end of the last service certificate or gateway's, on record or forgotten; `None` if there is none.
    /// Once the group has agreed on a time, one that has not begun at `now` does not count: a wrong clock
    /// issued it, and no peer accepts it. Nor does a forgotten one whose end only a wrong clock makes.
    pub(super) fn last_service_end(&self, now: Timestamp) -> Option<Timestamp> {
        let all = self.agreed_time().is_none();
        let validities = self.services.values().flat_map(|certificates| {
            let superseded = certificates.superseded.iter().map(|old| old.validity);
            superseded.chain([certificates.current.validity])
        });
        let gateways = self.gateways.values().map(|record| record.certificate.validity);
        let counted = validities.chain(gateways).filter(|validity| all || validity.not_before <= now);
        // No service certificate that a right clock made ends later. Before these rules, all counted.
        let longest = LONGEST_SERVICE_LIFETIME + LONGEST_SERVICE_LIFETIME / 5;
        let limit = (self.rules() >= Rules::Fourth).then(|| now.plus(longest));
        counted.map(|validity| validity.not_after).max().max(self.forgotten.last_end(limit))
    }

    /// The end of the last proxy certificate that is alive and was signed under this root; `None`
    /// if there is none.
    pub fn last_proxy_end_under(&self, root: SerialNumber, now: Timestamp) -> Option<Timestamp> {
        let authority = self.authority.as_ref()?;
        let alive = self.proxies.values().filter(|record| {
            !record.state.is_released()
                && !is_ended(&record.validity, now)
                && authority.root_of(record.issuer) == Some(root)
        });
        alive.map(|record| record.validity.not_after).max()
    }
}
