//! Which proxy certificates give way to new ones in a full ledger.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn numbered(n: u32) -> SerialNumber {
    SerialNumber::draw((u128::from(n) | 1 << 100).to_be_bytes())
}

fn proxy_in(namespace: &str, n: u8) -> ProxyName {
    ProxyName { namespace: namespace.into(), ..proxy(n) }
}

fn record_of(n: u32, proxy: ProxyName, time: Timestamp) -> Operation {
    let Operation::RecordProxyCertificate(mut command) = proxy_certificate(2, 0, days(time, 30)) else {
        unreachable!()
    };
    (command.serial, command.proxy) = (numbered(n), proxy);
    Operation::RecordProxyCertificate(command)
}

fn under(rules: Rules) -> Ledger {
    let mut ledger = agreed();
    now(&mut ledger, Operation::UseRules(rules)).unwrap();
    ledger
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Unclaimed,
    Claimed,
    Released,
}

use Held::{Claimed, Released, Unclaimed};

/// The rejection of a new certificate.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    Full,
    LargestShare(usize),
}

/// A full ledger with these certificates, of a proxy each, the oldest first. Returns which of them gives
/// way to a new one of `namespace`.
fn gives_way(rules: Rules, held: &[(&str, Held)], namespace: &str) -> Result<usize, Refused> {
    let mut ledger = under(rules);
    let mut time = START;
    for (n, (namespace, state)) in held.iter().enumerate() {
        let (number, proxy) = (u32::try_from(n).unwrap(), proxy_in(namespace, u8::try_from(n).unwrap()));
        time = time.plus(Duration::from_secs(1));
        agree(&mut ledger, time);
        at(&mut ledger, time, record_of(number, proxy.clone(), time)).unwrap();
        if *state != Unclaimed {
            at(&mut ledger, time, Operation::ClaimProxyCertificate(numbered(number))).unwrap();
        }
        if *state == Released {
            at(&mut ledger, time, Operation::ReleaseProxy(proxy)).unwrap();
        }
    }
    let command = Command { at: time, operation: record_of(99, proxy_in(namespace, 99), time) };
    let outcome = ledger.apply_within(&command, held.len());
    let gone = |n: &usize| ledger.proxy_certificate(&numbered(u32::try_from(*n).unwrap())).is_none();
    let gone: Vec<_> = (0..held.len()).filter(gone).collect();
    match outcome {
        Ok(Reply::Recorded) => {
            let [gone] = gone[..] else { panic!("{gone:?} of {held:?}") };
            Ok(gone)
        }
        Err(rejection) => {
            assert!(gone.is_empty(), "{gone:?} of {held:?}");
            Err(match rejection {
                Rejection::Full { .. } => Refused::Full,
                Rejection::LargestShare { namespace: refused, unclaimed, .. } => {
                    assert_eq!(&*refused, namespace);
                    Refused::LargestShare(unclaimed)
                }
                other => panic!("{other}"),
            })
        }
        Ok(other) => panic!("{other:?}"),
    }
}

#[test]
fn in_a_full_ledger_the_namespace_with_the_most_unused_pays() {
    for (sentence, held, namespace, expected) in [
        ("the oldest released one goes first", &[("a", Released), ("a", Released)][..], "b", Ok(0)),
        ("also for a new one of the same namespace", &[("b", Claimed), ("a", Released)], "a", Ok(1)),
        (
            "of the namespace with the most released ones",
            &[("a", Released), ("b", Released), ("b", Released)],
            "c",
            Ok(1),
        ),
        (
            "no unclaimed one goes while there is a released one",
            &[("a", Unclaimed), ("a", Unclaimed), ("b", Released)],
            "a",
            Ok(2),
        ),
        (
            "then the namespace with the most unclaimed ones pays, with its oldest",
            &[("a", Unclaimed), ("b", Unclaimed), ("b", Unclaimed)],
            "a",
            Ok(1),
        ),
        ("for a namespace that has none, too", &[("a", Unclaimed), ("a", Unclaimed)], "b", Ok(0)),
        (
            "the namespace with the most is refused",
            &[("a", Unclaimed), ("b", Unclaimed), ("b", Unclaimed)],
            "b",
            Err(Refused::LargestShare(2)),
        ),
        (
            "and one that has as many",
            &[("a", Unclaimed), ("b", Unclaimed)],
            "a",
            Err(Refused::LargestShare(1)),
        ),
        (
            "what sidecars use counts against no namespace",
            &[("a", Claimed), ("a", Claimed), ("a", Unclaimed), ("b", Unclaimed), ("b", Unclaimed)],
            "a",
            Ok(3),
        ),
        ("and is never taken", &[("a", Claimed), ("a", Claimed)], "b", Err(Refused::Full)),
    ] {
        assert_eq!(gives_way(Rules::Second, held, namespace), expected, "{sentence}");
        assert_eq!(gives_way(Rules::First, held, namespace), Err(Refused::Full), "before: {sentence}");
    }
}

