//! Whether the wall clock is to be trusted with what cannot be undone, such as forgetting what has ended.
//!
//! Owns the comparison of the wall clock with one that only ever runs. Refuses to read either.

use std::time::Duration;

use crate::time::Timestamp;

/// How long the wall clock must have run evenly. A clock that jumped looks just as even a moment later; a day is for
/// people to notice, and nothing that waits for it is urgent.
pub(super) const STEADY_AFTER: Duration = Duration::from_hours(24);

/// How far the two may be apart after any time. The daemons that discipline clocks correct both, but for steps that
/// are smaller; it is far less than [`crate::ledger::PRUNE_MARGIN`].
const TOLERANCE: Duration = Duration::from_mins(5);

/// Watches the wall clock. A restart begins anew, which errs on the side of patience.
#[derive(Debug, Clone, Copy, Default)]
pub struct Steadiness {
    /// The two clocks when the wall clock last jumped, or at the first look.
    since: Option<(Timestamp, Duration)>,
}

impl Steadiness {
    /// Takes one look at both clocks; `monotonic` may count from anywhere. Says whether the wall clock has run evenly
    /// for a day. A jump between two looks counts from the later one, so looks should not be rare.
    pub fn look(&mut self, wall: Timestamp, monotonic: Duration) -> bool {
        let (wall_then, monotonic_then) = *self.since.get_or_insert((wall, monotonic));
        let passed = monotonic.saturating_sub(monotonic_then);
        let expected = wall_then.plus(passed);
        if wall.since(expected).max(expected.since(wall)) > TOLERANCE {
            self.since = Some((wall, monotonic));
            return false;
        }
        passed >= STEADY_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const YEAR: i64 = 365 * 24 * HOUR;

    /// The hours of the monotonic clock, of so many, at which the wall clock is steady when it is ahead like this.
    fn steady(hours: i64, ahead: impl Fn(i64) -> i64) -> Vec<i64> {
        let mut steadiness = Steadiness::default();
        let mut look = |hour: i64| {
            let monotonic = Duration::from_secs(u64::try_from(hour * HOUR).unwrap());
            steadiness.look(Timestamp(1_800_000_000 + hour * HOUR + ahead(hour)), monotonic)
        };
        (0..=hours).filter(|hour| look(*hour)).collect()
    }

    #[test]
    fn a_clock_is_steady_once_it_has_run_evenly_for_a_day() {
        assert_eq!(steady(26, |_| 0), [24, 25, 26]);
        assert_eq!(steady(24, |hour| hour * 12), [24], "it may be a little fast");
    }

    #[test]
    fn a_clock_that_jumped_is_not_steady_for_a_day_whichever_way_it_went() {
        for jump in [YEAR, -YEAR, HOUR, -HOUR] {
            let jumped = steady(60, |hour| if hour < 30 { 0 } else { jump });
            assert_eq!(jumped, (24..30).chain(54..=60).collect::<Vec<_>>(), "{jump}");
            let and_back = steady(60, |hour| if (30..32).contains(&hour) { jump } else { 0 });
            assert_eq!(and_back, (24..30).chain(56..=60).collect::<Vec<_>>(), "{jump}");
        }
    }

    #[test]
    fn a_clock_that_keeps_running_away_is_never_steady() {
        assert_eq!(steady(100, |hour| hour * 60), Vec::<i64>::new());
    }
}
