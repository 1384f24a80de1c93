mod rotating;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ids::{ProxyName, ServiceAccountId, TrustDomain};
use crate::pki::{Fingerprint, SealedKey, SerialNumber, Validity};
use crate::time::Timestamp;

const START: Timestamp = Timestamp(1_800_000_000);
const DAY: u64 = 24 * 3600;

fn serial(n: u8) -> SerialNumber {
    SerialNumber::draw([n; 16])
}

fn days(from: Timestamp, n: u64) -> Validity {
    Validity { not_before: from, not_after: from.plus(Duration::from_secs(n * DAY)) }
}

fn sealed() -> SealedKey {
    SealedKey { encryption_key: "k".to_owned(), sealed: vec![1, 2, 3] }
}

fn ca(n: u8, validity: Validity) -> CaCertificate {
    CaCertificate { serial: serial(n), validity, certificate_pem: "PEM".to_owned(), key: sealed() }
}

fn authority() -> Authority {
    let trust_domain = TrustDomain::new("cluster.local").unwrap();
    Authority::new(trust_domain, ca(0, days(START, 3650)), ca(1, days(START, 1000)))
}

fn account(name: &str) -> ServiceAccountId {
    ServiceAccountId::new("bookstore", name).unwrap()
}

fn proxy(n: u8) -> ProxyName {
    ProxyName::new(crate::ids::ProxyUuid(uuid::Uuid::from_bytes([n; 16])), "bookstore").unwrap()
}

fn record(n: u8, validity: Validity) -> ServiceCertificateRecord {
    ServiceCertificateRecord {
        serial: serial(n),
        validity,
        issued_at: START,
        issuer: serial(1),
        chain_pem: "CHAIN".to_owned(),
        key: sealed(),
    }
}

fn service(n: u8, replaces: Option<u8>, validity: Validity) -> Operation {
    Operation::RecordServiceCertificate {
        account: account("v1"),
        replaces: replaces.map(serial),
        record: Box::new(record(n, validity)),
    }
}

fn proxy_certificate(n: u8, of: u8, validity: Validity) -> Operation {
    Operation::RecordProxyCertificate {
        serial: serial(n),
        proxy: proxy(of),
        service_account: Some(account("v1")),
        validity,
        issuer: serial(1),
        fingerprint: Fingerprint::of(&[n]),
    }
}

fn controller(n: u8, validity: Validity) -> Operation {
    let record = ControllerCertificateRecord {
        names: vec!["smc-controller.smc-system".to_owned()],
        validity,
        issuer: serial(1),
        fingerprint: Fingerprint::of(&[n]),
    };
    Operation::RecordControllerCertificate { serial: serial(n), record: Box::new(record) }
}

fn at(ledger: &mut Ledger, at: Timestamp, operation: Operation) -> Result<Reply, Rejection> {
    ledger.apply(&Command { at, operation })
}

fn now(ledger: &mut Ledger, operation: Operation) -> Result<Reply, Rejection> {
    at(ledger, START, operation)
}

fn founded() -> Ledger {
    let mut ledger = Ledger::default();
    assert_eq!(now(&mut ledger, Operation::InitAuthority(Box::new(authority()))), Ok(Reply::Founded));
    ledger
}

#[test]
fn the_authority_is_founded_once() {
    let mut ledger = founded();
    let mut other = authority();
    other.trust_domain = TrustDomain::new("other.example").unwrap();
    let rejection = now(&mut ledger, Operation::InitAuthority(Box::new(other))).unwrap_err();
    assert_eq!(rejection, Rejection::AlreadyFounded(authority().trust_domain));
    assert_eq!(ledger.authority(), Some(&authority()));
}

#[test]
fn nothing_is_recorded_before_the_authority_is_founded() {
    for operation in [
        service(2, None, days(START, 2)),
        proxy_certificate(2, 1, days(START, 2)),
        controller(2, days(START, 2)),
    ] {
        assert_eq!(now(&mut Ledger::default(), operation), Err(Rejection::NotFounded));
    }
}

#[test]
fn a_serial_number_is_taken_once_whatever_it_was_for() {
    let mut ledger = founded();
    now(&mut ledger, service(2, None, days(START, 2))).unwrap();
    now(&mut ledger, proxy_certificate(3, 1, days(START, 2))).unwrap();
    now(&mut ledger, controller(4, days(START, 2))).unwrap();
    for taken in 0..=4 {
        let expected = Err(Rejection::DuplicateSerial(serial(taken)));
        assert_eq!(now(&mut ledger, service(taken, Some(2), days(START, 2))), expected);
        assert_eq!(now(&mut ledger, proxy_certificate(taken, 2, days(START, 2))), expected);
        assert_eq!(now(&mut ledger, controller(taken, days(START, 2))), expected);
    }
}

