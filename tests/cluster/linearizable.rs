//! Whether what clients saw of one certificate can have happened in some order, one thing after the other.
//!
//! Owns the model of a certificate's life, and the search for an order (Wing and Gong, "Testing and verifying concurrent
//! objects", 1993, with a memory of what was tried). Knows no clock and no network: a history is a list of operations,
//! each with the moments at which it was called and has returned.

use std::collections::BTreeSet;

/// Where a certificate is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    Absent,
    Unclaimed,
    Claimed,
    Released,
}

/// What an operation does, or was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// It was handed out.
    Issue,
    /// A proxy was served with it, and so has claimed it.
    Claim,
    /// It was released.
    Release,
    /// Somebody looked.
    Look(Life),
}

/// One operation of a client. Moments are numbers of which no two are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) called: u64,
    /// `None` if it never returned, or with an error: it may take effect at any time after it was called, or never.
    pub(crate) returned: Option<u64>,
    pub(crate) what: What,
}

/// The most operations in one history.
pub(crate) const MAX_OPERATIONS: usize = 64;

/// The life after an operation; `None` if it cannot happen then.
fn step(life: Life, what: What) -> Option<Life> {
    match (what, life) {
        (What::Issue, Life::Absent) => Some(Life::Unclaimed),
        (What::Claim, Life::Unclaimed | Life::Claimed) => Some(Life::Claimed),
        // Of a proxy without certificates nothing is released, which is no error.
        (What::Release, Life::Absent) => Some(Life::Absent),
        (What::Release, _) => Some(Life::Released),
        (What::Look(seen), life) if seen == life => Some(life),
        _ => None,
    }
}

