//! Of a proxy's certificates the latest counts, once the group has agreed on a time.

use proptest::prelude::*;

use super::*;

fn numbered(n: u32) -> SerialNumber {
    let mut bytes = [0; 16];
    bytes[8..12].copy_from_slice(&[1; 4]);
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    SerialNumber::draw(bytes)
}

/// A bootstrap of the first proxy.
fn bootstrap(ledger: &mut Ledger, n: u32) -> Result<Reply, Rejection> {
    let Operation::RecordProxyCertificate(mut command) = proxy_certificate(2, 1, days(START, 365)) else {
        unreachable!()
    };
    command.serial = numbered(n);
    let time = ledger.now();
    at(ledger, time, Operation::RecordProxyCertificate(command))
}

fn claim(ledger: &mut Ledger, n: u32) -> Result<Vec<SerialNumber>, Rejection> {
    let time = ledger.now();
    match at(ledger, time, Operation::ClaimProxyCertificate(numbered(n)))? {
        Reply::Claimed { released, .. } => Ok(released),
        other => panic!("{other:?}"),
    }
}

fn serials(numbers: impl IntoIterator<Item = u32>) -> Vec<SerialNumber> {
    let mut all: Vec<_> = numbers.into_iter().map(numbered).collect();
    all.sort();
    all
}

#[test]
fn a_thousand_bootstraps_of_one_name_succeed_and_fill_nothing() {
    for claimed in [false, true] {
        let mut ledger = agreed();
        for n in 0..1000 {
            assert_eq!(bootstrap(&mut ledger, n), Ok(Reply::Recorded), "{n}, claimed: {claimed}");
            if claimed {
                let before = if n == 0 { vec![] } else { serials([n - 1]) };
                assert_eq!(claim(&mut ledger, n), Ok(before), "{n}");
            }
        }
        let on_record = ledger.certificates_of(&proxy(1)).count();
        let most = if claimed { 1 + MAX_RELEASED_PER_PROXY } else { MAX_UNCLAIMED_PER_PROXY };
        assert_eq!(on_record, most, "claimed: {claimed}");
        assert!(claim(&mut ledger, 999).is_ok());
        assert!(claim(&mut ledger, 3).is_err());
    }
}

/// All in one second: the order is that of the log.
#[test]
fn an_older_bootstrap_is_refused_once_a_newer_one_is_claimed() {
    let mut ledger = agreed();
    for n in 0..4 {
        bootstrap(&mut ledger, n).unwrap();
    }
    assert_eq!(claim(&mut ledger, 1), Ok(serials([0])), "the earlier one alone");
    // A stolen bootstrap that is older than the one in use cuts no sidecar off.
    assert_eq!(claim(&mut ledger, 0), Err(Rejection::UnknownProxyCertificate(numbered(0))));
    assert_eq!(claim(&mut ledger, 1), Ok(vec![]), "it goes on");
    assert_eq!(claim(&mut ledger, 3), Ok(serials([1, 2])));
    assert_eq!(claim(&mut ledger, 1), Err(Rejection::Released(numbered(1))));
    assert_eq!(claim(&mut ledger, 2), Err(Rejection::UnknownProxyCertificate(numbered(2))));
    assert_eq!(claim(&mut ledger, 3), Ok(vec![]));
}

#[test]
fn a_bootstrap_that_is_not_used_within_a_day_is_worth_nothing() {
    let mut ledger = agreed();
    bootstrap(&mut ledger, 0).unwrap();
    bootstrap(&mut ledger, 1).unwrap();
    let day = START.plus(TIME_TO_CLAIM);
    agree(&mut ledger, day);
    assert!(!ledger.is_prunable(day));
    claim(&mut ledger, 0).unwrap();
    agree(&mut ledger, day.plus(Duration::from_secs(1)));
    assert_eq!(claim(&mut ledger, 1), Err(Rejection::NotClaimedInTime(numbered(1))));
    assert_eq!(claim(&mut ledger, 0), Ok(vec![]), "a claimed one is good until its end");
    let time = ledger.now();
    assert!(ledger.is_prunable(time));
    assert_eq!(at(&mut ledger, time, Operation::Prune), Ok(Reply::Pruned { certificates: 1 }));
    assert_eq!(ledger.certificates_of(&proxy(1)).count(), 1);
}

#[test]
fn certificates_from_before_the_agreement_are_earlier_ones() {
    let mut ledger = founded();
    for n in 0..64 {
        bootstrap(&mut ledger, n).unwrap();
        if n % 2 == 0 {
            assert_eq!(claim(&mut ledger, n), Ok(vec![]));
        }
    }
    assert!(matches!(bootstrap(&mut ledger, 64), Err(Rejection::Full { .. })));
    agree(&mut ledger, START);
    assert_eq!(bootstrap(&mut ledger, 64), Ok(Reply::Recorded));
    let others = ledger.certificates_of(&proxy(1)).count() - 1;
    assert_eq!(claim(&mut ledger, 64).unwrap().len(), others);
    assert_eq!(ledger.certificates_of(&proxy(1)).count(), 1 + MAX_RELEASED_PER_PROXY);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Bootstrap,
    /// Of the bootstrap that many before the last.
    Claim(u32),
    Release,
    /// Hours.
    Wait(u8),
}

proptest! {
    /// Whatever happens to one name: a new bootstrap succeeds, its claim succeeds, nothing from
    /// before a claimed certificate is ever admitted again, and the records stay few.
    #[test]
    fn the_latest_claim_wins_in_any_history(
        steps in proptest::collection::vec(prop_oneof![
            4 => Just(Step::Bootstrap),
            4 => (0..12u32).prop_map(Step::Claim),
            1 => Just(Step::Release),
            1 => (0..30u8).prop_map(Step::Wait),
        ], 0..80),
        rules in proptest::sample::select(vec![Rules::First, Rules::Second]),
    ) {
        let mut ledger = agreed();
        now(&mut ledger, Operation::UseRules(rules)).unwrap();
        let (mut next, mut latest) = (0, None);
        for step in steps {
            match step {
                Step::Bootstrap => {
                    prop_assert_eq!(bootstrap(&mut ledger, next), Ok(Reply::Recorded));
                    next += 1;
                }
                Step::Claim(back) => {
                    let Some(n) = next.checked_sub(back + 1) else { continue };
                    let claimed = claim(&mut ledger, n);
                    prop_assert!(claimed.is_err() || latest <= Some(n), "{} after {:?}", n, latest);
                    if claimed.is_ok() {
                        latest = Some(n);
                    }
                }
                Step::Release => {
                    now(&mut ledger, Operation::ReleaseProxy(proxy(1))).unwrap();
                }
                Step::Wait(hours) => {
                    let time = ledger.now().plus(Duration::from_hours(hours.into()));
                    agree(&mut ledger, time);
                }
            }
            let most = MAX_UNCLAIMED_PER_PROXY + MAX_RELEASED_PER_PROXY + 1;
            prop_assert!(ledger.certificates_of(&proxy(1)).count() <= most);
        }
        bootstrap(&mut ledger, next).unwrap();
        prop_assert!(claim(&mut ledger, next).is_ok());
    }
}