#[test]
fn a_certificate_of_a_strange_issuer_or_beyond_its_issuers_life_is_not_recorded() {
    let mut ledger = founded();
    let mut strange = record(2, days(START, 2));
    strange.issuer = serial(9);
    let operation = Operation::RecordServiceCertificate {
        account: account("v1"),
        replaces: None,
        record: Box::new(strange),
    };
    assert!(matches!(now(&mut ledger, operation), Err(Rejection::UnknownIssuer { .. })));

    let before = Validity { not_before: Timestamp(0), not_after: START };
    let empty = Validity { not_before: START, not_after: START };
    for bad in [days(START, 1001), before, empty] {
        assert_eq!(
            now(&mut ledger, service(2, None, bad)),
            Err(Rejection::OutlivesIssuer(serial(2))),
            "{bad:?}"
        );
        assert_eq!(now(&mut ledger, proxy_certificate(2, 1, bad)), Err(Rejection::OutlivesIssuer(serial(2))));
    }
}

#[test]
fn of_two_renewals_that_saw_the_same_certificate_the_first_stands() {
    let mut ledger = founded();
    now(&mut ledger, service(2, None, days(START, 2))).unwrap();
    now(&mut ledger, service(3, Some(2), days(START, 2))).unwrap();
    let expected = Err(Rejection::Superseded { account: account("v1"), current: serial(3) });
    assert_eq!(now(&mut ledger, service(4, Some(2), days(START, 2))), expected);
    assert_eq!(now(&mut ledger, service(4, None, days(START, 2))), expected);
    assert_eq!(ledger.service_certificate(&account("v1")).unwrap().serial, serial(3));
    let superseded: Vec<_> =
        ledger.superseded_certificates(&account("v1")).iter().map(|old| old.serial).collect();
    assert_eq!(superseded, [serial(2)]);
}

#[test]
fn only_the_latest_superseded_certificates_of_an_identity_are_remembered() {
    let mut ledger = founded();
    now(&mut ledger, service(2, None, days(START, 2))).unwrap();
    for n in 3..30 {
        now(&mut ledger, service(n, Some(n - 1), days(START, 2))).unwrap();
    }
    assert_eq!(ledger.superseded_certificates(&account("v1")).len(), MAX_SUPERSEDED);
}

/// A root is retired when nothing that it signed is alive: who forgot the longest would cut it off.
#[test]
fn the_superseded_certificate_that_ends_last_is_remembered_however_many_follow() {
    let mut ledger = founded();
    now(&mut ledger, service(2, None, days(START, 30))).unwrap();
    for n in 3..30 {
        now(&mut ledger, service(n, Some(n - 1), days(START, 2))).unwrap();
    }
    let superseded = ledger.superseded_certificates(&account("v1"));
    assert_eq!(superseded.len(), MAX_SUPERSEDED);
    assert_eq!(superseded[0].serial, serial(2));
    let twice = now(&mut ledger, service(2, Some(29), days(START, 2)));
    assert_eq!(twice, Err(Rejection::DuplicateSerial(serial(2))));
}

#[test]
fn a_proxy_certificate_is_unclaimed_then_claimed_once_then_released_for_good() {
    let mut ledger = founded();
    let state = |ledger: &Ledger| ledger.proxy_certificate(&serial(2)).unwrap().state;
    now(&mut ledger, proxy_certificate(2, 1, days(START, 2))).unwrap();
    assert_eq!(state(&ledger), ProxyCertificateState::Unclaimed);

    let later = START.plus(Duration::from_mins(1));
    let claim = || Operation::ClaimProxyCertificate(serial(2));
    assert_eq!(at(&mut ledger, later, claim()), Ok(Reply::Claimed { first: true }));
    assert_eq!(
        at(&mut ledger, later.plus(Duration::from_secs(1)), claim()),
        Ok(Reply::Claimed { first: false })
    );
    assert_eq!(state(&ledger), ProxyCertificateState::Claimed { at: later });

    let release = || Operation::ReleaseProxy(proxy(1));
    assert_eq!(now(&mut ledger, release()), Ok(Reply::Released { serials: vec![serial(2)] }));
    assert_eq!(now(&mut ledger, release()), Ok(Reply::Released { serials: vec![] }));
    assert!(state(&ledger).is_released());
    assert_eq!(now(&mut ledger, claim()), Err(Rejection::Released(serial(2))));
}

