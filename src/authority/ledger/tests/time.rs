//! The time that the group agrees on, and the rules that begin with it.

use std::collections::BTreeMap;

use super::*;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const YEAR: u64 = 365;

/// A service certificate, issued at `issued`, with its proposer's clock at that time.
fn issued_at(issued: Timestamp, n: u8, replaces: Option<u8>, life: Duration) -> Operation {
    let validity = Validity {
        not_before: issued.minus(Duration::from_mins(5)).max(START),
        not_after: issued.plus(life),
    };
    let mut record = record(n, validity);
    record.issued_at = issued;
    Operation::RecordServiceCertificate(RecordServiceCertificate {
        account: account("v1"),
        replaces: replaces.map(serial),
        record: Box::new(record),
        requested: false,
    })
}

#[test]
fn the_agreed_time_is_the_median_of_the_clocks_and_may_go_back() {
    let mut ledger = founded();
    assert_eq!(ledger.agreed_time(), None);
    for (clocks, median) in [(&[7][..], 7), (&[9, 5], 5), (&[5, 1_000_000, 6], 6), (&[3], 3)] {
        let clocks = (0..).zip(clocks.iter().map(|time| Timestamp(*time))).collect();
        now(&mut ledger, Operation::AgreeOnTime(AgreeOnTime { clocks })).unwrap();
        assert_eq!(ledger.agreed_time(), Some(Timestamp(median)));
        assert_eq!(ledger.now(), Timestamp(median));
    }
    let none = Operation::AgreeOnTime(AgreeOnTime { clocks: BTreeMap::new() });
    assert_eq!(now(&mut ledger, none), Err(Rejection::NoClock));
    let many = (0..).take(MAX_ACKNOWLEDGING + 1).map(|n| (n, START)).collect();
    let many = Operation::AgreeOnTime(AgreeOnTime { clocks: many });
    assert!(matches!(now(&mut ledger, many), Err(Rejection::TooLong { .. })));
    assert_eq!(ledger.agreed_time(), Some(Timestamp(3)));
    // A single clock moves it no more.
    at(&mut ledger, days(START, 900).not_after, Operation::ReleaseProxy(proxy(1))).unwrap();
    assert_eq!(ledger.now(), Timestamp(3));
    assert!(!ledger.is_time_due(Timestamp(63)) && ledger.is_time_due(Timestamp(64)));
    assert!(ledger.is_time_due(Timestamp(-58)));
}

/// The log of an older version replays as it did: before the first agreement no new rule holds.
#[test]
fn before_the_first_agreement_any_clock_is_taken() {
    let mut ledger = founded();
    let wrong = days(START, 3).not_after;
    assert_eq!(at(&mut ledger, wrong, issued_at(wrong, 2, None, 48 * HOUR)), Ok(Reply::Recorded));
    assert_eq!(now(&mut ledger, issued_at(START, 3, Some(2), 48 * HOUR)), Ok(Reply::Recorded));
    assert_eq!(ledger.now(), wrong);
    for n in 10..20 {
        now(&mut ledger, proxy_certificate(n, 1, days(START, 2))).unwrap();
    }
    let claim = now(&mut ledger, Operation::ClaimProxyCertificate(serial(19)));
    assert_eq!(claim, Ok(Reply::Claimed { first: true, released: vec![] }));
    assert_eq!(ledger.certificates_of(&proxy(1)).count(), 10);
}

