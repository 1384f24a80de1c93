//! The rules of a later version: what is as before until they begin, and that they begin once.

use std::fmt::Write as _;

use serde_json::json;

use super::*;

/// A generator of numbers, the same in every version of every crate (xorshift64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn byte(&mut self, end: u8) -> u8 {
        u8::try_from(self.below(u64::from(end))).unwrap()
    }
}

fn numbered(n: u64) -> SerialNumber {
    SerialNumber::draw((u128::from(n) | 1 << 100).to_be_bytes())
}

/// A command about proxy certificates, of which `issued` were recorded before.
fn drawn(draw: &mut Draw, time: Timestamp, issued: u64) -> Operation {
    match draw.below(12) {
        0..4 => {
            let Operation::RecordProxyCertificate(mut command) =
                proxy_certificate(2, 0, days(time.minus(Duration::from_mins(5)), 30))
            else {
                unreachable!()
            };
            command.serial = numbered(issued);
            command.proxy = proxy(draw.byte(6));
            command.proxy.namespace =
                ["bookstore", "bookbuyer", "warehouse"][usize::from(draw.byte(3))].into();
            Operation::RecordProxyCertificate(command)
        }
        4..8 => {
            let back = draw.below(12);
            Operation::ClaimProxyCertificate(numbered(issued.saturating_sub(1 + back)))
        }
        8 => Operation::ReleaseProxy(proxy(draw.byte(6))),
        9..11 => {
            let mut serials = Vec::new();
            for _ in 0..draw.below(4) {
                serials.push(numbered(draw.below(issued + 1)));
            }
            Operation::ReleaseProxyCertificates(serials)
        }
        _ => Operation::Prune,
    }
}

/// Five logs of 400 commands, half of them without an agreed time, which is before these rules. Returns the
/// hash of all states and outcomes.
fn history_of(rules: Rules) -> StateHash {
    let mut history = String::new();
    for seed in 1..=5_u64 {
        let mut draw = Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut ledger, mut time, mut issued) = (Ledger::default(), START, 0);
        at(&mut ledger, time, Operation::InitAuthority(Box::new(authority()))).unwrap();
        for step in 0..400 {
            time = time.plus(Duration::from_mins(draw.below(90)));
            if step >= 200 && draw.below(5) > 0 {
                agree(&mut ledger, time);
                at(&mut ledger, time, Operation::UseRules(rules)).unwrap();
            }
            let operation = drawn(&mut draw, time, issued);
            issued += u64::from(matches!(operation, Operation::RecordProxyCertificate(_)));
            let outcome = at(&mut ledger, time, operation);
            writeln!(history, "{outcome:?} {}", ledger.state_hash().unwrap()).unwrap();
        }
    }
    StateHash::of(history.as_bytes())
}

/// The hashes are those of the version before the next rules. Replicas of both versions apply one log during
/// an upgrade.
#[test]
fn under_former_rules_every_byte_is_as_before() {
    for (rules, before) in [
        (Rules::First, "831cebc9ecf866065f11407454665182831a528b88ee0762fb527d9511785f60"),
        (Rules::Second, "c888e7d1fb5b35e3ea668013189cbc3f0c9872401e5ed88f2dd05c7734f669c1"),
    ] {
        assert_eq!(history_of(rules).to_string(), before, "{rules:?}");
    }
}

#[test]
fn rules_begin_after_the_first_agreement_and_do_not_end() {
    let use_rules = |ledger: &mut Ledger, rules| now(ledger, Operation::UseRules(rules));
    let mut ledger = founded();
    assert_eq!(use_rules(&mut ledger, Rules::Second), Err(Rejection::NoAgreedTime));
    assert_eq!(use_rules(&mut ledger, Rules::First), Ok(Reply::RulesUnchanged));
    assert_eq!(ledger, founded());
    agree(&mut ledger, START);
    now(&mut ledger, proxy_certificate(2, 1, days(START, 2))).unwrap();
    assert_eq!(ledger.rules(), Rules::First);
    assert_eq!(use_rules(&mut ledger, Rules::Second), Ok(Reply::RulesBegun));
    let begun = ledger.clone();
    for rules in [Rules::Second, Rules::First] {
        assert_eq!(use_rules(&mut ledger, rules), Ok(Reply::RulesUnchanged));
    }
    assert_eq!(ledger, begun);
    // Time and numbers go on.
    let later = START.plus(Duration::from_mins(1));
    agree(&mut ledger, later);
    now(&mut ledger, proxy_certificate(3, 1, days(START, 2))).unwrap();
    let record = ledger.proxy_certificate(&serial(3)).unwrap();
    assert_eq!((record.number, record.issued_at, ledger.rules()), (2, later, Rules::Second));
}

/// The time in the stored form of the version before the second rules.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only whether it can be read counts")]
enum FormerTime {
    Latest(Timestamp),
    Agreed { agreed: Timestamp, proxies: u64 },
}

#[test]
fn an_older_version_reads_neither_the_rules_nor_a_snapshot_with_them() {
    let mut ledger = agreed();
    let stored =
        |ledger: &Ledger| serde_json::from_slice::<serde_json::Value>(&ledger.canonical().unwrap()).unwrap();
    assert!(serde_json::from_value::<FormerTime>(stored(&ledger)["now"].clone()).is_ok());
    now(&mut ledger, Operation::UseRules(Rules::Second)).unwrap();
    let mut image = stored(&ledger);
    assert_eq!(image["now"], json!({ "rules": 2, "time": { "agreed": START, "proxies": 0 } }));
    assert!(serde_json::from_value::<FormerTime>(image["now"].clone()).is_err());
    assert_eq!(serde_json::from_value::<Ledger>(image.clone()).unwrap(), ledger);
    // This version is the older one of the next.
    for unknown in [0, Rules::LATEST.generation() + 1, u32::MAX] {
        image["now"]["rules"] = json!(unknown);
        assert!(serde_json::from_value::<Ledger>(image.clone()).is_err(), "{unknown}");
        assert!(serde_json::from_value::<Operation>(json!({ "use-rules": unknown })).is_err(), "{unknown}");
    }
}

#[test]
fn a_release_forgets_what_was_never_used_once_the_second_rules_begin() {
    for (rules, kept) in [(Rules::First, 2), (Rules::Second, 1)] {
        for by_proxy in [true, false] {
            let mut ledger = agreed();
            now(&mut ledger, Operation::UseRules(rules)).unwrap();
            now(&mut ledger, proxy_certificate(2, 1, days(START, 2))).unwrap();
            now(&mut ledger, Operation::ClaimProxyCertificate(serial(2))).unwrap();
            now(&mut ledger, proxy_certificate(3, 1, days(START, 2))).unwrap();
            let mut serials = vec![serial(2), serial(3)];
            serials.sort();
            let release = if by_proxy {
                Operation::ReleaseProxy(proxy(1))
            } else {
                Operation::ReleaseProxyCertificates(serials.clone())
            };
            // Streams of both end, whatever is kept of them.
            assert_eq!(now(&mut ledger, release.clone()), Ok(Reply::Released { serials }), "{rules:?}");
            assert_eq!(now(&mut ledger, release), Ok(Reply::Released { serials: vec![] }), "{rules:?}");
            assert!(ledger.proxy_certificate(&serial(2)).unwrap().state.is_released());
            assert_eq!(ledger.certificates_of(&proxy(1)).count(), kept, "{rules:?}");
            let claim = now(&mut ledger, Operation::ClaimProxyCertificate(serial(3)));
            assert!(claim.is_err(), "{rules:?}: {claim:?}");
        }
    }
}
