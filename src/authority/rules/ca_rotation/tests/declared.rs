//! Roots that a person declares.

use std::collections::BTreeMap;

use super::*;
use crate::rules::{RootObstacle, RootRole};

use RootRole::{Active, Inactive, Passive};

/// The objects that may declare a root.
pub(super) fn objects() -> impl Iterator<Item = NamespacedName> {
    ["a", "b", "c"].into_iter().map(object)
}

/// The roles of these objects.
pub(super) fn named(roles: &[Option<RootRole>]) -> BTreeMap<NamespacedName, RootRole> {
    objects().zip(roles).filter_map(|(object, role)| Some((object, (*role)?))).collect()
}

fn object(name: &str) -> NamespacedName {
    NamespacedName::new("smc-system", name).unwrap()
}

impl Book {
    /// A group of the latest rules for which these roles are declared, and what follows is done.
    fn declaring(roles: &[Option<RootRole>]) -> Self {
        let mut book = Self::of_the_latest_rules();
        book.declare(START, roles);
        book
    }

    /// Declares roles, and takes the steps that are due.
    fn declare(&mut self, now: Timestamp, roles: &[Option<RootRole>]) -> Vec<CaStep> {
        self.declared = DeclaredRoots::of(named(roles));
        self.run(now)
    }

    /// Takes the steps that are due. Every sidecar trusts what it is sent at once.
    fn run(&mut self, now: Timestamp) -> Vec<CaStep> {
        let mut steps = Vec::new();
        while let Some(step) = self.plan(now, &[0], true).step {
            assert_eq!(self.take(now, step.clone()), Ok(Reply::AuthorityChanged), "{step:?}");
            steps.push(step);
            if let Some(next) = &self.authority().next_root {
                let root = next.ca.serial;
                let _ = self.apply(now, Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 0, root }));
            }
            assert!(steps.len() < 20, "{steps:?}");
        }
        steps
    }

    /// The objects of the root that signs, of the next and of the former one; `-` where it has none, and
    /// empty where there is no such root.
    fn roots(&self) -> [String; 3] {
        let authority = self.authority();
        let next = authority.next_root.as_ref().map(|next| next.ca.serial);
        let former = authority.former_root.as_ref().map(|former| former.serial);
        [Some(authority.root.serial), next, former].map(|root| {
            let object = |root| authority.declared_by(root).map_or("-", NamespacedName::name).to_owned();
            root.map(object).unwrap_or_default()
        })
    }

    fn obstacles(&self, now: Timestamp) -> Vec<String> {
        let obstacles = self.declared.obstacles(&self.ledger, &[0].into(), now);
        obstacles.into_iter().map(|(object, obstacle)| format!("{}: {obstacle}", object.name())).collect()
    }
}

/// As OSM's documents have it: passive, active, passive, inactive, and the object is deleted.
#[test]
fn roles_lead_a_root_through_its_life() {
    let mut book = Book::declaring(&[Some(Active)]);
    assert_eq!(book.roots(), ["a", "", ""], "the root that there is is the first one's");
    book.proxy(START, 1).unwrap();
    let end = {
        book.service(START, &account(1)).unwrap();
        book.ledger.service_certificate(&account(1)).unwrap().validity.not_after
    };
    book.declare(START, &[Some(Active), Some(Passive)]);
    assert_eq!(book.roots(), ["a", "b", ""]);
    let now = START.plus(30 * DAY);
    assert!(end < now && book.run(now).is_empty(), "a passive root does not sign");
    assert_eq!(book.obstacles(now), Vec::<String>::new());
    book.declare(now, &[Some(Active), Some(Active)]);
    assert_eq!(book.roots(), ["b", "", "a"], "of two that are active the newer one signs");
    assert!(book.obstacles(now)[0].starts_with("a: signs no more"), "{:?}", book.obstacles(now));
    book.declare(now, &[Some(Passive), Some(Active)]);
    book.apply(now, Operation::ReleaseProxy(proxy(1))).unwrap();
    let later = now.plus(30 * DAY);
    book.run(later);
    assert_eq!(book.roots(), ["b", "", "a"], "a passive root is trusted, whatever it signed has ended");
    assert_eq!(book.obstacles(later), Vec::<String>::new());
    book.declare(later, &[Some(Inactive), Some(Active)]);
    assert_eq!(book.roots(), ["b", "", ""]);
    assert_eq!(book.declare(later, &[None, Some(Active)]), []);
    assert_eq!(book.declare(later, &[None, None]), [], "without any object the root goes on");
    assert_eq!(book.roots(), ["b", "", ""]);
}