#[test]
fn a_wrong_clock_records_nothing() {
    let mut ledger = agreed();
    let off = |span: Duration, ahead: bool| if ahead { START.plus(span) } else { START.minus(span) };
    for (span, ahead, taken) in [
        (MINUTE, true, true),
        (5 * MINUTE, true, true),
        (6 * MINUTE, true, false),
        (72 * HOUR, true, false),
        (365 * 24 * HOUR, true, false),
        (5 * MINUTE, false, true),
        (6 * MINUTE, false, false),
        (72 * HOUR, false, false),
    ] {
        let clock = off(span, ahead);
        let expected = |reply| {
            if taken { Ok(reply) } else { Err(Rejection::WrongClock { at: clock, group: START }) }
        };
        let mut ledger = ledger.clone();
        let service = issued_at(clock, 2, None, 48 * HOUR);
        assert_eq!(at(&mut ledger, clock, service), expected(Reply::Recorded), "{span:?} {ahead}");
        let proxy = proxy_certificate(3, 1, days(START, 2));
        assert_eq!(at(&mut ledger, clock, proxy), expected(Reply::Recorded), "{span:?} {ahead}");
        let own = controller(4, days(START, 2));
        assert_eq!(at(&mut ledger, clock, own), expected(Reply::Recorded), "{span:?} {ahead}");
        let pruned = at(&mut ledger, clock, Operation::Prune);
        assert_eq!(pruned, expected(Reply::Pruned { certificates: 0 }), "{span:?} {ahead}");
    }
    // A validity without the group's time, by whatever clock.
    let later = START.plus(2 * MINUTE);
    for validity in [days(later, 2), Validity { not_before: START, not_after: START.plus(MINUTE) }] {
        agree(&mut ledger, if validity.not_before == START { later } else { START });
        let refused = now(&mut ledger, proxy_certificate(5, 1, validity));
        assert_eq!(refused, Err(Rejection::NotValidNow(serial(5))), "{validity:?}");
    }
    // A claim and a release hold whatever the time.
    now(&mut ledger, proxy_certificate(6, 1, days(START, 2))).unwrap();
    let claim = at(&mut ledger, Timestamp(9), Operation::ClaimProxyCertificate(serial(6)));
    assert_eq!(claim, Ok(Reply::Claimed { first: true, released: vec![] }));
    let release = at(&mut ledger, days(START, 900).not_after, Operation::ReleaseProxy(proxy(1)));
    assert_eq!(release, Ok(Reply::Released { serials: vec![serial(6)] }));
}

#[test]
fn a_certificate_is_replaced_when_it_is_due_by_the_groups_time() {
    let mut ledger = agreed();
    now(&mut ledger, issued_at(START, 2, None, 48 * HOUR)).unwrap();
    let not_due = Err(Rejection::NotDue { account: account("v1"), current: serial(2) });
    for (hours, taken) in [(0, false), (1, false), (24, false), (33, true), (47, true), (49, true)] {
        let time = START.plus(hours * HOUR);
        let mut ledger = ledger.clone();
        agree(&mut ledger, time);
        let expected = if taken { Ok(Reply::Recorded) } else { not_due.clone() };
        assert_eq!(at(&mut ledger, time, issued_at(time, 3, Some(2), 53 * HOUR)), expected, "{hours}");
    }
    // A shorter lifetime takes effect at once, and so does a person's request.
    let shorter = issued_at(START, 3, Some(2), 2 * HOUR);
    assert_eq!(now(&mut ledger.clone(), shorter), Ok(Reply::Recorded));
    let mut requested = issued_at(START, 3, Some(2), 53 * HOUR);
    if let Operation::RecordServiceCertificate(command) = &mut requested {
        command.requested = true;
    }
    assert_eq!(now(&mut ledger.clone(), requested), Ok(Reply::Recorded));
    // After a new CA began to sign.
    let rotate = Operation::RotateIssuing(RotateIssuing {
        replaces: serial(1),
        issuing: Box::new(ca(9, days(START, 900))),
    });
    now(&mut ledger, rotate).unwrap();
    let mut reissued = issued_at(START, 3, Some(2), 53 * HOUR);
    if let Operation::RecordServiceCertificate(command) = &mut reissued {
        command.record.issuer = serial(9);
    }
    assert_eq!(now(&mut ledger, reissued), Ok(Reply::Recorded));
}

