//! The renewal of service certificates: which are due now, and when the next one is.
//!
//! Owns the schedule as a function of the wanted identities, the ledger and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ledger::Ledger;
use crate::pki::{Lifetimes, reissue_time, renewal_time};
use smc_types::ids::ServiceAccountId;
use smc_types::time::Timestamp;

/// The certificates that the mesh needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WantedCertificates {
    /// The identities that exist.
    pub accounts: BTreeSet<ServiceAccountId>,
    /// The lifetime of certificates issued from now on, before jitter; `None` for the authority's
    /// default.
    pub lifetime: Option<Duration>,
}

/// The due renewals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenewalPlan {
    /// The identities that are due: those without a live certificate first, since their proxies
    /// wait, then by the end of the current certificate.
    pub due: Vec<ServiceAccountId>,
    /// The number of due identities without a live certificate.
    pub missing: usize,
    /// The time at which the next identity falls due; `None` if there is none.
    pub next: Option<Timestamp>,
}

impl RenewalPlan {
    /// Rotates the identities without a certificate by a random number. Replicas that start
    /// together make equal plans, and would otherwise all sign for the same identity at the same
    /// time.
    pub fn begin_at(&mut self, random: u64) {
        if let Some(first) = random.checked_rem(self.missing as u64) {
            self.due[..self.missing].rotate_left(usize::try_from(first).unwrap_or_default());
        }
    }
}

/// Plans the renewals. A certificate that ends later than a new one of the wanted lifetime is due
/// at once, so that a shortened lifetime takes effect; a longer lifetime takes effect at the
/// regular renewal. A certificate whose issuer no longer signs is renewed soon ([`reissue_time`]),
/// so that the issuer can be retired. An identity for which the ledger has no place
/// ([`Ledger::service_places`]) is not due: it waits until others of its namespace have ended.
pub fn plan_renewal(wanted: &WantedCertificates, ledger: &Ledger, now: Timestamp) -> RenewalPlan {
    // A lifetime out of bounds cannot be issued either, and is ignored.
    let longest = wanted.lifetime.and_then(|lifetime| Lifetimes::with_service(lifetime).ok());
    let longest = longest.map(|lifetimes| lifetimes.longest_service());
    let authority = ledger.authority();
    let mut due = Vec::new();
    let mut next: Option<Timestamp> = None;
    let mut places = BTreeMap::new();
    for account in &wanted.accounts {
        if ledger.service_certificate(account).is_none() {
            let namespace = account.namespace();
            let left = places.entry(namespace).or_insert_with(|| ledger.service_places(namespace));
            let Some(rest) = left.checked_sub(1) else { continue };
            *left = rest;
        }
        let live = ledger.service_certificate(account).filter(|record| record.validity.contains(now));
        let root = live.and_then(|record| authority?.root_of(record.issuer));
        let (Some(record), Some(authority), Some(_)) = (live, authority, root) else {
            due.push((None, account));
            continue;
        };
        let mut renewal = renewal_time(&record.serial, record.issued_at, &record.validity);
        if record.issuer != authority.issuing.serial {
            let since = authority.signing_since.unwrap_or(record.issued_at);
            renewal = renewal.min(reissue_time(&record.serial, record.issued_at, &record.validity, since));
        }
        // Counts from the issuance at the earliest: a clock that was put back would renew the
        // certificate repeatedly.
        let outlives = |longest| record.validity.not_after > now.max(record.issued_at).plus(longest);
        if renewal <= now || longest.is_some_and(outlives) {
            due.push((Some(record.validity.not_after), account));
        } else {
            next = Some(next.map_or(renewal, |earlier| earlier.min(renewal)));
        }
    }
    due.sort();
    let missing = due.iter().filter(|(end, _)| end.is_none()).count();
    RenewalPlan { due: due.into_iter().map(|(_, account)| account.clone()).collect(), missing, next }
}