#[test]
fn a_flood_of_one_namespace_leaves_the_others_their_share() {
    let max = 100;
    let mut ledger = under(Rules::Second);
    let record = |ledger: &mut Ledger, n: u32, namespace: &str| {
        let proxy = ProxyName {
            uuid: smc_types::ids::ProxyUuid(uuid::Uuid::from_u128(u128::from(n))),
            ..proxy_in(namespace, 0)
        };
        ledger.apply_within(&Command { at: START, operation: record_of(n, proxy, START) }, max)
    };
    let flood = (0..1_000).filter(|n| record(&mut ledger, *n, "flood").is_ok()).count();
    assert_eq!(flood, max, "the first ones, and no more");
    for n in 0..40 {
        assert_eq!(record(&mut ledger, 2_000 + n, "shop"), Ok(Reply::Recorded));
        now(&mut ledger, Operation::ClaimProxyCertificate(numbered(2_000 + n))).unwrap();
    }
    assert!(matches!(record(&mut ledger, 3_000, "flood"), Err(Rejection::LargestShare { .. })));
    // The pods of the flood never came.
    let serials: Vec<_> = ledger.proxy_certificates().map(|(serial, _)| *serial).collect();
    let unclaimed = serials
        .into_iter()
        .filter(|serial| ledger.proxy_certificate(serial).unwrap().state == ProxyCertificateState::Unclaimed);
    let unclaimed: Vec<_> = unclaimed.collect();
    now(&mut ledger, Operation::ReleaseProxyCertificates(unclaimed)).unwrap();
    assert_eq!(ledger.proxy_certificates().count(), 40);
    assert_eq!(record(&mut ledger, 3_001, "flood"), Ok(Reply::Recorded));
}

const NAMESPACES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Debug, Clone)]
enum Step {
    Record(usize, u8),
    /// The certificate that was recorded that many before the last.
    Claim(u32),
    Release(Vec<u32>),
    ReleaseProxy(usize, u8),
    Prune,
    /// Hours.
    Wait(u64),
    Begin,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..NAMESPACES.len(), 0..6u8).prop_map(|(namespace, proxy)| Step::Record(namespace, proxy)),
        // The first namespace alone, as in a flood.
        6 => (0..6u8).prop_map(|proxy| Step::Record(0, proxy)),
        6 => (0..10u32).prop_map(Step::Claim),
        2 => proptest::collection::vec(0..30u32, 0..4).prop_map(Step::Release),
        2 => (0..NAMESPACES.len(), 0..6u8).prop_map(|(namespace, proxy)| Step::ReleaseProxy(namespace, proxy)),
        1 => Just(Step::Prune),
        1 => (0..30u64).prop_map(Step::Wait),
        1 => Just(Step::Begin),
    ]
}

/// The serial numbers of the certificates that proxies use.
fn in_use(ledger: &Ledger) -> BTreeSet<SerialNumber> {
    let claimed = ledger
        .proxy_certificates()
        .filter(|(_, record)| matches!(record.state, ProxyCertificateState::Claimed { .. }));
    claimed.map(|(serial, _)| *serial).collect()
}

/// Checks that a namespace was refused for a reason: it has no less than an equal share of the places that no
/// proxy uses.
fn assert_refused_by_its_share(ledger: &Ledger, namespace: &str, max: usize) {
    let counts = ledger.count_proxy_certificates();
    assert_eq!((counts.released, counts.unclaimed + counts.claimed), (0, max));
    let records = || ledger.proxy_certificates().map(|(_, record)| record);
    let namespaces: BTreeSet<_> =
        records().map(|record| &*record.proxy.namespace).chain([namespace]).collect();
    let unclaimed = records().filter(|record| {
        &*record.proxy.namespace == namespace && record.state == ProxyCertificateState::Unclaimed
    });
    assert!(unclaimed.count() * namespaces.len() >= max - counts.claimed);
}

proptest! {
    /// Whatever several namespaces do, in a small ledger.
    #[test]
    fn no_namespace_with_less_than_its_share_is_refused(
        max in 1..14usize,
        steps in proptest::collection::vec(any_step(), 0..120),
    ) {
        let (mut ledger, mut issued) = (agreed(), 0);
        for step in steps {
            let time = ledger.now();
            let before = ledger.clone();
            let (operation, namespace) = match step {
                Step::Record(namespace, n) => {
                    issued += 1;
                    let namespace = NAMESPACES[namespace];
                    (record_of(issued, proxy_in(namespace, n), time), Some(namespace))
                }
                Step::Claim(back) => {
                    (Operation::ClaimProxyCertificate(numbered(issued.saturating_sub(back))), None)
                }
                Step::Release(back) => {
                    let serials = back.into_iter().map(|back| numbered(issued.saturating_sub(back)));
                    (Operation::ReleaseProxyCertificates(serials.collect()), None)
                }
                Step::ReleaseProxy(namespace, n) => {
                    (Operation::ReleaseProxy(proxy_in(NAMESPACES[namespace], n)), None)
                }
                Step::Prune => (Operation::Prune, None),
                Step::Wait(hours) => {
                    agree(&mut ledger, time.plus(Duration::from_hours(hours)));
                    continue;
                }
                Step::Begin => (Operation::UseRules(Rules::Second), None),
            };
            let outcome = ledger.apply_within(&Command { at: time, operation }, max);
            prop_assert!(ledger.proxy_certificates().count() <= max);
            if let Some(namespace) = namespace {
                prop_assert_eq!(in_use(&before), in_use(&ledger), "no sidecar pays");
                if outcome.is_err() {
                    prop_assert_eq!(&before, &ledger);
                    if ledger.rules() == Rules::Second {
                        assert_refused_by_its_share(&ledger, namespace, max);
                    }
                }
            }
            if let (Ok(Reply::Released { serials }), Rules::Second) = (&outcome, ledger.rules()) {
                let known = serials.iter().filter(|serial| ledger.proxy_certificate(serial).is_some());
                prop_assert!(known.into_iter().all(|serial| in_use(&before).contains(serial)));
            }
            // Its indexes are those that a restart computes from the records.
            let restarted: Ledger = serde_json::from_slice(&ledger.canonical().unwrap()).unwrap();
            prop_assert_eq!(&restarted, &ledger);
        }
    }
}
