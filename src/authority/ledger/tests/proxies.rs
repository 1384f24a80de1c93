//! The life of proxy certificates in the ledger.

use super::*;

#[test]
fn a_proxy_certificate_is_unclaimed_then_claimed_then_released() {
    let mut ledger = founded();
    let state = |ledger: &Ledger| ledger.proxy_certificate(&serial(2)).unwrap().state;
    now(&mut ledger, proxy_certificate(2, 1, days(START, 2))).unwrap();
    assert_eq!(state(&ledger), ProxyCertificateState::Unclaimed);

    let later = START.plus(Duration::from_mins(1));
    let claim = || Operation::ClaimProxyCertificate(serial(2));
    assert_eq!(at(&mut ledger, later, claim()), Ok(Reply::Claimed { first: true, released: vec![] }));
    assert_eq!(
        at(&mut ledger, later.plus(Duration::from_secs(1)), claim()),
        Ok(Reply::Claimed { first: false, released: vec![] })
    );
    assert_eq!(state(&ledger), ProxyCertificateState::Claimed { at: later });

    let release = || Operation::ReleaseProxy(proxy(1));
    assert_eq!(now(&mut ledger, release()), Ok(Reply::Released { serials: vec![serial(2)] }));
    assert_eq!(now(&mut ledger, release()), Ok(Reply::Released { serials: vec![] }));
    assert!(state(&ledger).is_released());
    assert_eq!(now(&mut ledger, claim()), Err(Rejection::Released(serial(2))));
}

#[test]
fn an_unknown_certificate_or_proxy_is_neither_claimed_nor_released() {
    let mut ledger = founded();
    let claim = Operation::ClaimProxyCertificate(serial(7));
    assert_eq!(now(&mut ledger, claim), Err(Rejection::UnknownProxyCertificate(serial(7))));
    assert_eq!(now(&mut ledger, Operation::ReleaseProxy(proxy(7))), Ok(Reply::Released { serials: vec![] }));
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
        Ok(Reply::Claimed { first: true, released: vec![] })
    );
}

#[test]
fn a_release_of_certificates_takes_exactly_the_listed_ones() {
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
    // `draw` changes the first byte alone, so `[n; 16]` stays distinct for distinct n.
    for n in 2..last {
        now(&mut ledger, proxy_certificate(n, 1, days(START, 2))).unwrap();
    }
    let full = now(&mut ledger, proxy_certificate(last, 1, days(START, 2)));
    assert!(matches!(full, Err(Rejection::Full { .. })), "{full:?}");
    now(&mut ledger, Operation::ReleaseProxy(proxy(1))).unwrap();
    assert_eq!(now(&mut ledger, proxy_certificate(last, 1, days(START, 2))), Ok(Reply::Recorded));
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
    assert_eq!(claimed, Ok(Reply::Claimed { first: true, released: vec![] }));
    let state = ledger.proxy_certificate(&serial(2)).unwrap().state;
    assert_eq!(state, ProxyCertificateState::Claimed { at: START });
}