/// The earliest end of the current certificates of the wanted identities; `None` if there is none.
/// A near or past end shows a certificate that could not be renewed.
pub fn earliest_service_end(wanted: &WantedCertificates, ledger: &Ledger) -> Option<Timestamp> {
    let records = wanted.accounts.iter().filter_map(|account| ledger.service_certificate(account));
    records.map(|record| record.validity.not_after).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{
        AgreeOnTime, Authority, CaCertificate, Command, MAX_SERVICE_ACCOUNTS_PER_NAMESPACE, Operation,
        RecordServiceCertificate, Rejection, ServiceCertificateRecord,
    };
    use crate::pki::{SealedKey, SerialNumber, Validity};
    use smc_types::ids::TrustDomain;

    const START: Timestamp = Timestamp(1_800_000_000);

    fn after(seconds: u64) -> Timestamp {
        START.plus(Duration::from_secs(seconds))
    }

    fn sealed() -> SealedKey {
        SealedKey { encryption_key: String::new(), sealed: vec![] }
    }

    fn account(name: &str) -> ServiceAccountId {
        ServiceAccountId::new("bookstore", name).unwrap()
    }

    /// A ledger with certificates that end so many seconds after the start.
    fn ledger(ends: &[(&str, u64)]) -> Ledger {
        let decade = Validity { not_before: START, not_after: after(315_360_000) };
        let ca = |n| CaCertificate {
            serial: SerialNumber::draw([n; 16]),
            validity: decade,
            certificate_pem: String::new(),
            key: sealed(),
        };
        let trust_domain = TrustDomain::new("cluster.local").unwrap();
        let mut ledger = Ledger::default();
        let operations = vec![Operation::InitAuthority(Box::new(Authority::new(trust_domain, ca(0), ca(1))))];
        for operation in operations {
            ledger.apply(&Command { at: START, operation }).unwrap();
        }
        for (n, (name, end)) in (10_000..).zip(ends) {
            ledger.apply(&record(&account(name), n, *end)).unwrap();
        }
        ledger
    }

    /// The first certificate of an identity, which ends so many seconds after the start.
    fn record(account: &ServiceAccountId, n: u16, end: u64) -> Command {
        let mut serial = [0xff; 16];
        serial[14..].copy_from_slice(&n.to_be_bytes());
        let operation = Operation::RecordServiceCertificate(RecordServiceCertificate {
            account: account.clone(),
            requested: false,
            replaces: None,
            record: Box::new(ServiceCertificateRecord {
                serial: SerialNumber::draw(serial),
                validity: Validity { not_before: START, not_after: after(end) },
                issued_at: START,
                issuer: SerialNumber::draw([1; 16]),
                chain_pem: String::new(),
                key: sealed(),
            }),
        });
        Command { at: START, operation }
    }

    fn plan(wanted: &[&str], ledger: &Ledger, now: Timestamp) -> (Vec<String>, Option<Timestamp>) {
        plan_of(wanted, None, ledger, now)
    }

    fn plan_of(
        wanted: &[&str],
        lifetime: Option<u64>,
        ledger: &Ledger,
        now: Timestamp,
    ) -> (Vec<String>, Option<Timestamp>) {
        let accounts = wanted.iter().map(|name| account(name)).collect();
        let wanted = WantedCertificates { accounts, lifetime: lifetime.map(Duration::from_secs) };
        let plan = plan_renewal(&wanted, ledger, now);
        (plan.due.iter().map(|account| account.name().to_owned()).collect(), plan.next)
    }

    #[test]
    fn an_identity_without_a_certificate_is_due_at_once() {
        assert_eq!(plan(&["v1"], &ledger(&[]), START), (vec!["v1".to_owned()], None));
    }

    #[test]
    fn a_full_namespace_gets_no_new_identity_and_takes_no_place_of_another() {
        let mut ledger = ledger(&[("known", 1000)]);
        let wanted = (0..MAX_SERVICE_ACCOUNTS_PER_NAMESPACE).map(|n| account(&format!("a{n}")));
        let others = ["bookstore/known", "bookstore/zz", "shop/buyer"].map(|name| name.parse().unwrap());
        let accounts: BTreeSet<ServiceAccountId> = wanted.chain(others).collect();
        let wanted = WantedCertificates { accounts, lifetime: None };
        let plan = plan_renewal(&wanted, &ledger, START);
        let of = |plan: &RenewalPlan, namespace: &str| {
            plan.due.iter().filter(|account| account.namespace() == namespace).count()
        };
        let places = MAX_SERVICE_ACCOUNTS_PER_NAMESPACE - 1;
        assert_eq!((of(&plan, "bookstore"), of(&plan, "shop")), (places, 1));
        for (n, account) in plan.due.iter().enumerate() {
            ledger.apply(&record(account, u16::try_from(n).unwrap(), 1000)).unwrap();
        }
        assert_eq!((ledger.service_places("bookstore"), ledger.service_places("shop")), (0, places));
        assert!(plan_renewal(&wanted, &ledger, START).due.is_empty());
        let renewed = plan_renewal(&wanted, &ledger, after(900));
        assert_eq!(of(&renewed, "bookstore"), MAX_SERVICE_ACCOUNTS_PER_NAMESPACE, "what is there is renewed");
        // Until the replicas agree on a time, one of them may be of a version without this bound.
        let one_more = record(&account("zz"), 9_999, 1000);
        ledger.clone().apply(&one_more).unwrap();
        let agree = Operation::AgreeOnTime(AgreeOnTime { clocks: [(0, START)].into() });
        ledger.apply(&Command { at: START, operation: agree }).unwrap();
        let refused = ledger.apply(&one_more).unwrap_err();
        assert!(
            matches!(refused, Rejection::Full { max: MAX_SERVICE_ACCOUNTS_PER_NAMESPACE, .. }),
            "{refused}"
        );
    }

    #[test]
    fn a_certificate_is_renewed_before_it_ends_and_not_when_it_is_young() {
        let ledger = ledger(&[("v1", 1000)]);
        let (due, next) = plan(&["v1"], &ledger, after(500));
        assert!(due.is_empty());
        let next = next.unwrap();
        assert!(next > after(500) && next <= after(667), "{next:?}");
        assert_eq!(plan(&["v1"], &ledger, next).0, ["v1"]);
    }

    #[test]
    fn identities_without_a_live_certificate_come_first_then_by_end() {
        let ledger = ledger(&[("a", 1000), ("b", 900), ("ended", 100)]);
        let (due, _) = plan(&["a", "b", "ended", "fresh"], &ledger, after(800));
        assert_eq!(due, ["ended", "fresh", "b", "a"]);
    }

    #[test]
    fn a_plan_may_begin_at_any_missing_certificate_and_leaves_none_out() {
        let ledger = ledger(&[("old", 1000)]);
        let wanted =
            WantedCertificates { accounts: ["a", "b", "c", "old"].map(account).into(), lifetime: None };
        for (random, due) in
            [(0, ["a", "b", "c", "old"]), (1, ["b", "c", "a", "old"]), (5, ["c", "a", "b", "old"])]
        {
            let mut plan = plan_renewal(&wanted, &ledger, after(900));
            plan.begin_at(random);
            assert_eq!(plan.due, due.map(account), "{random}");
        }
        let mut empty = RenewalPlan::default();
        empty.begin_at(7);
        assert_eq!(empty, RenewalPlan::default());
    }

    #[test]
    fn a_shorter_lifetime_renews_what_would_outlive_it_and_nothing_else() {
        let ledger = ledger(&[("v1", 1000)]);
        for (lifetime, at, due) in [
            (None, 100, false),
            (Some(2000), 100, false),
            // Jitter may have made it a tenth longer.
            (Some(910), 0, false),
            (Some(900), 0, true),
            (Some(100), 100, true),
            (Some(500), 400, true),
            (Some(500), 460, false),
            // A lifetime out of bounds is ignored.
            (Some(1), 100, false),
        ] {
            let (planned, next) = plan_of(&["v1"], lifetime, &ledger, after(at));
            assert_eq!(!planned.is_empty(), due, "{lifetime:?} at {at}");
            assert_eq!(next.is_none(), due, "{lifetime:?} at {at}");
        }
    }

    #[test]
    fn an_identity_that_is_gone_is_left_to_end() {
        assert_eq!(plan(&[], &ledger(&[("v1", 100)]), after(99)), (vec![], None));
    }

    #[test]
    fn the_earliest_end_is_that_of_the_wanted_identities() {
        let ledger = ledger(&[("a", 1000), ("b", 900), ("left", 100)]);
        for (names, end) in [(&["a", "b", "fresh"][..], Some(900)), (&["a"], Some(1000)), (&["fresh"], None)]
        {
            let accounts = names.iter().map(|name| account(name)).collect();
            let wanted = WantedCertificates { accounts, lifetime: None };
            assert_eq!(earliest_service_end(&wanted, &ledger), end.map(after), "{names:?}");
        }
    }
}