#[test]
fn a_certificate_that_a_wrong_clock_issued_before_delays_no_root() {
    let root = || {
        let root = ca(40, days(START, 3650));
        Operation::TrustRoot(TrustRoot { beside: serial(0), root: Box::new(root) })
    };
    let until = |ledger: &Ledger| ledger.authority().unwrap().next_root.as_ref().unwrap().old_trust_ends;
    let mut ledger = founded();
    let wrong = days(START, YEAR).not_after;
    at(&mut ledger, wrong, issued_at(wrong, 2, None, 48 * HOUR)).unwrap();
    now(&mut ledger, issued_at(START, 3, Some(2), 48 * HOUR)).unwrap();
    let mut before = ledger.clone();
    now(&mut before, root()).unwrap();
    assert_eq!(until(&before), wrong.plus(48 * HOUR), "the gap that the agreement closes");
    agree(&mut ledger, START);
    now(&mut ledger, root()).unwrap();
    assert_eq!(until(&ledger), START.plus(48 * HOUR));
}

#[test]
fn a_next_root_is_given_up_or_hastened_by_a_person() {
    let mut ledger = agreed();
    now(&mut ledger, issued_at(START, 2, None, 48 * HOUR)).unwrap();
    let cancel = || Operation::CancelRoot(CancelRoot { root: serial(40) });
    let hasten = || Operation::HastenRoot(HastenRoot { root: serial(40) });
    for operation in [cancel(), hasten()] {
        assert_eq!(now(&mut ledger, operation), Err(Rejection::UnknownCa(serial(40))));
    }
    let trust = |n| {
        let root = Box::new(ca(n, days(START, 3650)));
        Operation::TrustRoot(TrustRoot { beside: serial(0), root })
    };
    let before = ledger.clone();
    now(&mut ledger, trust(40)).unwrap();
    let mut cancelled = ledger.clone();
    assert_eq!(now(&mut cancelled, cancel()), Ok(Reply::AuthorityChanged));
    assert_eq!(cancelled, before, "as if it had not begun");
    assert_eq!(now(&mut cancelled, trust(41)), Ok(Reply::AuthorityChanged), "another one may begin");

    let sign = || {
        Operation::SignWithNextRoot(SignWithNextRoot {
            root: serial(40),
            replicas: [0].into(),
            issuing: Box::new(ca(50, days(START, 900))),
        })
    };
    assert_eq!(now(&mut ledger, hasten()), Ok(Reply::AuthorityChanged));
    assert_eq!(now(&mut ledger, hasten()), Ok(Reply::AuthorityUnchanged));
    let waits = now(&mut ledger, sign());
    assert_eq!(waits, Err(Rejection::NotAcknowledged { root: serial(40), replica: 0 }));
    let acknowledge = Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 0, root: serial(40) });
    now(&mut ledger, acknowledge).unwrap();
    assert_eq!(now(&mut ledger, sign()), Ok(Reply::AuthorityChanged));
    assert!(ledger.authority().unwrap().trusted_roots().any(|root| root == serial(0)), "still trusted");
    assert_eq!(now(&mut ledger, cancel()), Err(Rejection::UnknownCa(serial(40))), "it signs");

    let mut without = founded();
    now(&mut without, trust(40)).unwrap();
    for operation in [cancel(), hasten()] {
        assert_eq!(now(&mut without, operation), Err(Rejection::NoAgreedTime));
    }
}

/// A version without the agreed time expects a number there.
#[test]
fn an_older_version_reads_no_snapshot_with_an_agreed_time() {
    let stored = |ledger: &Ledger| {
        serde_json::from_slice::<serde_json::Value>(&ledger.canonical().unwrap()).unwrap()["now"].clone()
    };
    assert_eq!(stored(&founded()), serde_json::json!(START));
    let mut ledger = agreed();
    now(&mut ledger, proxy_certificate(2, 1, days(START, 2))).unwrap();
    assert_eq!(stored(&ledger), serde_json::json!({ "agreed": START, "proxies": 1 }));
    for ledger in [founded(), ledger] {
        let read: Ledger = serde_json::from_slice(&ledger.canonical().unwrap()).unwrap();
        assert_eq!(read, ledger);
    }
}
