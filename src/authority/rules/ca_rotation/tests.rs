mod declared;
mod trust;

use super::*;
use crate::ledger::{
    AcknowledgeRoot, AgreeOnTime, CaCertificate, CancelRoot, Command, ControllerCertificateRecord,
    EndControllerIssuer, ForgetService, NameRoot, Operation, RecordControllerCertificate,
    RecordProxyCertificate, RecordServiceCertificate, Rejection, Reply, RotateIssuing, Rules,
    ServiceCertificateRecord, SignWithNextRoot, SignedFor, TrustRoot,
};
use crate::pki::{Fingerprint, SealedKey};
use smc_types::ids::{NamespacedName, ProxyName, ProxyUuid, ServiceAccountId, TrustDomain};

const START: Timestamp = Timestamp(1_800_000_000);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const YEAR: Duration = Duration::from_hours(365 * 24);

fn serial(n: u32) -> SerialNumber {
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    SerialNumber::draw(bytes)
}

fn ca(n: u32, validity: Validity) -> CaCertificate {
    let key = SealedKey { encryption_key: String::new(), sealed: vec![] };
    CaCertificate { serial: serial(n), validity, certificate_pem: format!("{n} "), key }
}

/// A ledger, and the next serial number.
struct Book {
    ledger: Ledger,
    lifetimes: Lifetimes,
    drawn: u32,
    /// Whether the group agrees on the time of each command before it.
    timed: bool,
    declared: DeclaredRoots,
}

impl Book {
    fn new() -> Self {
        let lifetimes = Lifetimes::default();
        let root = ca(0, lifetimes.root_validity(START));
        let issuing = ca(1, lifetimes.issuing_validity(START, &root.validity).unwrap());
        let authority = Authority::new(TrustDomain::new("cluster.local").unwrap(), root, issuing);
        let mut book = Self {
            ledger: Ledger::default(),
            lifetimes,
            drawn: 1,
            timed: false,
            declared: DeclaredRoots::none(),
        };
        book.apply(START, Operation::InitAuthority(Box::new(authority))).unwrap();
        book
    }

    /// A group that agrees on the time, under the latest rules.
    fn of_the_latest_rules() -> Self {
        let mut book = Self { timed: true, ..Self::new() };
        book.apply(START, Operation::UseRules(Rules::LATEST)).unwrap();
        book
    }

    fn apply(&mut self, at: Timestamp, operation: Operation) -> Result<Reply, Rejection> {
        if self.timed {
            let agree = Operation::AgreeOnTime(AgreeOnTime { clocks: [(0, at)].into() });
            self.ledger.apply(&Command { at, operation: agree }).unwrap();
        }
        self.ledger.apply(&Command { at, operation })
    }

    fn authority(&self) -> &Authority {
        self.ledger.authority().unwrap()
    }

    fn draw(&mut self) -> u32 {
        self.drawn += 1;
        self.drawn
    }

    fn plan(&self, now: Timestamp, replicas: &[u64], steady: bool) -> CaPlan {
        let replicas = replicas.iter().copied().collect();
        let inputs = RotationInputs {
            lifetimes: &self.lifetimes,
            replicas: &replicas,
            now,
            steady,
            declared: &self.declared,
        };
        plan_ca_rotation(&self.ledger, inputs)
    }

    /// The operation of a step, with CAs as the controller would make them.
    fn operation(&mut self, now: Timestamp, step: CaStep) -> Option<Operation> {
        let n = self.draw();
        let lifetimes = self.lifetimes;
        let issuing = |root: &CaCertificate| {
            Some(Box::new(ca(n, lifetimes.issuing_validity(now, &root.validity).ok()?)))
        };
        Some(match step {
            CaStep::RotateIssuing { replaces } => Operation::RotateIssuing(RotateIssuing {
                replaces,
                issuing: issuing(&self.authority().root)?,
            }),
            CaStep::TrustRoot { beside } => Operation::TrustRoot(TrustRoot {
                beside,
                root: Box::new(ca(n, self.lifetimes.root_validity(now))),
            }),
            CaStep::SignWithNextRoot { root, replicas } => {
                let next = &self.authority().next_root.as_ref()?.ca;
                Operation::SignWithNextRoot(SignWithNextRoot { root, replicas, issuing: issuing(next)? })
            }
            CaStep::EndControllerIssuer { issuing } => {
                Operation::EndControllerIssuer(EndControllerIssuer { issuing })
            }
            CaStep::RetireCa(ca) => Operation::RetireCa(ca),
            CaStep::CancelRoot { root } => Operation::CancelRoot(CancelRoot { root }),
            CaStep::NameRoot { root, object } => Operation::NameRoot(NameRoot { root, object }),
        })
    }

