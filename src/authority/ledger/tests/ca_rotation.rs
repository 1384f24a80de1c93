//! The steps of CA rotation, and the orders of them that are rejected.

use super::*;

const HOUR: Duration = Duration::from_hours(1);

/// A CA whose sealed key is recognisable.
fn ca_with_key(n: u8, validity: Validity) -> CaCertificate {
    let key = SealedKey { encryption_key: "k".to_owned(), sealed: vec![n; 8] };
    CaCertificate { certificate_pem: format!("PEM {n}\n"), key, ..ca(n, validity) }
}

fn rotate_issuing(n: u8, replaces: u8) -> Operation {
    let issuing = Box::new(ca_with_key(n, days(START, 900)));
    Operation::RotateIssuing(RotateIssuing { replaces: serial(replaces), issuing })
}

fn trust_root(n: u8, beside: u8) -> Operation {
    Operation::TrustRoot(TrustRoot {
        beside: serial(beside),
        root: Box::new(ca_with_key(n, days(START, 3650))),
    })
}

fn acknowledge(replica: u64, root: u8) -> Operation {
    Operation::AcknowledgeRoot(AcknowledgeRoot { replica, root: serial(root) })
}

fn sign_with(root: u8, replicas: &[u64], n: u8) -> Operation {
    let issuing = Box::new(ca_with_key(n, days(START, 900)));
    Operation::SignWithNextRoot(SignWithNextRoot {
        root: serial(root),
        replicas: replicas.iter().copied().collect(),
        issuing,
    })
}

fn by(issuer: u8, mut operation: Operation) -> Operation {
    match &mut operation {
        Operation::RecordServiceCertificate(RecordServiceCertificate { record, .. }) => {
            record.issuer = serial(issuer);
        }
        Operation::RecordProxyCertificate(RecordProxyCertificate { issuer: own, .. }) => {
            *own = serial(issuer);
        }
        Operation::RecordControllerCertificate(RecordControllerCertificate { record, .. }) => {
            record.issuer = serial(issuer);
        }
        _ => unreachable!(),
    }
    operation
}

/// The numbers of the CAs whose keys the ledger holds.
fn sealed_keys(ledger: &Ledger) -> Vec<u8> {
    let text = String::from_utf8(ledger.canonical().unwrap()).unwrap();
    (30..60).filter(|n| text.contains(&format!("\"sealed\":\"{}\"", format!("{n:02x}").repeat(8)))).collect()
}

/// Root 30 with issuing CA 31 instead of 0 and 1, with recognisable keys.
fn founded() -> Ledger {
    let mut ledger = Ledger::default();
    let authority = Authority::new(
        TrustDomain::new("cluster.local").unwrap(),
        ca_with_key(30, days(START, 3650)),
        ca_with_key(31, days(START, 1000)),
    );
    now(&mut ledger, Operation::InitAuthority(Box::new(authority))).unwrap();
    ledger
}

/// Root 40 with issuing CA 41 signs, at this time, in the place of root 30 with issuing CA 31.
fn switched(ledger: &mut Ledger, when: Timestamp) {
    now(ledger, trust_root(40, 30)).unwrap();
    now(ledger, acknowledge(0, 40)).unwrap();
    assert_eq!(at(ledger, when, sign_with(40, &[0], 41)), Ok(Reply::AuthorityChanged));
}