/// Whether there is an order of all operations that returned, and of any of the others, in which each was possible, and
/// none comes before one that had returned when it was called. At most [`MAX_OPERATIONS`]: a longer history is no.
pub(crate) fn is_linearizable(history: &[Operation]) -> bool {
    if history.len() > MAX_OPERATIONS {
        return false;
    }
    let returned = bits(history.iter().map(|operation| operation.returned.is_some()));
    let mut open = vec![(0u64, Life::Absent)];
    let mut tried = BTreeSet::from([(0u64, Life::Absent)]);
    while let Some((done, life)) = open.pop() {
        if done & returned == returned {
            return true;
        }
        let left = || history.iter().enumerate().filter(|(n, _)| done & (1 << n) == 0);
        let first_return = left().filter_map(|(_, operation)| operation.returned).min().unwrap_or(u64::MAX);
        // Of those that are lost, one of a kind is as good as another, so the first to be called goes first.
        let in_turn = |n: usize, lost: &Operation| {
            !left().any(|(m, other)| {
                other.returned.is_none() && other.what == lost.what && (other.called, m) < (lost.called, n)
            })
        };
        for (n, operation) in left().filter(|(_, operation)| operation.called < first_return) {
            let Some(after) = step(life, operation.what) else { continue };
            if operation.returned.is_none() && (after == life || !in_turn(n, operation)) {
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
fn what_can_have_happened_one_after_the_other_is_accepted_and_nothing_else() {
    use Life::{Absent, Claimed, Released, Unclaimed};
    use What::{Claim, Issue, Look, Release};

    const NEVER: u64 = 0;
    let possible = [
        ("nothing", vec![]),
        ("a whole life", vec![(Issue, 1, 2), (Claim, 3, 4), (Release, 5, 6), (Look(Released), 7, 8)]),
        ("claimed by two at once", vec![(Issue, 1, 2), (Claim, 3, 6), (Claim, 4, 5), (Look(Claimed), 7, 8)]),
        ("never claimed", vec![(Issue, 1, 2), (Release, 3, 4), (Release, 5, 6), (Look(Released), 7, 8)]),
        ("a claim while it is released", vec![(Issue, 1, 2), (Release, 3, 6), (Claim, 4, 5)]),
        ("the same, the other way round", vec![(Issue, 1, 2), (Claim, 3, 6), (Release, 4, 5)]),
        (
            "looks on both sides of a claim",
            vec![(Issue, 1, 2), (Claim, 3, 8), (Look(Unclaimed), 4, 5), (Look(Claimed), 6, 7)],
        ),
        ("a lost claim that took effect", vec![(Issue, 1, 2), (Claim, 3, NEVER), (Look(Claimed), 4, 5)]),
        ("a lost claim that did not", vec![(Issue, 1, 2), (Claim, 3, NEVER), (Look(Unclaimed), 4, 5)]),
        (
            "a lost release that took effect late",
            vec![(Issue, 1, 2), (Release, 3, NEVER), (Claim, 4, 5), (Look(Released), 6, 7)],
        ),
        (
            "a release from before it was issued",
            vec![(Release, 1, NEVER), (Issue, 2, 3), (Look(Released), 4, 5)],
        ),
        ("somebody looked too early", vec![(Look(Absent), 1, 2), (Issue, 3, 4)]),
    ];
    let impossible = [
        ("a claim after the release", vec![(Issue, 1, 2), (Release, 3, 4), (Claim, 5, 6)]),
        ("a claim of what was never issued", vec![(Claim, 1, 2)]),
        ("a claim before the issuance", vec![(Claim, 1, 2), (Issue, 3, 4)]),
        ("issued twice", vec![(Issue, 1, 2), (Issue, 3, 4)]),
        ("an acknowledged issuance that is lost", vec![(Issue, 1, 2), (Look(Absent), 3, 4)]),
        ("an acknowledged claim that is lost", vec![(Issue, 1, 2), (Claim, 3, 4), (Look(Unclaimed), 5, 6)]),
        (
            "an acknowledged release that is lost",
            vec![(Issue, 1, 2), (Release, 3, 4), (Look(Unclaimed), 5, 6)],
        ),
        ("a claim out of nothing", vec![(Issue, 1, 2), (Look(Claimed), 3, 4)]),
        ("back to life", vec![(Issue, 1, 2), (Release, 3, NEVER), (Look(Released), 4, 5), (Claim, 6, 7)]),
        (
            "back in time, while a claim is under way",
            vec![(Issue, 1, 2), (Claim, 3, 8), (Look(Claimed), 4, 5), (Look(Unclaimed), 6, 7)],
        ),
        (
            "a lost claim that took effect before it was called",
            vec![(Issue, 1, 2), (Look(Claimed), 3, 4), (Claim, 5, NEVER)],
        ),
        (
            "two orders that contradict each other",
            vec![(Issue, 1, 2), (Release, 3, 10), (Look(Released), 4, 5), (Claim, 6, 7)],
        ),
    ];
    let history = |operations: &[(What, u64, u64)]| -> Vec<Operation> {
        let operation = |&(what, called, returned): &(What, u64, u64)| Operation {
            called,
            returned: Some(returned).filter(|returned| *returned != NEVER),
            what,
        };
        operations.iter().map(operation).collect()
    };
    for (name, operations) in possible {
        assert!(is_linearizable(&history(&operations)), "{name} is possible");
        let mut backwards = history(&operations);
        backwards.reverse();
        assert!(is_linearizable(&backwards), "{name} is possible in whatever order it is written down");
    }
    for (name, operations) in impossible {
        assert!(!is_linearizable(&history(&operations)), "{name} is not possible");
    }
}

#[test]
fn many_operations_at_once_are_judged_soon() {
    let lost = |n: u64| Operation {
        called: n,
        returned: None,
        what: if n.is_multiple_of(2) { What::Claim } else { What::Release },
    };
    let mut history: Vec<Operation> = (10..70).map(lost).collect();
    history.push(Operation { called: 1, returned: Some(2), what: What::Issue });
    history.push(Operation { called: 80, returned: Some(81), what: What::Look(Life::Released) });
    history.push(Operation { called: 82, returned: Some(83), what: What::Claim });
    assert!(!is_linearizable(&history));
    assert!(!is_linearizable(&vec![history[0]; MAX_OPERATIONS + 1]), "too many are not judged");
}
