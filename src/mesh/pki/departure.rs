//! When the proxy certificates that no pod is there for are released.
//!
//! Owns the patience: a release is for good, and a source may lose sight of a pod that is still there. So a certificate
//! is released only after every look for a grace found no pod that it fits. Each is counted by itself, so one that was
//! issued meanwhile to a pod that came back is not taken along. Refuses to look at the mesh and to release.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::SerialNumber;
use crate::ids::{ProxyName, ServiceAccountId};
use crate::ledger::Ledger;
use crate::time::Timestamp;

/// Whom a proxy certificate was issued to: the sidecar, and the identity of its pod, where that is on record.
pub type Bearer = (ProxyName, Option<ServiceAccountId>);

/// The unreleased proxy certificates whose bearer is not there, by bearer. `account_of` is the identity of the pod that
/// a sidecar stands beside now, if there is one.
pub fn bearers_without_pod<'a>(
    ledger: &Ledger,
    account_of: impl Fn(&ProxyName) -> Option<&'a ServiceAccountId>,
) -> BTreeMap<Bearer, BTreeSet<SerialNumber>> {
    let mut bearers: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (serial, record) in ledger.proxy_certificates() {
        let account = record.service_account.as_ref();
        let fits = account.is_some() && account_of(&record.proxy) == account;
        if !fits && !record.state.is_released() {
            bearers
                .entry((record.proxy.clone(), record.service_account.clone()))
                .or_default()
                .insert(*serial);
        }
    }
    bearers
}

/// Certificates without a pod, and for how long. A restart begins anew, which errs on the side of patience.
#[derive(Debug, Clone)]
pub struct Departures {
    grace: Duration,
    /// When the latest look was; `None` if that one saw nothing, or there was none.
    looked_at: Option<Timestamp>,
    without_pod: BTreeMap<SerialNumber, Duration>,
}

impl Departures {
    /// No pod is missing yet. `grace` is how long it must have been before its certificate is released.
    pub fn new(grace: Duration) -> Self {
        Self { grace, looked_at: None, without_pod: BTreeMap::new() }
    }

    /// How often to look: a tenth of the grace, so that it is kept to within that; not more often than the clock
    /// ticks, nor less than once a minute.
    pub fn period(&self) -> Duration {
        (self.grace / 10).clamp(Duration::from_secs(1), Duration::from_mins(1))
    }