    fn take(&mut self, now: Timestamp, step: CaStep) -> Result<Reply, Rejection> {
        let operation = self.operation(now, step).unwrap();
        self.apply(now, operation)
    }

    /// Issues a service certificate; returns its serial number.
    fn service(&mut self, now: Timestamp, account: &ServiceAccountId) -> Result<SerialNumber, Rejection> {
        let n = self.draw();
        let issuer = self.authority().signer(SignedFor::Workloads, now);
        let Ok(validity) = self.lifetimes.service_validity(now, &issuer.validity, n.into()) else {
            return Err(Rejection::CaNotValid(issuer.serial));
        };
        let record = ServiceCertificateRecord {
            serial: serial(n),
            validity,
            issued_at: now,
            issuer: issuer.serial,
            chain_pem: String::new(),
            key: SealedKey { encryption_key: String::new(), sealed: vec![] },
        };
        let replaces = self.ledger.service_certificate(account).map(|record| record.serial);
        let account = account.clone();
        self.apply(
            now,
            Operation::RecordServiceCertificate(RecordServiceCertificate {
                account,
                requested: false,
                replaces,
                record: Box::new(record),
            }),
        )?;
        Ok(serial(n))
    }

    fn proxy(&mut self, now: Timestamp, n: u8) -> Result<SerialNumber, Rejection> {
        let (drawn, issuer) = (self.draw(), self.authority().signer(SignedFor::Workloads, now));
        let Ok(validity) = self.lifetimes.proxy_validity(now, &issuer.validity) else {
            return Err(Rejection::CaNotValid(issuer.serial));
        };
        let operation = Operation::RecordProxyCertificate(RecordProxyCertificate {
            serial: serial(drawn),
            proxy: proxy(n),
            service_account: Some(account(n)),
            validity,
            issuer: issuer.serial,
            fingerprint: Fingerprint::of(&[n]),
        });
        self.apply(now, operation)?;
        Ok(serial(drawn))
    }

    fn controller(&mut self, now: Timestamp) -> Result<SerialNumber, Rejection> {
        let (n, issuer) = (self.draw(), self.authority().signer(SignedFor::Controllers, now));
        let Ok(validity) = self.lifetimes.service_validity(now, &issuer.validity, n.into()) else {
            return Err(Rejection::CaNotValid(issuer.serial));
        };
        let fingerprint = Fingerprint::of(&n.to_be_bytes());
        let record =
            ControllerCertificateRecord { names: vec![], validity, issuer: issuer.serial, fingerprint };
        self.apply(
            now,
            Operation::RecordControllerCertificate(RecordControllerCertificate {
                serial: serial(n),
                record: Box::new(record),
            }),
        )?;
        Ok(serial(n))
    }
}

fn account(n: u8) -> ServiceAccountId {
    ServiceAccountId::new("shop", &format!("account-{n}")).unwrap()
}

fn proxy(n: u8) -> ProxyName {
    ProxyName::new(ProxyUuid(uuid::Uuid::from_bytes([n; 16])), "shop").unwrap()
}

#[test]
fn a_young_or_missing_authority_needs_no_step() {
    let mut book = Book::new();
    let due = START.plus(3 * YEAR).minus(YEAR).minus(YEAR / 12);
    for age in [Duration::ZERO, YEAR] {
        let plan = book.plan(START.plus(age), &[0], true);
        assert_eq!(plan, CaPlan { step: None, next: Some(due) });
    }
    book.ledger = Ledger::default();
    assert_eq!(book.plan(START, &[0], true), CaPlan::default());
}

/// Scheduled rotation never shortens a certificate by the end of its issuer.
#[test]
fn by_schedule_cas_are_replaced_before_they_shorten_what_they_sign() {
    let mut book = Book::new();
    let (mut steps, mut now) = (Vec::new(), START);
    while now < START.plus(25 * YEAR) {
        while let Some(step) = book.plan(now, &[0], true).step {
            steps.push((now.since(START).as_secs() / YEAR.as_secs(), step.clone()));
            assert_eq!(book.take(now, step.clone()), Ok(Reply::AuthorityChanged), "{step:?}");
            if let Some(next) = &book.authority().next_root {
                let root = next.ca.serial;
                let _ = book.apply(now, Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 0, root }));
            }
        }
        let issuer = book.authority().issuing.validity;
        assert_eq!(book.lifetimes.proxy_validity(now, &issuer).unwrap().not_after, now.plus(YEAR));
        let root = book.authority().root.validity;
        let issuing = book.lifetimes.issuing_validity(now, &root).unwrap();
        assert_eq!(issuing.not_after, now.plus(3 * YEAR), "{now:?}");
        book.proxy(now, 1).unwrap();
        book.service(now, &account(1)).unwrap();
        book.apply(now, Operation::ReleaseProxy(proxy(1))).unwrap();
        book.apply(now, Operation::Prune).unwrap();
        now = now.plus(5 * DAY);
    }
    let roots: Vec<_> =
        steps.iter().filter(|(_, step)| matches!(step, CaStep::TrustRoot { .. })).map(|(y, _)| *y).collect();
    assert_eq!(roots, [6, 13, 20]);
    let issuing = steps.iter().filter(|(_, step)| matches!(step, CaStep::RotateIssuing { .. }));
    assert!((8..=13).contains(&issuing.count()), "{steps:?}");
    assert!(book.authority().former_issuing.len() <= 2, "{:?}", book.authority().former_issuing);
}

