//! Checks whether the recorded operations on one certificate are linearizable.
//!
//! Owns the model of a certificate's life, and the search for an order (Wing and Gong, "Testing and
//! verifying concurrent objects", 1993, with memoization). A history is a list of operations, each
//! with the logical times of its call and its return.

use std::collections::BTreeSet;

/// State of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Absent,
    Unclaimed,
    Claimed,
    Released,
}

/// Kind and result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The certificate was issued.
    Issue,
    /// A proxy was served with the certificate, and so has claimed it.
    Claim,
    /// The certificate was released.
    Release,
    /// A client read the state.
    Read(State),
}

/// One operation of a client. All logical times are distinct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) called: u64,
    /// `None` if it returned an error or never returned: it may take effect at any time after the
    /// call, or never.
    pub(crate) returned: Option<u64>,
    pub(crate) action: Action,
}

/// Limit of operations in one history: they are bits of a `u64`.
pub(crate) const MAX_OPERATIONS: usize = 64;

/// The state after an operation; `None` if the operation is impossible in this state.
fn step(state: State, action: Action) -> Option<State> {
    match (action, state) {
        (Action::Issue, State::Absent) => Some(State::Unclaimed),
        (Action::Claim, State::Unclaimed | State::Claimed) => Some(State::Claimed),
        // Releasing a pod without certificates succeeds, and releases nothing.
        (Action::Release, State::Absent) => Some(State::Absent),
        (Action::Release, _) => Some(State::Released),
        (Action::Read(read), state) if read == state => Some(state),
        _ => None,
    }
}

