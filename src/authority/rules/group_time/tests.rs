mod trio;

use proptest::prelude::*;

use super::*;

const START: i64 = 1_800_000_000;
const DAY: i64 = 24 * 3600;

/// What replica 0 finds, whose clock is `own` seconds ahead of the start. `None` in `others` is a
/// replica that does not tell its clock.
fn found(own: i64, others: &[Option<i64>], members: usize) -> GroupTime {
    let told = |ahead: &Option<i64>| ahead.map(|ahead| Timestamp(START + ahead));
    let others = (1..).zip(others.iter().map(told)).collect();
    compare(&Clocks { me: 0, own: Timestamp(START + own), others, members })
}

/// The verdict in short: how far ahead the replica finds itself, if a majority agrees.
fn verdict(own: i64, others: &[i64], members: usize) -> Result<i64, &'static str> {
    let others: Vec<_> = others.iter().copied().map(Some).collect();
    match found(own, &others, members) {
        GroupTime::Agreed { offset, .. } => Ok(offset),
        GroupTime::Off { .. } => Err("off"),
        GroupTime::Disputed { .. } => Err("disputed"),
        GroupTime::Unknown { .. } => Err("unknown"),
    }
}

#[test]
fn a_clock_that_differs_from_a_majority_is_off_and_the_others_are_not() {
    for (own, others, members, expected) in [
        (0, &[][..], 1, Ok(0)),
        (5 * DAY, &[], 1, Ok(0)),
        (0, &[3, -2], 3, Ok(2)),
        (60, &[0, 0], 3, Ok(60)),
        (61, &[0, 0], 3, Err("off")),
        (-61, &[0, 0], 3, Err("off")),
        (3 * DAY, &[0, 1], 3, Err("off")),
        (0, &[3 * DAY, 1], 3, Ok(0)),
        (0, &[-365 * DAY, 1], 3, Ok(0)),
        // One member is down.
        (0, &[1], 3, Ok(0)),
        (0, &[3 * DAY], 3, Err("disputed")),
        (0, &[], 3, Err("unknown")),
        // Of two, no replica can say which is wrong.
        (0, &[1], 2, Ok(0)),
        (0, &[3 * DAY], 2, Err("disputed")),
        (3 * DAY, &[0], 2, Err("disputed")),
        (0, &[], 2, Err("unknown")),
        // Two of five are wrong, each in its own way.
        (0, &[1, 2, 5 * DAY, -5 * DAY], 5, Ok(-1)),
        (5 * DAY, &[1, 2, 0, -5 * DAY], 5, Err("off")),
        (0, &[DAY, DAY, 0], 4, Err("disputed")),
    ] {
        assert_eq!(verdict(own, others, members), expected, "{own} {others:?} of {members}");
    }
}

#[test]
fn a_member_that_does_not_tell_its_clock_holds_up_nobody() {
    let GroupTime::Agreed { all, .. } = found(0, &[None, Some(1)], 3) else { panic!("not agreed") };
    assert!(!all, "an older version is among them");
    assert!(found(0, &[None, None], 3).is_agreed());
    let GroupTime::Agreed { all, .. } = found(0, &[Some(2), Some(1)], 3) else { panic!("not agreed") };
    assert!(all);
    let GroupTime::Agreed { all, .. } = found(0, &[Some(1)], 3) else { panic!("not agreed") };
    assert!(!all, "one did not answer");
}

proptest! {
    /// Whatever a minority's clocks say, all others agree, and the group's time is theirs; and
    /// each replica that agrees is near it.
    #[test]
    fn a_minority_of_wrong_clocks_changes_nothing_for_the_others(
        right in proptest::collection::vec(-10i64..=10, 3..6),
        wrong in proptest::collection::vec(-1000 * DAY..1000 * DAY, 0..3),
    ) {
        prop_assume!(wrong.len() < right.len());
        let all: Vec<i64> = right.iter().chain(&wrong).copied().collect();
        for me in 0..all.len() {
            let others: Vec<_> = all.iter().enumerate().filter(|(at, _)| *at != me).map(|(_, one)| *one).collect();
            let found = verdict(all[me], &others, all.len());
            if me < right.len() {
                prop_assert!(found.is_ok_and(|offset| offset.abs() <= 20), "{found:?}");
            } else if all[me].abs() > 100 {
                prop_assert_eq!(found, Err("off"));
            }
        }
    }
}