#[test]
fn certificates_of_a_former_ca_are_renewed_within_an_hour_not_all_at_once() {
    let mut book = Book::new();
    let accounts: BTreeSet<_> = (0..100).map(account).collect();
    for account in &accounts {
        book.service(START, account).unwrap();
    }
    let wanted = crate::rules::WantedCertificates { accounts, lifetime: None };
    let now = START.plus(HOUR);
    book.take(now, CaStep::RotateIssuing { replaces: serial(1) }).unwrap();
    let due = |now| crate::rules::plan_renewal(&wanted, &book.ledger, now).due.len();
    assert_eq!(due(now), 0);
    // The serials of this test are not random, so they are spread over the first minutes.
    assert!((10..90).contains(&due(now.plus(Duration::from_mins(1)))));
    assert_eq!(due(now.plus(HOUR)), 100);
}

#[test]
fn a_clock_that_may_be_wrong_begins_no_rotation_and_retires_no_ca() {
    let mut book = Book::new();
    let late = START.plus(9 * YEAR);
    assert_eq!(book.plan(late, &[0], false), CaPlan::default());
    assert!(matches!(book.plan(late, &[0], true).step, Some(CaStep::TrustRoot { .. })));
    book.take(START, CaStep::RotateIssuing { replaces: serial(1) }).unwrap();
    assert_eq!(book.plan(START, &[0], false).step, None);
    assert_eq!(book.plan(START, &[0], true).step, Some(CaStep::RetireCa(serial(1))));
}

#[test]
fn an_invalid_issuing_ca_is_replaced_at_once_unless_the_new_ends_no_later() {
    let book = Book::new();
    for now in [START.plus(4 * YEAR), START.minus(2 * HOUR)] {
        let plan = book.plan(now, &[0], true);
        match plan.step {
            Some(CaStep::RotateIssuing { replaces }) => assert_eq!(replaces, serial(1)),
            // The root is not valid at that time, either.
            other => assert!(now < START && matches!(other, Some(CaStep::TrustRoot { .. })), "{other:?}"),
        }
    }
    // Near the root's end another issuing CA would end with it.
    let mut book = Book::new();
    let late = START.plus(9 * YEAR);
    book.take(late, CaStep::RotateIssuing { replaces: serial(1) }).unwrap();
    book.take(late, CaStep::TrustRoot { beside: serial(0) }).unwrap();
    assert_eq!(book.plan(late, &[0], true).step, Some(CaStep::RetireCa(serial(1))));
}

#[test]
fn at_a_start_an_issuing_ca_that_cannot_sign_is_replaced() {
    let book = Book::new();
    let ends = |validity: &Validity, early: u64| validity.not_after.minus(Duration::from_secs(early));
    let (root, issuing) = (book.authority().root.validity, book.authority().issuing.validity);
    let replace = Ok(Some(CaStep::RotateIssuing { replaces: serial(1) }));
    for (now, expected) in [
        (START, Ok(None)),
        (START.plus(2 * YEAR), Ok(None)),
        (ends(&issuing, 10), Ok(None)),
        (ends(&issuing, 9), replace.clone()),
        (START.plus(4 * YEAR), replace.clone()),
        (ends(&root, 10), replace),
        (ends(&root, 9), Err(root)),
        (START.plus(11 * YEAR), Err(root)),
        (START.minus(HOUR), Err(root)),
    ] {
        let found = revive_issuing(book.authority(), &book.lifetimes, now);
        assert_eq!(found.map_err(|ending| ending.issuer), expected, "{now:?}");
    }
}

