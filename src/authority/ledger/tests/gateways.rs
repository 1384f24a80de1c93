//! Certificates of gateways.

use super::*;

/// A ledger under these rules, at the start.
fn under(rules: Rules) -> Ledger {
    let mut ledger = agreed();
    now(&mut ledger, Operation::UseRules(rules)).unwrap();
    ledger
}

fn current(ledger: &Ledger) -> Option<SerialNumber> {
    ledger.gateway_certificate(&gateway_secret()).map(|record| record.certificate.serial)
}

/// The end of the last certificate of the issuing CA.
fn needed_until(ledger: &Ledger) -> Option<Timestamp> {
    ledger.signed(START).get(&serial(1)).and_then(|signed| signed.last_end)
}

#[test]
fn a_gateway_has_a_certificate_with_its_key_under_the_fourth_rules() {
    for rules in [Rules::Second, Rules::Third] {
        let mut ledger = under(rules);
        let before = ledger.clone();
        for operation in [gateway(2, None, days(START, 2)), forget_gateway(2)] {
            assert_eq!(now(&mut ledger, operation), Err(Rejection::RulesNotBegun(Rules::Fourth)));
        }
        assert_eq!(ledger, before);
    }
    let mut ledger = under(Rules::Fourth);
    let keys = ledger.keys().count();
    assert_eq!(now(&mut ledger, gateway(2, None, days(START, 2))), Ok(Reply::Recorded));
    assert_eq!((current(&ledger), ledger.keys().count()), (Some(serial(2)), keys + 1));
    let taken = Err(Rejection::DuplicateSerial(serial(2)));
    assert_eq!(now(&mut ledger, gateway(2, Some(2), days(START, 2))), taken);
    assert_eq!(now(&mut ledger, service(2, None, days(START, 2))), taken);
    let stored: Ledger = serde_json::from_slice(&ledger.canonical().unwrap()).unwrap();
    assert_eq!(stored, ledger);
}

#[test]
fn of_two_leaders_that_saw_the_same_certificate_the_first_one_renews_it() {
    let mut ledger = under(Rules::Fourth);
    now(&mut ledger, gateway(2, None, days(START, 2))).unwrap();
    now(&mut ledger, gateway(3, Some(2), days(START, 2))).unwrap();
    let expected =
        Err(Rejection::GatewayCertificateConflict { secret: gateway_secret(), current: serial(3) });
    assert_eq!(now(&mut ledger, gateway(4, Some(2), days(START, 2))), expected);
    assert_eq!(now(&mut ledger, gateway(4, None, days(START, 2))), expected);
    assert_eq!(now(&mut ledger, forget_gateway(2)), Ok(Reply::Forgotten { identities: 0 }));
    assert_eq!(current(&ledger), Some(serial(3)));
}

/// A gateway may show a certificate until it ends, whatever became of its record.
#[test]
fn what_signed_a_gateways_certificate_is_trusted_until_that_ends() {
    let mut ledger = under(Rules::Fourth);
    now(&mut ledger, gateway(2, None, days(START, 30))).unwrap();
    assert_eq!(needed_until(&ledger), Some(days(START, 30).not_after));
    now(&mut ledger, gateway(3, Some(2), days(START, 2))).unwrap();
    assert_eq!(needed_until(&ledger), Some(days(START, 30).not_after), "replaced");
    assert_eq!(now(&mut ledger, forget_gateway(3)), Ok(Reply::Forgotten { identities: 1 }));
    assert_eq!((current(&ledger), ledger.keys().count()), (None, founded().keys().count()));
    assert_eq!(needed_until(&ledger), Some(days(START, 30).not_after), "forgotten");
    let rotate = RotateIssuing { replaces: serial(1), issuing: Box::new(ca(9, days(START, 900))) };
    now(&mut ledger, Operation::RotateIssuing(rotate)).unwrap();
    let retired = now(&mut ledger, Operation::RetireCa(serial(1)));
    assert!(matches!(retired, Err(Rejection::StillNeeded { .. })), "{retired:?}");
}

