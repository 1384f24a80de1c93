//! Service certificates of identities that no workload has.
//!
//! Owns the command that forgets them, and what stays of them. Their records and keys go, and no replica
//! serves them any more. A sidecar may hold such a certificate until it ends, so what signed it is trusted
//! until then: of each CA the end of the last one is kept, also of the certificates of gateways that were
//! replaced.

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use super::bounds::{MAX_FORGOTTEN_TOGETHER, UNUSED_KEPT, check_len};
use super::command::ForgetService;
use super::outcome::{Outcome, Reply};
use super::rules::Rules;
use super::signed::is_past;
use super::state::{Ledger, ServiceCertificates};
use crate::pki::{SerialNumber, Validity};
use smc_types::time::Timestamp;

/// The end of the last forgotten certificate of each issuing CA. CAs are few ([`super::MAX_FORMER_ISSUING`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Forgotten(OrdMap<SerialNumber, Timestamp>);

impl Forgotten {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The issuers of those that are alive at `now`, each with the end of the last one.
    pub(super) fn alive(&self, now: Timestamp) -> impl Iterator<Item = (SerialNumber, Timestamp)> + '_ {
        self.0.iter().map(|(issuer, end)| (*issuer, *end)).filter(move |(_, end)| !is_past(*end, now))
    }

    /// The end of the last one that ends by `limit`, if there is one.
    pub(super) fn last_end(&self, limit: Option<Timestamp>) -> Option<Timestamp> {
        self.0.values().copied().filter(|end| limit.is_none_or(|limit| *end <= limit)).max()
    }

    /// Whether the last one of a CA has ended.
    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.0.values().any(|end| is_past(*end, now))
    }

    pub(super) fn forget_ended(&mut self, now: Timestamp) {
        if self.has_ended(now) {
            self.0 = self.alive(now).collect();
        }
    }

    /// Notes the end of a certificate that goes, unless it has ended at `now`.
    pub(super) fn note(&mut self, issuer: SerialNumber, end: Timestamp, now: Timestamp) {
        if is_past(end, now) {
            return;
        }
        let last = self.0.entry(issuer).or_insert(end);
        *last = (*last).max(end);
    }
}

impl ServiceCertificates {
    /// Every certificate, with its issuer.
    fn all(&self) -> impl Iterator<Item = (SerialNumber, SerialNumber, Validity)> + '_ {
        let superseded = self.superseded.iter().map(|old| (old.serial, old.issuer, old.validity));
        superseded.chain([(self.current.serial, self.current.issuer, self.current.validity)])
    }
}

impl Ledger {
    pub(super) fn forget_services(&mut self, unused: &[ForgetService]) -> Outcome {
        check_len("the list of identities", unused.len(), MAX_FORGOTTEN_TOGETHER)?;
        let now = self.check_rules(Rules::Third)?;
        let mut identities = 0;
        for ForgetService { account, serial } in unused {
            let Some(certificates) = self.services.get(account) else { continue };
            let is_young = now.since(certificates.current.issued_at) < UNUSED_KEPT;
            // A wrong clock issued it. Only its record tells it from one that delays a new root.
            let is_ahead = certificates.all().any(|(_, _, validity)| now < validity.not_before);
            if certificates.current.serial != *serial || is_young || is_ahead {
                continue;
            }
            let Some(certificates) = self.services.remove(account) else { continue };
            for (serial, issuer, validity) in certificates.all() {
                self.serials.remove(&serial);
                self.forgotten.note(issuer, validity.not_after, now);
            }
            identities += 1;
        }
        Ok(Reply::Forgotten { identities })
    }
}
