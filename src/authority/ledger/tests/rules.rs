//! The rules of a later version: what is as before until they begin, and that they begin once.

use std::collections::BTreeMap;

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

fn agree(ledger: &mut Ledger, time: Timestamp) {
    let clocks = BTreeMap::from([(0, time)]);
    at(ledger, time, Operation::AgreeOnTime(AgreeOnTime { clocks })).unwrap();
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

/// Five logs of 400 commands, half of them without an agreed time. Returns the hash of all states and outcomes.
fn history_of_the_first_rules() -> StateHash {
    let mut history = String::new();
    for seed in 1..=5_u64 {
        let mut draw = Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut ledger, mut time, mut issued) = (Ledger::default(), START, 0);
        at(&mut ledger, time, Operation::InitAuthority(Box::new(authority()))).unwrap();
        for step in 0..400 {
            time = time.plus(Duration::from_mins(draw.below(90)));
            if step >= 200 && draw.below(5) > 0 {
                agree(&mut ledger, time);
            }
            let operation = drawn(&mut draw, time, issued);
            issued += u64::from(matches!(operation, Operation::RecordProxyCertificate(_)));
            let outcome = at(&mut ledger, time, operation);
            history.push_str(&format!("{outcome:?} {}\n", ledger.state_hash().unwrap()));
        }
    }
    StateHash::of(history.as_bytes())
}

/// The hash is that of the version before the second rules. Replicas of both versions apply one log during an
/// upgrade.
#[test]
fn under_the_first_rules_every_byte_is_as_before() {
    let before = "831cebc9ecf866065f11407454665182831a528b88ee0762fb527d9511785f60";
    assert_eq!(history_of_the_first_rules().to_string(), before);
}