    /// Takes one look. `without_pod` are the unreleased certificates that fit no pod; `None` if the mesh cannot be
    /// seen, because its sources have not synced or tell of no pod at all: nothing counts then. Returns those to
    /// release now, sorted. They are returned again by every look that finds them so still, so a release that failed is
    /// tried again. One whose pod is seen once is counted from zero again.
    ///
    /// Between two looks no more than two periods count: a clock that jumped, or a process that was asleep, says
    /// nothing about pods.
    pub fn look(
        &mut self,
        without_pod: Option<BTreeSet<SerialNumber>>,
        now: Timestamp,
    ) -> BTreeSet<SerialNumber> {
        let Some(without_pod) = without_pod else {
            self.looked_at = None;
            return BTreeSet::new();
        };
        let passed = self.looked_at.map_or(Duration::ZERO, |last| now.since(last)).min(2 * self.period());
        self.looked_at = Some(now);
        let before = std::mem::take(&mut self.without_pod);
        let counted = |serial: SerialNumber| {
            let absence =
                before.get(&serial).map_or(Duration::ZERO, |absence| absence.saturating_add(passed));
            (serial, absence)
        };
        self.without_pod = without_pod.into_iter().map(counted).collect();
        let due = self.without_pod.iter().filter(|(_, absence)| **absence >= self.grace);
        due.map(|(serial, _)| *serial).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TrustDomain;
    use crate::ledger::{Authority, CaCertificate, Command, Operation};
    use crate::pki::{Fingerprint, SealedKey, Validity};

    const START: Timestamp = Timestamp(1_800_000_000);
    const GRACE: Duration = Duration::from_mins(10);

    fn account(name: &str) -> ServiceAccountId {
        ServiceAccountId::new("shop", name).unwrap()
    }

    fn bearer(pod: u8, name: Option<&str>) -> Bearer {
        let uuid = crate::ids::ProxyUuid(uuid::Uuid::from_bytes([pod; 16]));
        (ProxyName::new(uuid, "shop").unwrap(), name.map(account))
    }

    /// A ledger in which these proxy certificates are on record.
    fn ledger(issued: &[(u8, Bearer)]) -> Ledger {
        let validity = Validity { not_before: START, not_after: START.plus(Duration::from_hours(24)) };
        let ca = |n| CaCertificate {
            serial: serial(n),
            validity,
            certificate_pem: String::new(),
            key: SealedKey { encryption_key: String::new(), sealed: vec![] },
        };
        let trust_domain = TrustDomain::new("cluster.local").unwrap();
        let authority = Authority::new(trust_domain, ca(100), ca(101));
        let found = Operation::InitAuthority(Box::new(authority));
        let issue = |(n, (proxy, service_account)): &(u8, Bearer)| Operation::RecordProxyCertificate {
            serial: serial(*n),
            proxy: proxy.clone(),
            service_account: service_account.clone(),
            validity,
            issuer: serial(101),
            fingerprint: Fingerprint::of(&[*n]),
        };
        let mut ledger = Ledger::default();
        for operation in std::iter::once(found).chain(issued.iter().map(issue)) {
            ledger.apply(&Command { at: START, operation }).unwrap();
        }
        ledger
    }

    #[test]
    fn a_certificate_is_without_pod_if_the_pod_is_gone_or_another_identity_or_was_never_known() {
        let mut ledger = ledger(&[
            (1, bearer(1, Some("store"))),
            (2, bearer(2, Some("store"))),
            (3, bearer(3, Some("store"))),
            (4, bearer(3, Some("buyer"))),
            (5, bearer(1, None)),
            (6, bearer(2, Some("store"))),
            (7, bearer(2, Some("store"))),
        ]);
        let release = Operation::ReleaseProxyCertificates(vec![serial(7)]);
        ledger.apply(&Command { at: START, operation: release }).unwrap();
        // The first and the third pod are there; the third is the buyer's by now.
        let (store, buyer) = (account("store"), account("buyer"));
        let accounts = [(bearer(1, None).0, &store), (bearer(3, None).0, &buyer)];
        let account_of = |proxy: &ProxyName| {
            accounts.iter().find(|(known, _)| known == proxy).map(|(_, account)| *account)
        };
        let expected = [
            (bearer(1, None), BTreeSet::from([serial(5)])),
            (bearer(2, Some("store")), BTreeSet::from([serial(2), serial(6)])),
            (bearer(3, Some("store")), BTreeSet::from([serial(3)])),
        ];
        assert_eq!(bearers_without_pod(&ledger, account_of), BTreeMap::from(expected));
    }

    fn serial(n: u8) -> SerialNumber {
        SerialNumber::draw([n; 16])
    }

    /// Looks at these minutes after the start, each missing these proxies; what each look releases.
    fn looks(looks: &[(i64, Option<&[u8]>)]) -> Vec<Vec<u8>> {
        let mut departures = Departures::new(GRACE);
        let look = |&(minute, missing): &(i64, Option<&[u8]>)| {
            let missing = missing.map(|missing| missing.iter().map(|&n| serial(n)).collect());
            let due = departures.look(missing, Timestamp(START.0 + 60 * minute));
            (0..=9).filter(|&n| due.contains(&serial(n))).collect()
        };
        looks.iter().map(look).collect()
    }

    /// A look every minute from `from` to `to`, both included, all alike.
    fn every_minute(from: i64, to: i64, missing: Option<&[u8]>) -> Vec<(i64, Option<&[u8]>)> {
        (from..=to).map(|minute| (minute, missing)).collect()
    }

    fn released(looked: &[(i64, Option<&[u8]>)]) -> Vec<(i64, Vec<u8>)> {
        let minutes = looked.iter().map(|(minute, _)| *minute);
        minutes.zip(looks(looked)).filter(|(_, due)| !due.is_empty()).collect()
    }

    #[test]
    fn a_certificate_is_released_once_its_pod_has_been_missing_for_the_grace_and_until_it_is() {
        assert_eq!(released(&every_minute(0, 11, Some(&[1]))), [(10, vec![1]), (11, vec![1])]);
        // Released, it is not looked for.
        let looked = [every_minute(0, 10, Some(&[1])), every_minute(11, 30, Some(&[]))].concat();
        assert_eq!(released(&looked), [(10, vec![1])]);
    }

    #[test]
    fn each_is_counted_by_itself() {
        let looked = [every_minute(0, 3, Some(&[1])), every_minute(4, 14, Some(&[1, 2]))].concat();
        let expected = [(10, vec![1]), (11, vec![1]), (12, vec![1]), (13, vec![1]), (14, vec![1, 2])];
        assert_eq!(released(&looked), expected);
    }

    #[test]
    fn who_comes_back_is_counted_from_zero_again() {
        let looked = [
            every_minute(0, 9, Some(&[1])),
            every_minute(10, 10, Some(&[])),
            every_minute(11, 21, Some(&[1])),
        ];
        assert_eq!(released(&looked.concat()), [(21, vec![1])]);
    }

    #[test]
    fn nothing_counts_while_the_mesh_cannot_be_seen() {
        let looked = [every_minute(0, 60, None), every_minute(61, 71, Some(&[1]))].concat();
        assert_eq!(released(&looked), [(71, vec![1])]);
        // What was counted before stays.
        let looked =
            [every_minute(0, 5, Some(&[1])), every_minute(6, 60, None), every_minute(61, 66, Some(&[1]))];
        assert_eq!(released(&looked.concat()), [(66, vec![1])]);
    }

    #[test]
    fn a_clock_that_jumps_releases_nobody() {
        assert_eq!(released(&[(0, Some(&[1])), (600, Some(&[1])), (60, Some(&[1])), (61, Some(&[1]))]), []);
    }

    #[test]
    fn looks_come_a_tenth_of_the_grace_apart_within_bounds() {
        for (grace, period) in [(0, 1), (5, 1), (60, 6), (600, 60), (86_400, 60)] {
            let departures = Departures::new(Duration::from_secs(grace));
            assert_eq!(departures.period(), Duration::from_secs(period), "{grace}");
        }
    }
}