#[test]
fn claiming_what_was_never_issued_is_rejected_and_releasing_an_unknown_proxy_does_nothing() {
    let mut ledger = founded();
    let claim = Operation::ClaimProxyCertificate(serial(7));
    assert_eq!(now(&mut ledger, claim), Err(Rejection::UnknownProxyCertificate(serial(7))));
    assert_eq!(now(&mut ledger, Operation::ReleaseProxy(proxy(7))), Ok(Reply::Released { serials: vec![] }));
}

#[test]
fn what_changes_something_is_announced_and_what_changes_nothing_is_not() {
    let mut ledger = founded();
    let mut announced = |operation: Operation| {
        let reply = now(&mut ledger, operation.clone()).unwrap();
        Announcement::of(&operation, &reply)
    };
    let issued = Announcement::ServiceIssued { account: account("v1"), serial: serial(2) };
    assert_eq!(announced(service(2, None, days(START, 2))), Some(issued));
    let issued = Announcement::ProxyIssued { proxy: proxy(1), serial: serial(3) };
    assert_eq!(announced(proxy_certificate(3, 1, days(START, 2))), Some(issued));
    let claim = || Operation::ClaimProxyCertificate(serial(3));
    assert_eq!(announced(claim()), Some(Announcement::ProxyClaimed { serial: serial(3) }));
    assert_eq!(announced(claim()), None, "again");
    let release = || Operation::ReleaseProxy(proxy(1));
    let released = Announcement::ProxyReleased { serials: vec![serial(3)] };
    assert_eq!(announced(release()), Some(released));
    assert_eq!(announced(release()), None, "again");
    assert_eq!(announced(controller(4, days(START, 2))), None);
    assert_eq!(announced(Operation::Prune), None);
}

#[test]
fn a_release_takes_every_certificate_of_that_proxy_and_of_no_other() {
    let mut ledger = founded();
    for (n, of) in [(2, 1), (3, 1), (4, 2)] {
        now(&mut ledger, proxy_certificate(n, of, days(START, 2))).unwrap();
    }
    let mut released = vec![serial(2), serial(3)];
    released.sort();
    assert_eq!(
        now(&mut ledger, Operation::ReleaseProxy(proxy(1))),
        Ok(Reply::Released { serials: released })
    );
    assert_eq!(ledger.proxy_certificate(&serial(4)).unwrap().state, ProxyCertificateState::Unclaimed);
    // A new certificate of the same proxy is not tainted by the old ones.
    now(&mut ledger, proxy_certificate(5, 1, days(START, 2))).unwrap();
    assert_eq!(
        now(&mut ledger, Operation::ClaimProxyCertificate(serial(5))),
        Ok(Reply::Claimed { first: true })
    );
}

#[test]
fn a_release_of_certificates_takes_those_that_were_seen_and_not_what_their_proxy_got_since() {
    let mut ledger = founded();
    for (n, of) in [(2, 1), (3, 1), (4, 2), (5, 1)] {
        now(&mut ledger, proxy_certificate(n, of, days(START, 2))).unwrap();
    }
    let mut seen = vec![serial(2), serial(3), serial(4)];
    let release = Operation::ReleaseProxyCertificates([seen.clone(), vec![serial(9), serial(2)]].concat());
    seen.sort();
    assert_eq!(now(&mut ledger, release.clone()), Ok(Reply::Released { serials: seen }));
    assert_eq!(now(&mut ledger, release), Ok(Reply::Released { serials: vec![] }), "once is enough");
    assert_eq!(ledger.proxy_certificate(&serial(5)).unwrap().state, ProxyCertificateState::Unclaimed);

    let many = Operation::ReleaseProxyCertificates(vec![serial(5); MAX_RELEASED_TOGETHER + 1]);
    assert!(matches!(now(&mut ledger, many), Err(Rejection::TooLong { .. })));
    assert_eq!(ledger.proxy_certificate(&serial(5)).unwrap().state, ProxyCertificateState::Unclaimed);
}

#[test]
fn a_proxy_has_a_bounded_number_of_live_certificates() {
    let mut ledger = founded();
    let last = u8::try_from(MAX_CERTIFICATES_PER_PROXY).unwrap() + 2;
    // draw() folds the first octet only, so [n; 16] stays distinct for distinct n.
    for n in 2..last {
        now(&mut ledger, proxy_certificate(n, 1, days(START, 2))).unwrap();
    }
    let full = now(&mut ledger, proxy_certificate(last, 1, days(START, 2)));
    assert!(matches!(full, Err(Rejection::Full { .. })), "{full:?}");
    now(&mut ledger, Operation::ReleaseProxy(proxy(1))).unwrap();
    assert_eq!(now(&mut ledger, proxy_certificate(last, 1, days(START, 2))), Ok(Reply::Recorded));
}