#[test]
fn a_root_that_signs_is_retired_when_nothing_that_it_signed_is_valid() {
    let mut book = Book::declaring(&[Some(Active)]);
    book.proxy(START, 1).unwrap();
    book.declare(START, &[Some(Active), Some(Active)]);
    let now = START.plus(DAY);
    book.declare(now, &[Some(Inactive), Some(Active)]);
    assert_eq!(
        (book.roots(), book.obstacles(now)),
        (
            ["b", "", "a"].map(str::to_owned),
            vec!["a: is trusted until nothing that it signed is valid".to_owned()]
        )
    );
    book.declare(now, &[None, Some(Active), Some(Passive)]);
    assert_eq!(book.roots(), ["b", "", "a"]);
    assert_eq!(
        book.obstacles(now),
        [format!(
            "c: has no root yet: the root {} is retired first, once nothing that it signed is valid",
            serial(0)
        )]
    );
    book.apply(now, Operation::ReleaseProxy(proxy(1))).unwrap();
    book.run(now.plus(30 * DAY));
    assert_eq!(book.roots(), ["b", "c", ""]);
}

#[test]
fn an_active_root_says_what_it_waits_for() {
    let mut book = Book::declaring(&[Some(Active)]);
    book.service(START, &account(1)).unwrap();
    let end = book.ledger.service_certificate(&account(1)).unwrap().validity.not_after;
    book.declared = DeclaredRoots::of(named(&[Some(Active), Some(Active)]));
    assert_eq!(book.obstacles(START), ["b: has no root yet: the leading controller makes it"]);
    for _ in 0..2 {
        let step = book.plan(START, &[0], true).step.unwrap();
        book.take(START, step).unwrap();
    }
    assert_eq!(
        book.obstacles(START),
        ["b: does not sign yet: replicas 0 have sidecars that do not trust it"]
    );
    let root = book.authority().next_root.as_ref().unwrap().ca.serial;
    book.apply(START, Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 0, root })).unwrap();
    let waits = book.declared.obstacles(&book.ledger, &[0].into(), START);
    assert_eq!(waits, [(object("b"), RootObstacle::OldTrust(end))]);
    assert_eq!(book.plan(START, &[0], true).step, None);
    let after = end.plus(Duration::from_secs(1));
    book.run(after);
    assert_eq!((book.roots(), book.obstacles(after).len()), (["b", "", "a"].map(str::to_owned), 1));
}

#[test]
fn a_root_that_did_not_sign_is_given_up_with_its_object() {
    for roles in [[Some(Active), Some(Inactive)], [Some(Active), None], [None, None]] {
        let mut book = Book::declaring(&[Some(Active), Some(Passive)]);
        assert_eq!(book.roots(), ["a", "b", ""]);
        let root = book.authority().next_root.as_ref().unwrap().ca.serial;
        assert_eq!(book.declare(START, &roles), [], "sidecars take no new roots every second");
        let now = START.plus(Duration::from_mins(1));
        assert_eq!(book.run(now), [CaStep::CancelRoot { root }], "{roles:?}");
        assert_eq!(book.roots(), ["a", "", ""]);
    }
}

