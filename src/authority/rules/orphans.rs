//! When an orphaned proxy certificate is released.
//!
//! Owns the grace period. A release is irreversible, and a source may lose sight of a pod that
//! still runs, so a certificate is released only after its pod was missing from every check for the
//! whole grace period. Each certificate is counted by itself: one issued meanwhile to a pod that
//! came back is not released with the others.
//!
//! A certificate is issued before its pod exists: the API server stores a pod after its review, and the
//! news of it comes later still. So one that no proxy has used, and whose pod was not seen yet, has at
//! least [`TIME_TO_APPEAR`]. One whose pod was seen has [`UNCLAIMED_KEPT`]. A machine is declared before its
//! certificate is issued, and has no Secret: it has the grace period alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::absences::Absences;
use crate::ledger::{Ledger, ProxyCertificateRecord, ProxyCertificateState};
use crate::pki::SerialNumber;
use smc_types::ids::{ProxyName, ServiceAccountId};
use smc_types::time::Timestamp;

/// How long a pod may take to appear after the issuance of its certificate. The API server stores it within
/// its own limit of half a minute for a request; the rest is for the news of it.
pub const TIME_TO_APPEAR: Duration = Duration::from_mins(5);

/// How long a certificate that no proxy has used stays on record after its pod. Its release leaves no record,
/// from which the deletion of the pod's Secret would follow; the looks for these are half a minute apart.
pub const UNCLAIMED_KEPT: Duration = Duration::from_mins(1);

/// The sidecar that a proxy certificate was issued to, and the identity of its pod, if that is on
/// record.
pub type CertificateHolder = (ProxyName, Option<ServiceAccountId>);

/// The unreleased proxy certificates without a pod, by holder. `account_of` returns the current
/// identity of a sidecar's pod, if there is one.
pub fn orphaned_certificates<'a>(
    ledger: &Ledger,
    account_of: impl Fn(&ProxyName) -> Option<&'a ServiceAccountId>,
) -> BTreeMap<CertificateHolder, BTreeSet<SerialNumber>> {
    let mut orphaned: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (serial, record) in ledger.proxy_certificates() {
        let account = record.service_account.as_ref();
        let has_pod = account.is_some() && account_of(&record.proxy) == account;
        if !has_pod && !record.state.is_released() {
            orphaned
                .entry((record.proxy.clone(), record.service_account.clone()))
                .or_default()
                .insert(*serial);
        }
    }
    orphaned
}

/// The certificates of pods that no proxy has used yet.
pub fn unclaimed_certificates(ledger: &Ledger) -> BTreeSet<SerialNumber> {
    let unclaimed = |record: &ProxyCertificateRecord| {
        record.proxy.service.is_none() && record.state == ProxyCertificateState::Unclaimed
    };
    ledger.proxy_certificates().filter(|(_, record)| unclaimed(record)).map(|(serial, _)| *serial).collect()
}

/// What one look at the ledger, and then at the mesh, finds.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// The unreleased certificates without a pod.
    pub orphaned: BTreeSet<SerialNumber>,
    /// Those that no proxy has used, of pods that are there and of others.
    pub unclaimed: BTreeSet<SerialNumber>,
}

/// How long each orphaned certificate has been without a pod. After a restart the grace period
/// begins again.
#[derive(Debug, Clone)]
pub struct Orphans {
    grace: Duration,
    absences: Absences<SerialNumber>,
    /// The unclaimed certificates whose pods were seen.
    appeared: BTreeSet<SerialNumber>,
}

impl Orphans {
    /// No certificate is orphaned yet. `grace` is the period before an orphaned certificate is
    /// released.
    pub fn new(grace: Duration) -> Self {
        Self { grace, absences: Absences::new(period(grace)), appeared: BTreeSet::new() }
    }

    /// The interval of checks: a tenth of the grace period, at least a second (the clock's
    /// resolution), at most a minute.
    pub fn period(&self) -> Duration {
        period(self.grace)
    }

    /// Counts one check. `look` is `None` if the mesh is not visible, because its sources have not synced
    /// or report no pod at all: such a check does not count. Returns the certificates to release now,
    /// sorted. Later checks return them again while they are orphaned, so a failed release is retried. A
    /// certificate whose pod is seen once is counted from zero again.
    pub fn check(&mut self, look: Option<Look>, now: Timestamp) -> BTreeSet<SerialNumber> {
        let Some(Look { orphaned, unclaimed }) = look else {
            self.absences.blind();
            return BTreeSet::new();
        };
        let (unused, has_pod): (BTreeSet<_>, BTreeSet<_>) =
            unclaimed.into_iter().partition(|serial| orphaned.contains(serial));
        let before = std::mem::replace(&mut self.appeared, has_pod);
        self.appeared.extend(before.intersection(&unused));
        let (grace, appeared) = (self.grace, &self.appeared);
        let kept = |serial| match (unused.contains(serial), appeared.contains(serial)) {
            (false, _) => grace,
            (true, true) => grace.max(UNCLAIMED_KEPT),
            (true, false) => grace.max(TIME_TO_APPEAR),
        };
        let absences = self.absences.look(orphaned, now);
        absences.filter(|(serial, absence)| *absence >= kept(serial)).map(|(serial, _)| *serial).collect()
    }
}