/// Returns true if there is an order of all operations that returned, and any subset of the others,
/// in which each is possible, and none precedes an operation that had returned before it was
/// called. False for more than [`MAX_OPERATIONS`].
pub(crate) fn is_linearizable(history: &[Operation]) -> bool {
    if history.len() > MAX_OPERATIONS {
        return false;
    }
    let returned = bits(history.iter().map(|operation| operation.returned.is_some()));
    let mut open = vec![(0u64, State::Absent)];
    let mut tried = BTreeSet::from([(0u64, State::Absent)]);
    while let Some((done, state)) = open.pop() {
        if done & returned == returned {
            return true;
        }
        let left = || history.iter().enumerate().filter(|(n, _)| done & (1 << n) == 0);
        let first_return = left().filter_map(|(_, operation)| operation.returned).min().unwrap_or(u64::MAX);
        // Operations of one kind with unknown outcome are interchangeable, so only the earliest is
        // tried.
        let in_turn = |n: usize, lost: &Operation| {
            !left().any(|(m, other)| {
                other.returned.is_none()
                    && other.action == lost.action
                    && (other.called, m) < (lost.called, n)
            })
        };
        for (n, operation) in left().filter(|(_, operation)| operation.called < first_return) {
            let Some(after) = step(state, operation.action) else { continue };
            if operation.returned.is_none() && (after == state || !in_turn(n, operation)) {
                continue;
            }
            let next = (done | (1 << n), after);
            if tried.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

fn bits(flags: impl Iterator<Item = bool>) -> u64 {
    flags.enumerate().filter(|(_, flag)| *flag).fold(0, |bits, (n, _)| bits | (1 << n))
}

#[test]
fn exactly_the_linearizable_histories_are_accepted() {
    use Action::{Claim, Issue, Read, Release};
    use State::{Absent, Claimed, Released, Unclaimed};

    const NEVER: u64 = 0;
    let possible = [
        ("nothing", vec![]),
        ("a whole life", vec![(Issue, 1, 2), (Claim, 3, 4), (Release, 5, 6), (Read(Released), 7, 8)]),
        ("claimed by two at once", vec![(Issue, 1, 2), (Claim, 3, 6), (Claim, 4, 5), (Read(Claimed), 7, 8)]),
        ("never claimed", vec![(Issue, 1, 2), (Release, 3, 4), (Release, 5, 6), (Read(Released), 7, 8)]),
        ("a claim while it is released", vec![(Issue, 1, 2), (Release, 3, 6), (Claim, 4, 5)]),
        ("the same, the other way round", vec![(Issue, 1, 2), (Claim, 3, 6), (Release, 4, 5)]),
        (
            "reads on both sides of a claim",
            vec![(Issue, 1, 2), (Claim, 3, 8), (Read(Unclaimed), 4, 5), (Read(Claimed), 6, 7)],
        ),
        ("a lost claim that took effect", vec![(Issue, 1, 2), (Claim, 3, NEVER), (Read(Claimed), 4, 5)]),
        ("a lost claim that did not", vec![(Issue, 1, 2), (Claim, 3, NEVER), (Read(Unclaimed), 4, 5)]),
        (
            "a lost release that took effect late",
            vec![(Issue, 1, 2), (Release, 3, NEVER), (Claim, 4, 5), (Read(Released), 6, 7)],
        ),
        (
            "a release from before it was issued",
            vec![(Release, 1, NEVER), (Issue, 2, 3), (Read(Released), 4, 5)],
        ),
        ("a read before the issuance", vec![(Read(Absent), 1, 2), (Issue, 3, 4)]),
    ];
    let impossible = [
        ("a claim after the release", vec![(Issue, 1, 2), (Release, 3, 4), (Claim, 5, 6)]),
        ("a claim of what was never issued", vec![(Claim, 1, 2)]),
        ("a claim before the issuance", vec![(Claim, 1, 2), (Issue, 3, 4)]),
        ("issued twice", vec![(Issue, 1, 2), (Issue, 3, 4)]),
        ("an acknowledged issuance that is lost", vec![(Issue, 1, 2), (Read(Absent), 3, 4)]),
        ("an acknowledged claim that is lost", vec![(Issue, 1, 2), (Claim, 3, 4), (Read(Unclaimed), 5, 6)]),
        (
            "an acknowledged release that is lost",
            vec![(Issue, 1, 2), (Release, 3, 4), (Read(Unclaimed), 5, 6)],
        ),
        ("a claim out of nothing", vec![(Issue, 1, 2), (Read(Claimed), 3, 4)]),
        ("back to life", vec![(Issue, 1, 2), (Release, 3, NEVER), (Read(Released), 4, 5), (Claim, 6, 7)]),
        (
            "back in time, while a claim is under way",
            vec![(Issue, 1, 2), (Claim, 3, 8), (Read(Claimed), 4, 5), (Read(Unclaimed), 6, 7)],
        ),
        (
            "a lost claim that took effect before it was called",
            vec![(Issue, 1, 2), (Read(Claimed), 3, 4), (Claim, 5, NEVER)],
        ),
        (
            "two orders that contradict each other",
            vec![(Issue, 1, 2), (Release, 3, 10), (Read(Released), 4, 5), (Claim, 6, 7)],
        ),
    ];
    let history = |operations: &[(Action, u64, u64)]| -> Vec<Operation> {
        let operation = |&(action, called, returned): &(Action, u64, u64)| Operation {
            called,
            returned: Some(returned).filter(|returned| *returned != NEVER),
            action,
        };
        operations.iter().map(operation).collect()
    };
    for (name, operations) in possible {
        assert!(is_linearizable(&history(&operations)), "{name} is possible");
        let mut backwards = history(&operations);
        backwards.reverse();
        assert!(is_linearizable(&backwards), "{name} is possible in any order of the records");
    }
    for (name, operations) in impossible {
        assert!(!is_linearizable(&history(&operations)), "{name} is not possible");
    }
}

#[test]
fn many_concurrent_operations_are_checked_quickly() {
    let lost = |n: u64| Operation {
        called: n,
        returned: None,
        action: if n.is_multiple_of(2) { Action::Claim } else { Action::Release },
    };
    let mut history: Vec<Operation> = (10..70).map(lost).collect();
    history.push(Operation { called: 1, returned: Some(2), action: Action::Issue });
    history.push(Operation { called: 80, returned: Some(81), action: Action::Read(State::Released) });
    history.push(Operation { called: 82, returned: Some(83), action: Action::Claim });
    assert!(!is_linearizable(&history));
    assert!(!is_linearizable(&vec![history[0]; MAX_OPERATIONS + 1]), "too many operations are refused");
}