#[test]
fn an_issuing_ca_of_a_clock_that_was_ahead_is_replaced_at_once() {
    let mut book = Book::new();
    let (before, ahead) = (book.service(START, &account(1)).unwrap(), START.plus(4 * YEAR));
    let step = revive_issuing(book.authority(), &book.lifetimes, ahead).unwrap().unwrap();
    book.take(ahead, step).unwrap();
    let of_the_jump = CaStep::RotateIssuing { replaces: book.authority().issuing.serial };
    assert_eq!(revive_issuing(book.authority(), &book.lifetimes, START), Ok(Some(of_the_jump.clone())));
    assert_eq!(book.plan(START, &[0], false).step, Some(of_the_jump.clone()), "also while a replica runs");
    book.take(START, of_the_jump).unwrap();
    assert_eq!(book.plan(START, &[0], false).step, None);
    assert!(book.authority().issuing.validity.contains(START));
    let issuer = book.ledger.service_certificate(&account(1)).unwrap();
    assert_eq!((issuer.serial, book.authority().root_of(issuer.issuer)), (before, Some(serial(0))));
}

#[test]
fn a_root_waits_for_every_replica_and_for_older_certificates() {
    let mut book = Book::new();
    let first = book.service(START, &account(1)).unwrap();
    let end = book.ledger.service_certificate(&account(1)).unwrap().validity.not_after;
    book.take(START, CaStep::TrustRoot { beside: serial(0) }).unwrap();
    let root = book.authority().next_root.as_ref().unwrap().ca.serial;
    let acknowledge = |replica| Operation::AcknowledgeRoot(AcknowledgeRoot { replica, root });
    let after = end.plus(Duration::from_secs(1));
    let step = |book: &Book, now, replicas: &[u64]| book.plan(now, replicas, true).step;
    assert_eq!(step(&book, after, &[0, 1]), None, "no replica has acknowledged it");
    book.apply(START, acknowledge(0)).unwrap();
    assert_eq!(step(&book, after, &[0, 1]), None, "one replica has");
    assert_eq!(step(&book, after, &[]), None, "there is no group");
    book.apply(START, acknowledge(1)).unwrap();
    assert_eq!(book.plan(START, &[0, 1], true), CaPlan { step: None, next: Some(after) }, "{first}");
    assert_eq!(book.plan(after, &[0, 1], false).step, None, "the clock may have jumped there");
    let replicas = BTreeSet::from([0, 1]);
    assert_eq!(step(&book, after, &[0, 1]), Some(CaStep::SignWithNextRoot { root, replicas }));
    assert_eq!(step(&book, after, &[0, 1, 2]), None, "another replica has joined since");
}

#[test]
fn a_next_root_that_is_not_valid_is_replaced_and_not_waited_for() {
    let mut book = Book::new();
    let wild = START.plus(20 * YEAR);
    book.take(wild, CaStep::TrustRoot { beside: serial(0) }).unwrap();
    let root = book.authority().next_root.as_ref().unwrap().ca.serial;
    book.apply(START, Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 0, root })).unwrap();
    let late = START.plus(7 * YEAR);
    assert_eq!(book.plan(late, &[0], false).step, None);
    assert_eq!(book.plan(late, &[0], true).step, Some(CaStep::TrustRoot { beside: serial(0) }));
    assert_eq!(book.take(late, CaStep::TrustRoot { beside: serial(0) }), Ok(Reply::AuthorityChanged));
}

#[test]
fn a_former_root_goes_when_its_last_proxy_has_gone() {
    let mut book = Book::new();
    book.proxy(START, 1).unwrap();
    book.take(START, CaStep::TrustRoot { beside: serial(0) }).unwrap();
    let root = book.authority().next_root.as_ref().unwrap().ca.serial;
    book.apply(START, Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 0, root })).unwrap();
    let now = START.plus(HOUR);
    let step = book.plan(now, &[0], true).step.unwrap();
    book.take(now, step).unwrap();
    book.controller(now).unwrap();
    let issuer = book.authority().controller_issuer.as_ref().unwrap().serial;
    let plan = book.plan(now, &[0], true);
    assert_eq!(plan.step, None);
    assert_eq!(plan.next, Some(START.plus(YEAR).plus(PRUNE_MARGIN).plus(Duration::from_secs(1))));
    book.apply(now, Operation::ReleaseProxy(proxy(1))).unwrap();
    let mut steps = Vec::new();
    for now in [now, now.plus(5 * DAY)] {
        while let Some(step) = book.plan(now, &[0], true).step {
            assert_eq!(book.take(now, step.clone()), Ok(Reply::AuthorityChanged));
            steps.push((now, step));
        }
    }
    let then = now.plus(5 * DAY);
    let end = CaStep::EndControllerIssuer { issuing: issuer };
    assert_eq!(steps, [(now, end), (then, CaStep::RetireCa(issuer)), (then, CaStep::RetireCa(serial(0)))]);
}