#[test]
fn what_contradicts_itself_or_is_not_known_changes_no_root() {
    let contradicting = [[Some(Active); 3], [Some(Passive), None, None], [Some(Inactive); 3]];
    for roles in contradicting {
        let mut book = Book::declaring(&[Some(Active), Some(Passive)]);
        let now = START.plus(30 * DAY);
        assert_eq!(book.declare(now, &roles), [], "{roles:?}");
        assert_eq!(book.roots(), ["a", "b", ""], "{roles:?}");
        let mut book = Book::declaring(&[Some(Active), Some(Active)]);
        book.run(START.plus(DAY));
        book.declare(now, &roles);
        assert_eq!(book.roots(), ["b", "", "a"], "{roles:?}");
    }
}

/// As of a replica that starts while no API server answers.
#[test]
fn what_is_not_known_holds_back_where_a_root_was_declared() {
    for (roles, signs) in [(vec![Some(Active)], false), (vec![], true)] {
        let mut book = Book::declaring(&roles);
        book.take(START, CaStep::TrustRoot { beside: serial(0) }).unwrap();
        let root = book.authority().next_root.as_ref().unwrap().ca.serial;
        book.apply(START, Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 0, root })).unwrap();
        book.declared = DeclaredRoots::Unknown;
        book.run(START.plus(DAY));
        assert_eq!(book.authority().root.serial == root, signs, "{roles:?}");
    }
}

#[test]
fn a_root_without_an_object_signs_by_itself_and_takes_one_over() {
    let mut book = Book::declaring(&[Some(Active)]);
    book.take(START, CaStep::TrustRoot { beside: serial(0) }).unwrap();
    let root = book.authority().next_root.as_ref().unwrap().ca.serial;
    book.apply(START, Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 0, root })).unwrap();
    book.run(START.plus(DAY));
    assert_eq!(book.authority().root.serial, root);
    assert_eq!(book.roots()[0], "a");
    // A root that is wanted takes a next one that has no object.
    let mut book = Book::declaring(&[Some(Active)]);
    book.take(START, CaStep::TrustRoot { beside: serial(0) }).unwrap();
    book.declare(START, &[Some(Active), Some(Passive)]);
    book.run(START.plus(DAY));
    assert_eq!(book.roots(), ["a", "b", ""]);
}

/// However long a passive root waits, and whatever stands in the way: no certificate is shortened.
#[test]
fn no_declaration_lets_the_root_end() {
    for roles in [[Some(Active), Some(Passive)], [Some(Active), Some(Active)], [Some(Passive), Some(Passive)]]
    {
        let mut book = Book::declaring(&[Some(Active), Some(Passive)]);
        let mut now = START;
        while now < START.plus(25 * YEAR) {
            book.declare(now, &roles);
            let (root, issuer) = (book.authority().root.validity, book.authority().issuing.validity);
            let issuing = book.lifetimes.issuing_validity(now, &root).unwrap();
            assert_eq!(issuing.not_after, now.plus(3 * YEAR), "{roles:?} {now:?}");
            assert_eq!(book.lifetimes.proxy_validity(now, &issuer).unwrap().not_after, now.plus(YEAR));
            now = now.plus(5 * DAY);
        }
    }
}

#[test]
fn nothing_that_is_declared_counts_before_every_member_knows_how() {
    let mut book = Book { timed: true, ..Book::new() };
    book.apply(START, Operation::UseRules(Rules::Fourth)).unwrap();
    assert_eq!(book.declare(START, &[Some(Active), Some(Passive)]), []);
    assert_eq!(book.obstacles(START).len(), 2);
    book.take(START, CaStep::TrustRoot { beside: serial(0) }).unwrap();
    let root = book.authority().next_root.as_ref().unwrap().ca.serial;
    book.apply(START, Operation::AcknowledgeRoot(AcknowledgeRoot { replica: 0, root })).unwrap();
    book.run(START.plus(DAY));
    assert_eq!(book.authority().root.serial, root, "the schedule goes on");
    book.apply(START.plus(DAY), Operation::UseRules(Rules::Fifth)).unwrap();
    book.run(START.plus(DAY));
    assert_eq!(book.roots()[0], "a");
}