/// The interval of checks for this grace period.
fn period(grace: Duration) -> Duration {
    (grace / 10).clamp(Duration::from_secs(1), Duration::from_mins(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Authority, CaCertificate, Command, Operation, RecordProxyCertificate};
    use crate::pki::{Fingerprint, SealedKey, Validity};
    use smc_types::ids::TrustDomain;

    const START: Timestamp = Timestamp(1_800_000_000);
    const GRACE: Duration = Duration::from_mins(10);

    fn account(name: &str) -> ServiceAccountId {
        ServiceAccountId::new("shop", name).unwrap()
    }

    fn holder(pod: u8, name: Option<&str>) -> CertificateHolder {
        let uuid = smc_types::ids::ProxyUuid(uuid::Uuid::from_bytes([pod; 16]));
        (ProxyName::new(uuid, "shop").unwrap(), name.map(account))
    }

    /// A ledger in which these proxy certificates are on record.
    fn ledger(issued: &[(u8, CertificateHolder)]) -> Ledger {
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
        let issue = |(n, (proxy, service_account)): &(u8, CertificateHolder)| {
            Operation::RecordProxyCertificate(RecordProxyCertificate {
                serial: serial(*n),
                proxy: proxy.clone(),
                service_account: service_account.clone(),
                validity,
                issuer: serial(101),
                fingerprint: Fingerprint::of(&[*n]),
            })
        };
        let mut ledger = Ledger::default();
        for operation in std::iter::once(found).chain(issued.iter().map(issue)) {
            ledger.apply(&Command { at: START, operation }).unwrap();
        }
        ledger
    }

    #[test]
    fn a_certificate_whose_pod_is_gone_changed_or_unknown_is_orphaned() {
        let mut ledger = ledger(&[
            (1, holder(1, Some("store"))),
            (2, holder(2, Some("store"))),
            (3, holder(3, Some("store"))),
            (4, holder(3, Some("buyer"))),
            (5, holder(1, None)),
            (6, holder(2, Some("store"))),
            (7, holder(2, Some("store"))),
        ]);
        let release = Operation::ReleaseProxyCertificates(vec![serial(7)]);
        ledger.apply(&Command { at: START, operation: release }).unwrap();
        // The first and the third pod are there; the third is the buyer's by now.
        let (store, buyer) = (account("store"), account("buyer"));
        let accounts = [(holder(1, None).0, &store), (holder(3, None).0, &buyer)];
        let account_of = |proxy: &ProxyName| {
            accounts.iter().find(|(known, _)| known == proxy).map(|(_, account)| *account)
        };
        let expected = [
            (holder(1, None), BTreeSet::from([serial(5)])),
            (holder(2, Some("store")), BTreeSet::from([serial(2), serial(6)])),
            (holder(3, Some("store")), BTreeSet::from([serial(3)])),
        ];
        assert_eq!(orphaned_certificates(&ledger, account_of), BTreeMap::from(expected));
    }

    fn serial(n: u8) -> SerialNumber {
        SerialNumber::draw([n; 16])
    }

    fn serials(numbers: &[u8]) -> BTreeSet<SerialNumber> {
        numbers.iter().map(|&n| serial(n)).collect()
    }

    /// Checks at these minutes after the start, each with these orphaned certificates; returns what
    /// each releases.
    fn checks(checks: &[(i64, Option<&[u8]>)]) -> Vec<Vec<u8>> {
        let mut orphans = Orphans::new(GRACE);
        let check = |&(minute, missing): &(i64, Option<&[u8]>)| {
            let look = missing.map(|missing| Look { orphaned: serials(missing), ..Look::default() });
            let due = orphans.check(look, Timestamp(START.0 + 60 * minute));
            (0..=9).filter(|&n| due.contains(&serial(n))).collect()
        };
        checks.iter().map(check).collect()
    }

    /// A check every minute from `from` to `to`, both included, all alike.
    fn every_minute(from: i64, to: i64, missing: Option<&[u8]>) -> Vec<(i64, Option<&[u8]>)> {
        (from..=to).map(|minute| (minute, missing)).collect()
    }

    fn released(checked: &[(i64, Option<&[u8]>)]) -> Vec<(i64, Vec<u8>)> {
        let minutes = checked.iter().map(|(minute, _)| *minute);
        minutes.zip(checks(checked)).filter(|(_, due)| !due.is_empty()).collect()
    }

    #[test]
    fn a_certificate_is_due_from_the_grace_on_until_it_is_released() {
        assert_eq!(released(&every_minute(0, 11, Some(&[1]))), [(10, vec![1]), (11, vec![1])]);
        // A released certificate is no longer orphaned.
        let checked = [every_minute(0, 10, Some(&[1])), every_minute(11, 30, Some(&[]))].concat();
        assert_eq!(released(&checked), [(10, vec![1])]);
    }

    #[test]
    fn each_certificate_is_counted_by_itself() {
        let checked = [every_minute(0, 3, Some(&[1])), every_minute(4, 14, Some(&[1, 2]))].concat();
        let expected = [(10, vec![1]), (11, vec![1]), (12, vec![1]), (13, vec![1]), (14, vec![1, 2])];
        assert_eq!(released(&checked), expected);
    }

    #[test]
    fn a_pod_that_comes_back_is_counted_from_zero_again() {
        let checked = [
            every_minute(0, 9, Some(&[1])),
            every_minute(10, 10, Some(&[])),
            every_minute(11, 21, Some(&[1])),
        ];
        assert_eq!(released(&checked.concat()), [(21, vec![1])]);
    }

    #[test]
    fn nothing_counts_while_the_mesh_is_not_visible() {
        let checked = [every_minute(0, 60, None), every_minute(61, 71, Some(&[1]))].concat();
        assert_eq!(released(&checked), [(71, vec![1])]);
        // The count before it stays.
        let checked =
            [every_minute(0, 5, Some(&[1])), every_minute(6, 60, None), every_minute(61, 66, Some(&[1]))];
        assert_eq!(released(&checked.concat()), [(66, vec![1])]);
    }

    #[test]
    fn a_clock_that_jumps_releases_nothing() {
        assert_eq!(released(&[(0, Some(&[1])), (600, Some(&[1])), (60, Some(&[1])), (61, Some(&[1]))]), []);
    }

    /// The first minute in which certificate 1 is due with this grace in minutes, if its pod was seen in
    /// these minutes, and a proxy has used it from the minute `claimed` on.
    fn due_at(grace: u64, seen: std::ops::Range<i64>, claimed: i64) -> Option<i64> {
        let mut orphans = Orphans::new(Duration::from_mins(grace));
        let period = usize::try_from(orphans.period().as_secs()).unwrap();
        let due = (0..3_600).step_by(period).find(|&second| {
            let of = |is: bool| if is { serials(&[1]) } else { BTreeSet::new() };
            let minute = second / 60;
            let look = Look { orphaned: of(!seen.contains(&minute)), unclaimed: of(minute < claimed) };
            !orphans.check(Some(look), Timestamp(START.0 + second)).is_empty()
        });
        due.map(|second| second / 60)
    }

    #[test]
    fn a_pod_that_was_not_seen_yet_has_the_time_to_appear() {
        let never = 100;
        for (grace, seen, claimed, expected) in [
            (1, 0..0, never, Some(5)),
            (10, 0..0, never, Some(10)),
            // The grace counts from the pod's end, and the certificate is known to have had one.
            (2, 3..20, never, Some(22)),
            (2, 0..1, never, Some(3)),
            (2, 3..60, never, None),
            // There is a minute to delete its Secret.
            (0, 3..20, never, Some(21)),
            // A certificate in use had a pod.
            (1, 0..0, 0, Some(1)),
            (0, 0..0, 0, Some(0)),
            (1, 0..0, 3, Some(3)),
        ] {
            assert_eq!(due_at(grace, seen.clone(), claimed), expected, "{grace} {seen:?} {claimed}");
        }
    }

    #[test]
    fn the_unclaimed_certificates_are_those_of_pods_that_no_proxy_has_used() {
        let uuid = "00000000-0000-4000-8000-000000000004";
        let machine = (format!("{uuid}.legacy.shop").parse().unwrap(), None);
        let all = [(1, holder(1, None)), (2, holder(2, None)), (3, holder(3, None)), (4, machine)];
        let mut ledger = ledger(&all);
        let operations = [
            Operation::ClaimProxyCertificate(serial(2)),
            Operation::ReleaseProxyCertificates(vec![serial(3)]),
        ];
        for operation in operations {
            ledger.apply(&Command { at: START, operation }).unwrap();
        }
        assert_eq!(unclaimed_certificates(&ledger), serials(&[1]));
    }

    #[test]
    fn checks_come_a_tenth_of_the_grace_apart_within_bounds() {
        for (grace, period) in [(0, 1), (5, 1), (60, 6), (600, 60), (86_400, 60)] {
            let orphans = Orphans::new(Duration::from_secs(grace));
            assert_eq!(orphans.period(), Duration::from_secs(period), "{grace}");
        }
    }
}