#[test]
fn among_too_many_controller_certificates_the_one_that_ends_first_makes_room() {
    let mut ledger = founded();
    let numbered = |n: usize| {
        let mut octets = [0; 16];
        octets[8..].copy_from_slice(&u64::try_from(n).unwrap().to_be_bytes());
        SerialNumber::draw(octets)
    };
    for n in 2..MAX_CONTROLLER_CERTIFICATES + 12 {
        let Operation::RecordControllerCertificate { record, .. } =
            controller(2, days(START, 2 + u64::try_from(n).unwrap()))
        else {
            unreachable!()
        };
        now(&mut ledger, Operation::RecordControllerCertificate { serial: numbered(n), record }).unwrap();
    }
    let kept: Vec<_> = ledger.controller_certificates().map(|(serial, _)| *serial).collect();
    assert_eq!(kept.len(), MAX_CONTROLLER_CERTIFICATES);
    assert!(!kept.contains(&numbered(11)) && kept.contains(&numbered(12)));
}

#[test]
fn absurd_sizes_are_rejected() {
    let mut ledger = founded();
    let mut chain = record(2, days(START, 2));
    chain.chain_pem = "x".repeat(MAX_PEM_LEN + 1);
    let mut key = record(2, days(START, 2));
    key.key.sealed = vec![0; MAX_SEALED_LEN + 1];
    for record in [chain, key] {
        let operation = Operation::RecordServiceCertificate {
            account: account("v1"),
            replaces: None,
            record: Box::new(record),
        };
        assert!(matches!(now(&mut ledger, operation), Err(Rejection::TooLong { .. })));
    }
    assert_eq!(ledger, founded());
}

#[test]
fn pruning_forgets_what_has_ended_and_only_that() {
    let mut ledger = founded();
    now(&mut ledger, service(2, None, days(START, 2))).unwrap();
    now(&mut ledger, service(3, Some(2), days(START, 30))).unwrap();
    now(&mut ledger, proxy_certificate(4, 1, days(START, 2))).unwrap();
    now(&mut ledger, proxy_certificate(5, 2, days(START, 30))).unwrap();
    now(&mut ledger, controller(6, days(START, 2))).unwrap();

    let end = days(START, 2).not_after;
    assert!(!ledger.is_prunable(end));
    assert_eq!(at(&mut ledger, end, Operation::Prune), Ok(Reply::Pruned { certificates: 0 }));

    let past = end.plus(PRUNE_MARGIN).plus(Duration::from_secs(1));
    assert!(ledger.is_prunable(past));
    assert_eq!(at(&mut ledger, past, Operation::Prune), Ok(Reply::Pruned { certificates: 3 }));
    assert!(!ledger.is_prunable(past));
    assert_eq!(ledger.service_certificate(&account("v1")).unwrap().serial, serial(3));
    assert!(ledger.proxy_certificate(&serial(4)).is_none() && ledger.proxy_certificate(&serial(5)).is_some());
    assert_eq!(ledger.certificates_of(&proxy(1)).count(), 0);
}

#[test]
fn a_released_certificate_is_remembered_for_a_week() {
    let mut ledger = founded();
    now(&mut ledger, proxy_certificate(2, 1, days(START, 365))).unwrap();
    now(&mut ledger, Operation::ReleaseProxy(proxy(1))).unwrap();
    assert!(!ledger.is_prunable(START.plus(RELEASED_KEPT)));
    let later = START.plus(RELEASED_KEPT).plus(Duration::from_secs(1));
    assert_eq!(at(&mut ledger, later, Operation::Prune), Ok(Reply::Pruned { certificates: 1 }));
}

#[test]
fn the_ledgers_time_never_goes_back() {
    let mut ledger = founded();
    now(&mut ledger, proxy_certificate(2, 1, days(START, 2))).unwrap();
    let claimed = at(&mut ledger, Timestamp(5), Operation::ClaimProxyCertificate(serial(2)));
    assert_eq!(claimed, Ok(Reply::Claimed { first: true }));
    let state = ledger.proxy_certificate(&serial(2)).unwrap().state;
    assert_eq!(state, ProxyCertificateState::Claimed { at: START });
}

