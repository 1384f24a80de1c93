mod ca_rotation;
mod declared_roots;
mod forgotten;
mod gateways;
mod latest;
mod placement;
mod proxies;
mod replay;
mod rules;
mod shares;
mod stored;
mod time;

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::pki::{Fingerprint, SealedKey, SerialNumber, Validity};
use smc_types::ids::{NamespacedName, ProxyName, ServiceAccountId, TrustDomain};
use smc_types::time::Timestamp;

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
    ProxyName::new(smc_types::ids::ProxyUuid(uuid::Uuid::from_bytes([n; 16])), "bookstore").unwrap()
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
    Operation::RecordServiceCertificate(RecordServiceCertificate {
        account: account("v1"),
        replaces: replaces.map(serial),
        record: Box::new(record(n, validity)),
        requested: false,
    })
}

/// The only identity, as it is forgotten if this is its current certificate.
fn unused(n: u8) -> ForgetService {
    ForgetService { account: account("v1"), serial: serial(n) }
}

fn gateway_secret() -> NamespacedName {
    "ingress/gateway".parse().unwrap()
}

fn gateway(n: u8, replaces: Option<u8>, validity: Validity) -> Operation {
    Operation::RecordGatewayCertificate(RecordGatewayCertificate {
        secret: gateway_secret(),
        replaces: replaces.map(serial),
        record: Box::new(GatewayCertificateRecord {
            names: ["gateway.example".to_owned()].into(),
            lifetime: 86_400,
            certificate: record(n, validity),
        }),
    })
}

fn forget_gateway(n: u8) -> Operation {
    Operation::ForgetGateway(ForgetGateway { secret: gateway_secret(), serial: serial(n) })
}

fn root_object(n: u8) -> NamespacedName {
    format!("smc-system/root-{n}").parse().unwrap()
}

fn name_root(n: u8, object: u8) -> Operation {
    Operation::NameRoot(NameRoot { root: serial(n), object: root_object(object) })
}

fn proxy_certificate(n: u8, of: u8, validity: Validity) -> Operation {
    Operation::RecordProxyCertificate(RecordProxyCertificate {
        serial: serial(n),
        proxy: proxy(of),
        service_account: Some(account("v1")),
        validity,
        issuer: serial(1),
        fingerprint: Fingerprint::of(&[n]),
    })
}

fn controller(n: u8, validity: Validity) -> Operation {
    let record = ControllerCertificateRecord {
        names: vec!["smc-controller.smc-system".to_owned()],
        validity,
        issuer: serial(1),
        fingerprint: Fingerprint::of(&[n]),
    };
    Operation::RecordControllerCertificate(RecordControllerCertificate {
        serial: serial(n),
        record: Box::new(record),
    })
}

fn at(ledger: &mut Ledger, at: Timestamp, operation: Operation) -> Result<Reply, Rejection> {
    ledger.apply(&Command { at, operation })
}

fn now(ledger: &mut Ledger, operation: Operation) -> Result<Reply, Rejection> {
    at(ledger, START, operation)
}

fn agree(ledger: &mut Ledger, time: Timestamp) {
    let clocks = BTreeMap::from([(0, time), (1, time)]);
    // Whatever clock the proposer has.
    let agreed = at(ledger, Timestamp(0), Operation::AgreeOnTime(AgreeOnTime { clocks }));
    assert_eq!(agreed, Ok(Reply::TimeAgreed));
}

/// A founded ledger whose replicas have agreed that it is the start.
fn agreed() -> Ledger {
    let mut ledger = founded();
    agree(&mut ledger, START);
    ledger
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
fn a_certificate_of_an_unknown_issuer_or_beyond_its_life_is_rejected() {
    let mut ledger = founded();
    let mut unknown = record(2, days(START, 2));
    unknown.issuer = serial(9);
    let operation = Operation::RecordServiceCertificate(RecordServiceCertificate {
        account: account("v1"),
        replaces: None,
        record: Box::new(unknown),
        requested: false,
    });
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
    let expected = Err(Rejection::ServiceCertificateConflict { account: account("v1"), current: serial(3) });
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

/// A root is retired when nothing that it signed is alive, so the last certificate to end must be
/// remembered.
#[test]
fn the_superseded_certificate_that_ends_last_is_always_remembered() {
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
    assert_eq!(announced(claim()), Some(Announcement::ProxyClaimed { serial: serial(3), released: vec![] }));
    assert_eq!(announced(claim()), None, "again");
    let release = || Operation::ReleaseProxy(proxy(1));
    let released = Announcement::ProxyReleased { serials: vec![serial(3)] };
    assert_eq!(announced(release()), Some(released));
    assert_eq!(announced(release()), None, "again");
    assert_eq!(announced(controller(4, days(START, 2))), None);
    assert_eq!(announced(Operation::Prune), None);
}

#[test]
fn of_too_many_controller_certificates_the_first_to_end_is_deleted() {
    let mut ledger = founded();
    let numbered = |n: usize| {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&u64::try_from(n).unwrap().to_be_bytes());
        SerialNumber::draw(bytes)
    };
    for n in 2..MAX_CONTROLLER_CERTIFICATES + 12 {
        let Operation::RecordControllerCertificate(RecordControllerCertificate { record, .. }) =
            controller(2, days(START, 2 + u64::try_from(n).unwrap()))
        else {
            unreachable!()
        };
        now(
            &mut ledger,
            Operation::RecordControllerCertificate(RecordControllerCertificate {
                serial: numbered(n),
                record,
            }),
        )
        .unwrap();
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
        let operation = Operation::RecordServiceCertificate(RecordServiceCertificate {
            account: account("v1"),
            replaces: None,
            record: Box::new(record),
            requested: false,
        });
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
fn a_clock_that_was_wrong_once_does_not_prune_live_certificates() {
    let mut ledger = founded();
    now(&mut ledger, proxy_certificate(2, 1, days(START, 365))).unwrap();
    let wrong = START.plus(Duration::from_hours(900 * 24));
    at(&mut ledger, wrong, Operation::ReleaseProxy(proxy(9))).unwrap();
    assert_eq!(now(&mut ledger, Operation::Prune), Ok(Reply::Pruned { certificates: 0 }));
    assert!(ledger.proxy_certificate(&serial(2)).is_some());
}