#[test]
fn the_stored_form_from_before_rotations_is_unchanged() {
    let old = r#"{"trust_domain":"cluster.local","root":{"serial":"40000000000000000000000000000000","validity":{"not_before":1,"not_after":9},"certificate_pem":"R","key":{"encryption_key":"k","sealed":"01"}},"issuing":{"serial":"41010101010101010101010101010101","validity":{"not_before":1,"not_after":8},"certificate_pem":"I","key":{"encryption_key":"k","sealed":"02"}}}"#;
    let authority: Authority = serde_json::from_str(old).unwrap();
    assert_eq!(authority.bundle().pem, "R");
    assert_eq!(serde_json::to_string(&authority).unwrap(), old);

    let command = format!(r#"{{"at":5,"operation":{{"init-authority":{old}}}}}"#);
    let command: Command = serde_json::from_str(&command).unwrap();
    let mut replayed = Ledger::default();
    assert_eq!(replayed.apply(&command), Ok(Reply::Founded));
    let snapshot =
        format!(r#"{{"now":5,"authority":{old},"services":{{}},"proxies":{{}},"controllers":{{}}}}"#);
    let restored: Ledger = serde_json::from_str(&snapshot).unwrap();
    assert_eq!(restored, replayed);
    assert_eq!(String::from_utf8(restored.canonical().unwrap()).unwrap(), snapshot);
}

#[test]
fn a_new_issuing_ca_signs_at_once_and_the_old_ones_key_is_forgotten() {
    let mut ledger = founded();
    now(&mut ledger, by(31, service(2, None, days(START, 2)))).unwrap();
    assert_eq!(now(&mut ledger, rotate_issuing(32, 31)), Ok(Reply::AuthorityChanged));
    assert_eq!(sealed_keys(&ledger), [30, 32]);
    let operation = by(31, service(3, Some(2), days(START, 2)));
    let retired = Rejection::RetiredIssuer { serial: serial(3), issuer: serial(31) };
    assert_eq!(now(&mut ledger, operation), Err(retired));
    for what in [
        service(3, Some(2), days(START, 2)),
        proxy_certificate(4, 1, days(START, 2)),
        controller(5, days(START, 2)),
    ] {
        assert!(matches!(now(&mut ledger, by(31, what.clone())), Err(Rejection::RetiredIssuer { .. })));
        assert_eq!(now(&mut ledger, by(32, what)), Ok(Reply::Recorded));
    }
    let authority = ledger.authority().unwrap();
    assert_eq!(authority.bundle().pem, "PEM 30\n");
    assert_eq!(authority.root_of(serial(31)), Some(serial(30)));
    assert_eq!(authority.signing_since, Some(START));
}

#[test]
fn of_two_rotations_at_once_one_succeeds_and_steps_are_idempotent() {
    let mut ledger = founded();
    now(&mut ledger, rotate_issuing(32, 31)).unwrap();
    let conflict = Err(Rejection::CaConflict { expected: serial(31), current: serial(32) });
    assert_eq!(now(&mut ledger, rotate_issuing(33, 31)), conflict);
    let before = ledger.clone();
    assert_eq!(now(&mut ledger, rotate_issuing(32, 31)), Ok(Reply::AuthorityUnchanged));

    now(&mut ledger, trust_root(40, 30)).unwrap();
    assert_eq!(now(&mut ledger, trust_root(40, 30)), Ok(Reply::AuthorityUnchanged));
    assert_eq!(now(&mut ledger, trust_root(42, 30)), Err(Rejection::RootRotating(serial(40))));
    assert_eq!(now(&mut ledger, acknowledge(0, 40)), Ok(Reply::AuthorityChanged));
    assert_eq!(now(&mut ledger, acknowledge(0, 40)), Ok(Reply::AuthorityUnchanged));
    let later = START.plus(HOUR);
    assert_eq!(at(&mut ledger, later, sign_with(40, &[0], 41)), Ok(Reply::AuthorityChanged));
    for again in [sign_with(40, &[0], 41), sign_with(40, &[0], 43), acknowledge(1, 40), trust_root(40, 30)] {
        assert_eq!(at(&mut ledger, later, again), Ok(Reply::AuthorityUnchanged));
    }
    assert_eq!(at(&mut ledger, later, trust_root(44, 40)), Err(Rejection::RootRotating(serial(30))));
    assert_ne!(ledger, before);
}

#[test]
fn a_ca_that_could_not_sign_is_rejected() {
    let expected = [
        (days(START, 4000), Rejection::OutlivesIssuer(serial(32))),
        (days(START.plus(HOUR), 900), Rejection::CaNotValid(serial(32))),
        (Validity { not_before: START, not_after: START }, Rejection::OutlivesIssuer(serial(32))),
    ];
    for (validity, rejection) in expected {
        let mut ledger = founded();
        let issuing = Box::new(ca(32, validity));
        let operation = Operation::RotateIssuing(RotateIssuing { replaces: serial(31), issuing });
        assert_eq!(now(&mut ledger, operation), Err(rejection));
        assert_eq!(ledger, founded());
    }
    let mut ledger = founded();
    let taken = Err(Rejection::DuplicateSerial(serial(30)));
    assert_eq!(now(&mut ledger, rotate_issuing(30, 31)), taken);
    assert!(matches!(now(&mut ledger, trust_root(31, 30)), Err(Rejection::DuplicateSerial(_))));
    assert!(matches!(now(&mut ledger, trust_root(40, 31)), Err(Rejection::CaConflict { .. })));
    let ended = START.plus(Duration::from_hours(4000 * 24));
    assert_eq!(at(&mut ledger, ended, trust_root(40, 30)), Err(Rejection::CaNotValid(serial(40))));
}

#[test]
fn an_issuing_ca_that_has_ended_signs_nothing() {
    let mut ledger = founded();
    let ended = days(START, 1000).not_after.plus(Duration::from_secs(1));
    let outcome = at(&mut ledger, ended, by(31, service(2, None, days(START, 2))));
    assert_eq!(outcome, Err(Rejection::CaNotValid(serial(31))));
}

#[test]
fn issuing_cas_that_signed_something_alive_are_bounded() {
    let mut ledger = founded();
    let mut current = 31;
    for n in 100..100 + u8::try_from(MAX_FORMER_ISSUING).unwrap() {
        now(&mut ledger, rotate_issuing(n, current)).unwrap();
        current = n;
    }
    let full = now(&mut ledger, rotate_issuing(200, current));
    assert!(matches!(full, Err(Rejection::Full { .. })), "{full:?}");
    now(&mut ledger, Operation::RetireCa(serial(31))).unwrap();
    assert_eq!(now(&mut ledger, rotate_issuing(200, current)), Ok(Reply::AuthorityChanged));
}

#[test]
fn a_root_does_not_sign_before_every_valid_peer_trusts_it() {
    let mut ledger = founded();
    now(&mut ledger, by(31, service(2, None, days(START, 2)))).unwrap();
    now(&mut ledger, by(31, service(3, Some(2), days(START, 1)))).unwrap();
    let unknown = Err(Rejection::UnknownCa(serial(40)));
    assert_eq!(now(&mut ledger, sign_with(40, &[0], 41)), unknown);
    assert_eq!(now(&mut ledger, acknowledge(0, 40)), unknown);
    now(&mut ledger, trust_root(40, 30)).unwrap();
    assert_eq!(ledger.authority().unwrap().bundle().pem, "PEM 30\nPEM 40\n");
    let old_trust_ends =
        |ledger: &Ledger| ledger.authority().unwrap().next_root.as_ref().unwrap().old_trust_ends;
    assert_eq!(old_trust_ends(&ledger), days(START, 2).not_after);
    // Its holder may have refused the root, and have disconnected before its replica acknowledges.
    now(&mut ledger, by(31, service(4, Some(3), days(START, 5)))).unwrap();
    now(&mut ledger, acknowledge(0, 40)).unwrap();
    assert_eq!(old_trust_ends(&ledger), days(START, 5).not_after);

    let late = days(START, 9).not_after;
    let missing = Err(Rejection::NotAcknowledged { root: serial(40), replica: 1 });
    assert_eq!(at(&mut ledger, late, sign_with(40, &[0, 1], 41)), missing);
    now(&mut ledger, acknowledge(1, 40)).unwrap();
    // Holders of certificates that are issued from here on trust the new root.
    now(&mut ledger, by(31, service(5, Some(4), days(START, 9)))).unwrap();
    assert_eq!(at(&mut ledger, late, sign_with(40, &[], 41)), unknown, "a group has members");
    let end = old_trust_ends(&ledger);
    assert_eq!(end, days(START, 5).not_after);
    let needed = Err(Rejection::StillNeeded { ca: serial(30), until: end });
    assert_eq!(at(&mut ledger, end, sign_with(40, &[0, 1], 41)), needed);
    assert_eq!(ledger.authority().unwrap().issuing.serial, serial(31));
    let then = end.plus(Duration::from_secs(1));
    assert_eq!(at(&mut ledger, then, sign_with(40, &[0, 1], 41)), Ok(Reply::AuthorityChanged));
    assert_eq!(ledger.authority().unwrap().bundle().pem, "PEM 40\nPEM 30\n");
    assert_eq!(sealed_keys(&ledger), [31, 40, 41], "the old root's key is forgotten");
}

#[test]
fn a_clock_that_was_wrong_once_does_not_hasten_a_step() {
    let mut ledger = founded();
    now(&mut ledger, by(31, service(2, None, days(START, 2)))).unwrap();
    at(&mut ledger, days(START, 900).not_after, Operation::ReleaseProxy(proxy(9))).unwrap();
    now(&mut ledger, trust_root(40, 30)).unwrap();
    now(&mut ledger, acknowledge(0, 40)).unwrap();
    assert!(matches!(now(&mut ledger, sign_with(40, &[0], 41)), Err(Rejection::StillNeeded { .. })));
}

#[test]
fn a_next_root_that_a_wrong_clock_made_is_replaced() {
    let mut ledger = founded();
    let wrong = START.plus(Duration::from_hours(2000 * 24));
    let root = Box::new(ca_with_key(40, days(wrong, 3650)));
    at(&mut ledger, wrong, Operation::TrustRoot(TrustRoot { beside: serial(30), root })).unwrap();
    now(&mut ledger, acknowledge(0, 40)).unwrap();
    assert_eq!(at(&mut ledger, wrong, trust_root(42, 30)), Err(Rejection::RootRotating(serial(40))));
    assert_eq!(now(&mut ledger, trust_root(42, 30)), Ok(Reply::AuthorityChanged));
    assert_eq!(ledger.authority().unwrap().bundle().pem, "PEM 30\nPEM 42\n");
    assert_eq!(sealed_keys(&ledger), [30, 31, 42]);
    assert_eq!(now(&mut ledger, acknowledge(0, 40)), Err(Rejection::UnknownCa(serial(40))));
    let missing = Err(Rejection::NotAcknowledged { root: serial(42), replica: 0 });
    assert_eq!(at(&mut ledger, START.plus(HOUR), sign_with(42, &[0], 41)), missing);
    let reloaded: Ledger = serde_json::from_slice(&ledger.canonical().unwrap()).unwrap();
    assert_eq!(reloaded, ledger);
}

#[test]
fn under_the_former_root_only_controller_certificates_are_signed() {
    let mut ledger = founded();
    now(&mut ledger, by(31, proxy_certificate(2, 1, days(START, 300)))).unwrap();
    let then = START.plus(HOUR);
    switched(&mut ledger, then);
    let authority = ledger.authority().unwrap();
    assert_eq!(authority.signer(SignedFor::Workloads, then).serial, serial(41));
    assert_eq!(authority.signer(SignedFor::Controllers, then).serial, serial(31));
    // Near its end no proxy depends on it alone.
    let near = days(START, 1000).not_after;
    assert_eq!(authority.signer(SignedFor::Controllers, near).serial, serial(41));
    for (what, by_the_old) in [
        (service(3, None, days(START, 2)), false),
        (proxy_certificate(4, 1, days(START, 2)), false),
        (controller(5, days(START, 2)), true),
    ] {
        assert_eq!(at(&mut ledger, then, by(31, what)).is_ok(), by_the_old);
    }
    assert_eq!(at(&mut ledger, then, by(41, controller(6, days(START, 2)))), Ok(Reply::Recorded));
}

#[test]
fn a_former_root_is_retired_step_by_step_when_nothing_under_it_is_alive() {
    let mut ledger = founded();
    now(&mut ledger, by(31, proxy_certificate(2, 1, days(START, 300)))).unwrap();
    now(&mut ledger, by(31, proxy_certificate(3, 2, days(START, 400)))).unwrap();
    let then = START.plus(HOUR);
    switched(&mut ledger, then);
    at(&mut ledger, then, by(31, controller(5, days(START, 302)))).unwrap();
    let end_controller_issuer =
        || Operation::EndControllerIssuer(EndControllerIssuer { issuing: serial(31) });
    let needed = |ca: u8, days_: u64| {
        Err(Rejection::StillNeeded { ca: serial(ca), until: days(START, days_).not_after })
    };
    let changed = Ok(Reply::AuthorityChanged);

    // A released certificate does not keep the CA.
    assert_eq!(at(&mut ledger, then, end_controller_issuer()), needed(31, 400));
    at(&mut ledger, then, Operation::ReleaseProxy(proxy(2))).unwrap();
    let end = days(START, 300).not_after;
    assert_eq!(at(&mut ledger, end.plus(PRUNE_MARGIN), end_controller_issuer()), needed(31, 300));
    assert_eq!(at(&mut ledger, end, Operation::RetireCa(serial(31))), needed(31, 1000));
    assert_eq!(at(&mut ledger, end, Operation::RetireCa(serial(30))), needed(30, 1000));
    let after = end.plus(PRUNE_MARGIN).plus(Duration::from_secs(1));
    assert_eq!(at(&mut ledger, after, end_controller_issuer()), changed);
    assert_eq!(at(&mut ledger, after, end_controller_issuer()), Ok(Reply::AuthorityUnchanged));
    assert_eq!(sealed_keys(&ledger), [40, 41], "the old issuing CA's key is forgotten");

    // The controller's certificate is alive.
    assert_eq!(at(&mut ledger, after, Operation::RetireCa(serial(31))), needed(31, 302));
    let after = days(START, 302).not_after.plus(PRUNE_MARGIN).plus(Duration::from_secs(1));
    assert_eq!(at(&mut ledger, after, Operation::RetireCa(serial(30))), needed(30, 1000));
    for ca in [31, 30] {
        assert_eq!(ledger.authority().unwrap().trusted_roots().count(), 2);
        assert_eq!(at(&mut ledger, after, Operation::RetireCa(serial(ca))), changed);
        assert_eq!(at(&mut ledger, after, Operation::RetireCa(serial(ca))), Ok(Reply::AuthorityUnchanged));
    }
    assert_eq!(ledger.authority().unwrap().bundle().pem, "PEM 40\n");
    for current in [40, 41] {
        let refused = at(&mut ledger, after, Operation::RetireCa(serial(current)));
        assert_eq!(refused, Err(Rejection::UnknownCa(serial(current))));
    }
    // The next rotation may begin.
    assert!(matches!(at(&mut ledger, after, trust_root(50, 40)), Ok(Reply::AuthorityChanged)));
}

#[test]
fn an_issuing_ca_is_kept_while_a_superseded_certificate_of_it_is_alive() {
    let mut ledger = founded();
    now(&mut ledger, by(31, service(2, None, days(START, 9)))).unwrap();
    now(&mut ledger, rotate_issuing(32, 31)).unwrap();
    now(&mut ledger, by(32, service(3, Some(2), days(START, 2)))).unwrap();
    let retire = || Operation::RetireCa(serial(31));
    let end = days(START, 9).not_after;
    assert!(matches!(at(&mut ledger, end, retire()), Err(Rejection::StillNeeded { .. })));
    let after = end.plus(PRUNE_MARGIN).plus(Duration::from_secs(1));
    assert_eq!(at(&mut ledger, after, retire()), Ok(Reply::AuthorityChanged));
    assert_eq!(ledger.authority().unwrap().root_of(serial(31)), None);
}

#[test]
fn every_change_of_the_authority_is_announced() {
    let mut ledger = founded();
    for (operation, news) in [
        (rotate_issuing(32, 31), true),
        (rotate_issuing(32, 31), false),
        (trust_root(40, 30), true),
        (acknowledge(0, 40), true),
        (acknowledge(0, 40), false),
        (Operation::EndControllerIssuer(EndControllerIssuer { issuing: serial(31) }), false),
    ] {
        let reply = now(&mut ledger, operation.clone()).unwrap();
        let expected = news.then_some(Announcement::AuthorityChanged);
        assert_eq!(Announcement::of(&operation, &reply), expected, "{operation:?}");
    }
}

#[test]
fn no_step_is_taken_before_the_authority_is_founded() {
    for operation in [
        rotate_issuing(32, 31),
        trust_root(40, 30),
        acknowledge(0, 40),
        sign_with(40, &[0], 41),
        Operation::EndControllerIssuer(EndControllerIssuer { issuing: serial(31) }),
        Operation::RetireCa(serial(31)),
    ] {
        assert_eq!(now(&mut Ledger::default(), operation), Err(Rejection::NotFounded));
    }
}
