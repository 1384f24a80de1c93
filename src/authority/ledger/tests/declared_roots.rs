//! The objects that declare roots.

use super::*;

/// A group of the latest rules with the root 0 and the issuing CA 1, and a next root 2.
fn rotating() -> Ledger {
    let mut ledger = agreed();
    now(&mut ledger, Operation::UseRules(Rules::LATEST)).unwrap();
    let root = Box::new(ca(2, days(START, 3650)));
    now(&mut ledger, Operation::TrustRoot(TrustRoot { beside: serial(0), root })).unwrap();
    ledger
}

fn declared(ledger: &Ledger) -> [Option<SerialNumber>; 2] {
    [0, 1].map(|n| ledger.authority().unwrap().root_declared_by(&root_object(n)))
}

#[test]
fn a_root_has_an_object_under_the_fifth_rules() {
    let mut ledger = agreed();
    now(&mut ledger, Operation::UseRules(Rules::Fourth)).unwrap();
    let before = ledger.clone();
    assert_eq!(now(&mut ledger, name_root(0, 0)), Err(Rejection::RulesNotBegun(Rules::Fifth)));
    assert_eq!(ledger, before);
    now(&mut ledger, Operation::UseRules(Rules::Fifth)).unwrap();
    assert_eq!(now(&mut ledger, name_root(0, 0)), Ok(Reply::AuthorityChanged));
    assert_eq!(now(&mut ledger, name_root(0, 0)), Ok(Reply::AuthorityUnchanged));
    assert_eq!(declared(&ledger), [Some(serial(0)), None]);
    for not_a_root in [1, 7] {
        assert_eq!(now(&mut ledger, name_root(not_a_root, 1)), Err(Rejection::UnknownCa(serial(not_a_root))));
    }
    let stored: Ledger = serde_json::from_slice(&ledger.canonical().unwrap()).unwrap();
    assert_eq!(stored, ledger);
}

#[test]
fn an_object_declares_one_root_and_a_root_has_one_object() {
    let mut ledger = rotating();
    now(&mut ledger, name_root(0, 0)).unwrap();
    now(&mut ledger, name_root(2, 1)).unwrap();
    assert_eq!(declared(&ledger), [Some(serial(0)), Some(serial(2))]);
    now(&mut ledger, name_root(2, 0)).unwrap();
    assert_eq!(declared(&ledger), [Some(serial(2)), None]);
    assert_eq!(ledger.authority().unwrap().declared_by(serial(0)), None);
}

#[test]
fn a_root_that_is_given_up_leaves_its_object_without_one() {
    let mut ledger = rotating();
    now(&mut ledger, name_root(0, 0)).unwrap();
    now(&mut ledger, name_root(2, 1)).unwrap();
    now(&mut ledger, Operation::CancelRoot(CancelRoot { root: serial(2) })).unwrap();
    assert_eq!(declared(&ledger), [Some(serial(0)), None]);
}
