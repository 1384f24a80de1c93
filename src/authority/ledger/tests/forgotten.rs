//! Service certificates of identities that no workload has.

use super::*;

/// When the certificate is old enough to be forgotten.
fn later() -> Timestamp {
    START.plus(UNUSED_KEPT)
}

/// A ledger under these rules with one certificate, the second one, that ends after two days.
fn issued(rules: Rules) -> Ledger {
    let mut ledger = agreed();
    now(&mut ledger, Operation::UseRules(rules)).unwrap();
    now(&mut ledger, service(2, None, days(START, 2))).unwrap();
    agree(&mut ledger, later());
    ledger
}

fn forget(ledger: &mut Ledger, when: Timestamp, n: u8) -> Outcome {
    at(ledger, when, Operation::ForgetServices(vec![unused(n)]))
}

/// How many identities are forgotten.
const fn forgotten(identities: usize) -> Reply {
    Reply::Forgotten { identities }
}

#[test]
fn an_identity_is_forgotten_with_its_key_under_the_third_rules() {
    for rules in [Rules::First, Rules::Second] {
        let mut ledger = issued(rules);
        let before = ledger.clone();
        assert_eq!(forget(&mut ledger, later(), 2), Err(Rejection::RulesNotBegun(Rules::Third)));
        assert_eq!(ledger, before);
    }
    let mut ledger = issued(Rules::Third);
    let keys = ledger.keys().count();
    assert_eq!(forget(&mut ledger, later(), 2), Ok(forgotten(1)));
    assert_eq!(ledger.service_certificate(&account("v1")), None);
    assert_eq!(ledger.keys().count(), keys - 1);
    assert_eq!(forget(&mut ledger, later(), 2), Ok(forgotten(0)), "again");
    // The place is free, also for a certificate that was signed to replace it.
    let mut record = record(3, days(later(), 2));
    record.issued_at = later();
    let again = Operation::RecordServiceCertificate(RecordServiceCertificate {
        account: account("v1"),
        replaces: Some(serial(2)),
        record: Box::new(record),
        requested: false,
    });
    assert_eq!(at(&mut ledger, later(), again), Ok(Reply::Recorded));
    let stored: Ledger = serde_json::from_slice(&ledger.canonical().unwrap()).unwrap();
    assert_eq!(stored, ledger);
}

#[test]
fn only_what_the_proposer_saw_and_what_is_old_is_forgotten() {
    let mut ledger = issued(Rules::Third);
    assert_eq!(forget(&mut ledger, later(), 3), Ok(forgotten(0)), "another certificate");
    agree(&mut ledger, later().minus(Duration::from_secs(1)));
    assert_eq!(forget(&mut ledger, later(), 2), Ok(forgotten(0)), "a young one");
    agree(&mut ledger, later());
    let wrong = later().plus(2 * CLOCK_TOLERANCE);
    assert_eq!(
        forget(&mut ledger, wrong, 2),
        Err(Rejection::WrongClock { at: wrong, group: later() }),
        "a wrong clock"
    );
    let many = Operation::ForgetServices(vec![unused(2); MAX_FORGOTTEN_TOGETHER + 1]);
    assert!(matches!(at(&mut ledger, later(), many), Err(Rejection::TooLong { .. })));
    // A clock that was ahead issued it, and everything that it would be known by is its record.
    let mut ahead = founded();
    now(&mut ahead, service(2, None, days(days(START, 100).not_after, 2))).unwrap();
    agree(&mut ahead, later());
    at(&mut ahead, later(), Operation::UseRules(Rules::Third)).unwrap();
    assert_eq!(forget(&mut ahead, later(), 2), Ok(forgotten(0)), "one that has not begun");
    assert_eq!(forget(&mut ledger, later(), 2), Ok(forgotten(1)));
}

#[test]
fn a_ca_is_kept_until_the_certificates_that_are_forgotten_have_ended() {
    let mut ledger = issued(Rules::Third);
    at(&mut ledger, later(), service(3, Some(2), days(START, 3))).unwrap_err();
    // A superseded certificate, which ends last, and the current one.
    let request = |ledger: &mut Ledger, n, replaces, length| {
        let Operation::RecordServiceCertificate(command) = service(n, Some(replaces), days(START, length))
        else {
            unreachable!()
        };
        let requested =
            Operation::RecordServiceCertificate(RecordServiceCertificate { requested: true, ..command });
        at(ledger, later(), requested).unwrap();
    };
    request(&mut ledger, 3, 2, 7);
    request(&mut ledger, 4, 3, 1);
    let rotate = RotateIssuing { replaces: serial(1), issuing: Box::new(ca(9, days(START, 900))) };
    at(&mut ledger, later(), Operation::RotateIssuing(rotate)).unwrap();
    assert_eq!(forget(&mut ledger, later(), 4), Ok(forgotten(1)));
    let end = days(START, 7).not_after;
    let retire = |ledger: &mut Ledger, when| {
        agree(ledger, when);
        at(ledger, when, Operation::RetireCa(serial(1)))
    };
    for when in [later(), end, end.plus(PRUNE_MARGIN)] {
        let needed = Err(Rejection::StillNeeded { ca: serial(1), until: end });
        assert_eq!(retire(&mut ledger, when), needed, "{when:?}");
        assert!(!ledger.is_prunable(when), "{when:?}");
    }
    let over = end.plus(PRUNE_MARGIN).plus(Duration::from_secs(1));
    assert_eq!(retire(&mut ledger, over), Ok(Reply::AuthorityChanged));
    assert!(ledger.is_prunable(over));
    assert_eq!(at(&mut ledger, over, Operation::Prune), Ok(Reply::Pruned { certificates: 0 }));
    assert!(!ledger.is_prunable(over));
    let image: serde_json::Value = serde_json::from_slice(&ledger.canonical().unwrap()).unwrap();
    assert_eq!(image.get("forgotten"), None, "nothing of it is left");
}

#[test]
fn a_next_root_waits_for_the_certificates_that_are_forgotten() {
    for acknowledged_before in [true, false] {
        let mut ledger = issued(Rules::Third);
        let trust = TrustRoot { beside: serial(0), root: Box::new(ca(8, days(START, 3650))) };
        let trust = Operation::TrustRoot(trust);
        if acknowledged_before {
            assert_eq!(forget(&mut ledger, later(), 2), Ok(forgotten(1)));
            at(&mut ledger, later(), trust).unwrap();
        } else {
            at(&mut ledger, later(), trust).unwrap();
            assert_eq!(forget(&mut ledger, later(), 2), Ok(forgotten(1)));
        }
        let acknowledge = AcknowledgeRoot { replica: 0, root: serial(8) };
        at(&mut ledger, later(), Operation::AcknowledgeRoot(acknowledge)).unwrap();
        let next = ledger.authority().unwrap().next_root.as_ref().unwrap();
        assert_eq!(next.old_trust_ends, days(START, 2).not_after, "{acknowledged_before}");
    }
}