#[test]
fn a_clock_that_was_wild_once_does_not_make_the_ledger_forget_the_living() {
    let mut ledger = founded();
    now(&mut ledger, proxy_certificate(2, 1, days(START, 365))).unwrap();
    let wild = START.plus(Duration::from_hours(900 * 24));
    at(&mut ledger, wild, Operation::ReleaseProxy(proxy(9))).unwrap();
    assert_eq!(now(&mut ledger, Operation::Prune), Ok(Reply::Pruned { certificates: 0 }));
    assert!(ledger.proxy_certificate(&serial(2)).is_some());
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let validity = (0..4u64, 0..1100u64)
        .prop_map(|(from, length)| days(START.plus(Duration::from_secs(from * DAY)), length));
    prop_oneof![
        Just(Operation::InitAuthority(Box::new(authority()))),
        (0..20u8, proptest::option::of(0..20u8), validity.clone())
            .prop_map(|(n, replaces, validity)| service(n, replaces, validity)),
        (0..20u8, 0..4u8, validity.clone()).prop_map(|(n, of, validity)| proxy_certificate(n, of, validity)),
        (0..20u8, validity).prop_map(|(n, validity)| controller(n, validity)),
        (0..20u8).prop_map(|n| Operation::ClaimProxyCertificate(serial(n))),
        (0..4u8).prop_map(|n| Operation::ReleaseProxy(proxy(n))),
        proptest::collection::vec((0..20u8).prop_map(serial), 0..4)
            .prop_map(Operation::ReleaseProxyCertificates),
        Just(Operation::Prune),
        (0..20u8, 0..20u8).prop_map(|(n, replaces)| Operation::RotateIssuing {
            replaces: serial(replaces),
            issuing: Box::new(ca(n, days(START, 900))),
        }),
        (0..20u8, 0..20u8).prop_map(|(n, beside)| Operation::TrustRoot {
            beside: serial(beside),
            root: Box::new(ca(n, days(START, 3650))),
        }),
        (0..2u64, 0..20u8).prop_map(|(replica, n)| Operation::AcknowledgeRoot { replica, root: serial(n) }),
        (0..20u8, 0..20u8).prop_map(|(n, root)| Operation::SignWithNextRoot {
            root: serial(root),
            replicas: BTreeSet::from([0]),
            issuing: Box::new(ca(n, days(START, 900))),
        }),
        (0..20u8).prop_map(|n| Operation::EndVouching { issuing: serial(n) }),
        (0..20u8).prop_map(|n| Operation::RetireCa(serial(n))),
    ]
}

/// Whatever is alive was signed by a CA that is known and outlives it, under a root that is trusted.
fn assert_alive_is_trusted(ledger: &Ledger, now: Timestamp) {
    let Some(authority) = ledger.authority() else { return };
    let trusted: BTreeSet<_> = authority.trusted_roots().collect();
    for (issuer, signed) in ledger.signed(now) {
        let root = authority.root_of(issuer).unwrap_or_else(|| panic!("{issuer} is forgotten: {signed:?}"));
        assert!(trusted.contains(&root), "{issuer}: {signed:?}");
        let former = authority.former_issuing.iter().find(|former| former.serial == issuer);
        let issuer = former.map_or(authority.issuing.validity, |former| former.validity);
        assert!(signed.last_end <= Some(issuer.not_after), "{signed:?}");
    }
}

proptest! {
    /// Equal logs give byte-identical states; a state that went through its stored form goes on like one
    /// that did not; and a rejected command changes nothing but the time.
    #[test]
    fn any_log_replays_to_the_same_bytes_also_from_a_snapshot_in_its_middle(
        log in proptest::collection::vec((0..40u64, any_operation()), 0..60),
        cut in 0..60usize,
    ) {
        let mut first = Ledger::default();
        let mut second = Ledger::default();
        for (index, (day, operation)) in log.into_iter().enumerate() {
            let command = Command { at: START.plus(Duration::from_secs(day * DAY)), operation };
            let stored: Command = serde_json::from_slice(&serde_json::to_vec(&command).unwrap()).unwrap();
            prop_assert_eq!(&stored, &command);
            if index == cut {
                second = serde_json::from_slice(&second.canonical().unwrap()).unwrap();
            }
            let before = first.clone();
            let outcome = first.apply(&command);
            prop_assert_eq!(&outcome, &second.apply(&stored));
            assert_alive_is_trusted(&first, command.at);
            if outcome.is_err() {
                let mut untouched = before;
                untouched.now = first.now;
                prop_assert_eq!(&untouched, &first);
            }
        }
        prop_assert_eq!(&first, &second);
        prop_assert_eq!(first.state_hash().unwrap(), second.state_hash().unwrap());
    }
}