/// One that a gateway does not know the new root by is a certificate from before its trust.
#[test]
fn a_new_root_waits_for_the_certificates_of_gateways() {
    let mut ledger = under(Rules::Fourth);
    now(&mut ledger, gateway(2, None, days(START, 20))).unwrap();
    let trust = TrustRoot { beside: serial(0), root: Box::new(ca(8, days(START, 3650))) };
    now(&mut ledger, Operation::TrustRoot(trust)).unwrap();
    let next = ledger.authority().unwrap().next_root.clone().unwrap();
    assert_eq!(next.old_trust_ends, days(START, 20).not_after);
}

/// A group whose clocks were a year ahead made a certificate, and replaces it once they are right.
#[test]
fn a_replaced_certificate_of_a_clock_that_was_ahead_delays_no_root() {
    let mut ledger = under(Rules::Fourth);
    let ahead = days(START, 365).not_after;
    agree(&mut ledger, ahead);
    at(&mut ledger, ahead, gateway(2, None, days(ahead, 2))).unwrap();
    agree(&mut ledger, START);
    now(&mut ledger, gateway(3, Some(2), days(START, 2))).unwrap();
    let trust = TrustRoot { beside: serial(0), root: Box::new(ca(8, days(START, 3650))) };
    now(&mut ledger, Operation::TrustRoot(trust)).unwrap();
    let next = ledger.authority().unwrap().next_root.clone().unwrap();
    assert_eq!(next.old_trust_ends, days(START, 2).not_after);
    // What it was signed by is kept for it all the same.
    assert_eq!(needed_until(&ledger), Some(days(ahead, 2).not_after));
}

#[test]
fn the_number_of_gateways_and_of_their_names_is_bounded() {
    let mut ledger = under(Rules::Fourth);
    let with = |n: u8, change: &dyn Fn(&mut RecordGatewayCertificate)| {
        let Operation::RecordGatewayCertificate(mut command) = gateway(n, None, days(START, 2)) else {
            unreachable!()
        };
        change(&mut command);
        Operation::RecordGatewayCertificate(command)
    };
    let names = |count: usize| (0..count).map(|n| format!("g{n}.example")).collect();
    let many = with(2, &|command| command.record.names = names(MAX_NAMES + 1));
    let long = with(2, &|command| command.record.names = ["a".repeat(254)].into());
    for operation in [many, long] {
        assert!(matches!(now(&mut ledger, operation), Err(Rejection::TooLong { .. })));
    }
    let other = |n: u8| with(n, &|command| command.secret = format!("ingress/g{n}").parse().unwrap());
    let first = 2;
    for n in (first..).take(MAX_GATEWAYS) {
        assert_eq!(now(&mut ledger, other(n)), Ok(Reply::Recorded));
    }
    let full = Err(Rejection::Full { what: "certificates of gateways", max: MAX_GATEWAYS });
    assert_eq!(now(&mut ledger, other(200)), full);
    assert_eq!(ledger.gateway_certificates().count(), MAX_GATEWAYS);
}

#[test]
fn the_key_of_a_gateway_is_rekeyed() {
    let mut ledger = under(Rules::Fourth);
    now(&mut ledger, gateway(2, None, days(START, 2))).unwrap();
    let key = SealedKey { encryption_key: "next".to_owned(), sealed: vec![7] };
    let rekeyed =
        |n: u8| Operation::Rekey(vec![RekeyedKey { account: None, serial: serial(n), key: key.clone() }]);
    assert_eq!(now(&mut ledger, rekeyed(3)), Ok(Reply::Rekeyed { keys: 0 }), "one that was replaced");
    assert_eq!(now(&mut ledger, rekeyed(2)), Ok(Reply::Rekeyed { keys: 1 }));
    assert_eq!(ledger.gateway_certificate(&gateway_secret()).unwrap().certificate.key, key);
}
