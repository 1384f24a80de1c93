//! Three replicas that renew certificates, one of which has a wrong clock.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::super::{Clocks, GroupTime, compare};
use crate::ledger::{
    AgreeOnTime, Authority, CaCertificate, Command, Ledger, Operation, RecordServiceCertificate, Reply,
    ServiceCertificateRecord,
};
use crate::pki::{Lifetimes, SealedKey, SerialNumber, Validity};
use crate::rules::{WantedCertificates, plan_renewal};
use smc_types::ids::{ServiceAccountId, TrustDomain};
use smc_types::time::Timestamp;

const START: Timestamp = Timestamp(1_800_000_000);
const DAY: i64 = 24 * 3600;

/// The replica whose clock is wrong.
const WRONG: u64 = 2;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// So many seconds pass.
    Wait(u32),
    /// The wrong clock is so many seconds ahead.
    Set(i64),
    /// A replica renews what is due.
    Renew(u64),
    /// As [`Step::Renew`], by the replica with the wrong clock: just after the other ones have agreed on the
    /// time, and before it compares its clock with theirs.
    RenewBlindly,
}

fn serial(n: u64) -> SerialNumber {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    SerialNumber::draw(bytes)
}

fn sealed() -> SealedKey {
    SealedKey { encryption_key: String::new(), sealed: vec![] }
}

struct Trio {
    ledger: Ledger,
    time: Timestamp,
    ahead: i64,
    next: u64,
    recorded: u64,
}

impl Trio {
    fn new() -> Self {
        let validity = Validity {
            not_before: START.minus(Duration::from_hours(1)),
            not_after: START.plus(Duration::from_hours(87_600)),
        };
        let certificate_pem = String::new();
        let ca = |n| CaCertificate {
            serial: serial(n),
            validity,
            certificate_pem: certificate_pem.clone(),
            key: sealed(),
        };
        let authority = Authority::new(TrustDomain::new("cluster.local").unwrap(), ca(1), ca(2));
        let mut trio = Self { ledger: Ledger::default(), time: START, ahead: 0, next: 3, recorded: 0 };
        trio.apply(START, Operation::InitAuthority(Box::new(authority)));
        trio.agree(0);
        trio
    }

    fn apply(&mut self, at: Timestamp, operation: Operation) -> bool {
        matches!(self.ledger.apply(&Command { at, operation }), Ok(Reply::Recorded))
    }

    fn clock(&self, replica: u64) -> Timestamp {
        let ahead = if replica == WRONG { self.ahead } else { i64::try_from(replica).unwrap() };
        Timestamp(self.time.0 + ahead)
    }

    fn group_time(&self, me: u64) -> GroupTime {
        let others = (0..3).filter(|id| *id != me).map(|id| (id, Some(self.clock(id)))).collect();
        compare(&Clocks { me, own: self.clock(me), others, members: 3 })
    }

    fn agree(&mut self, me: u64) {
        if let GroupTime::Agreed { now, clocks, .. } = self.group_time(me)
            && (self.ledger.agreed_time().is_none() || self.ledger.is_time_due(now))
        {
            self.apply(self.clock(me), Operation::AgreeOnTime(AgreeOnTime { clocks }));
        }
    }

    fn renew(&mut self, me: u64) {
        let account = ServiceAccountId::new("shop", "buyer").unwrap();
        let wanted = WantedCertificates { accounts: BTreeSet::from([account.clone()]), lifetime: None };
        let now = self.clock(me);
        if plan_renewal(&wanted, &self.ledger, now).due.is_empty() {
            return;
        }
        let issuer = self.ledger.authority().unwrap().issuing.validity;
        let random = self.next * 7919;
        let Ok(validity) = Lifetimes::default().service_validity(now, &issuer, random) else { return };
        let record = ServiceCertificateRecord {
            serial: serial(self.next),
            validity,
            issued_at: now,
            issuer: serial(2),
            chain_pem: String::new(),
            key: sealed(),
        };
        self.next += 1;
        let replaces = self.ledger.service_certificate(&account).map(|record| record.serial);
        let command =
            RecordServiceCertificate { account, replaces, record: Box::new(record), requested: false };
        if self.apply(now, Operation::RecordServiceCertificate(command)) {
            self.recorded += 1;
            assert!(validity.contains(self.time), "{validity:?} at {:?}", self.time);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Wait(seconds) => self.time = self.time.plus(Duration::from_secs(seconds.into())),
            Step::Set(ahead) => self.ahead = ahead,
            Step::Renew(replica) => {
                if self.group_time(replica).is_agreed() {
                    self.agree(replica);
                    self.renew(replica);
                }
            }
            Step::RenewBlindly => {
                self.agree(0);
                self.renew(WRONG);
            }
        }
    }
}

/// The clock is first ahead and then behind, each time by less than the ledger tolerates.
#[test]
fn a_clock_that_falls_behind_replaces_no_certificate() {
    let mut trio = Trio::new();
    for step in [Step::Set(15), Step::RenewBlindly, Step::Set(-286), Step::RenewBlindly] {
        trio.take(step);
    }
    assert_eq!(trio.recorded, 1);
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..7200u32).prop_map(Step::Wait),
        2 => prop_oneof![-400 * DAY..400 * DAY, -400..400i64].prop_map(Step::Set),
        5 => (0..3u64).prop_map(Step::Renew),
        3 => Just(Step::RenewBlindly),
    ];
    proptest::collection::vec(step, 0..300)
}

proptest! {
    /// Whatever one clock does, and whether or not its replica notices: every certificate on record
    /// was valid when it was recorded, and none is replaced more often than its life asks for.
    #[test]
    fn a_wrong_clock_makes_no_renewal_more(steps in steps()) {
        let mut trio = Trio::new();
        for step in steps {
            trio.take(step);
        }
        // At the earliest after 55 percent of the shortest life, 0.9 times 48 hours.
        let life = trio.time.since(START).as_secs();
        let most = 1 + life / (48 * 3600 * 9 / 10 * 55 / 100);
        prop_assert!(trio.recorded <= most, "{} in {life} s", trio.recorded);
        prop_assert!(trio.group_time(0).is_agreed() && trio.group_time(1).is_agreed());
    }
}
