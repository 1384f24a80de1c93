//! Whether the wall clock can be trusted with irreversible steps, such as deleting ended records.
//!
//! Owns the comparison of the wall clock with the monotonic clock. The caller reads both.

use std::time::Duration;

use smc_types::time::Timestamp;

/// How long the wall clock must have run evenly. A jump is visible only at the moment it happens; a
/// day lets operators notice it, and no waiting step is urgent.
pub(super) const STEADY_AFTER: Duration = Duration::from_hours(24);

/// The largest permitted difference between the clocks. Time daemons slew both clocks alike, and
/// step only the wall clock by less than this; it is far less than [`crate::ledger::PRUNE_MARGIN`].
const TOLERANCE: Duration = Duration::from_mins(5);

/// Watches the wall clock. After a restart the observation begins again, which delays steps but
/// never hastens them.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClockStability {
    /// Both clocks at the last jump of the wall clock, or at the first observation.
    since: Option<(Timestamp, Duration)>,
}

impl ClockStability {
    /// Compares both clocks; `monotonic` may count from any moment. Returns whether the wall clock
    /// has run evenly for a day. A jump between two observations counts from the later one, so
    /// observations should be frequent.
    pub fn observe(&mut self, wall: Timestamp, monotonic: Duration) -> bool {
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

    /// The hours of the monotonic clock at which the wall clock is steady, if it is `ahead` by that
    /// many seconds.
    fn steady(hours: i64, ahead: impl Fn(i64) -> i64) -> Vec<i64> {
        let mut stability = ClockStability::default();
        let mut observe = |hour: i64| {
            let monotonic = Duration::from_secs(u64::try_from(hour * HOUR).unwrap());
            stability.observe(Timestamp(1_800_000_000 + hour * HOUR + ahead(hour)), monotonic)
        };
        (0..=hours).filter(|hour| observe(*hour)).collect()
    }

    #[test]
    fn a_clock_is_steady_once_it_has_run_evenly_for_a_day() {
        assert_eq!(steady(26, |_| 0), [24, 25, 26]);
        assert_eq!(steady(24, |hour| hour * 12), [24], "it may be a little fast");
    }

    #[test]
    fn a_clock_that_jumped_either_way_is_not_steady_for_a_day() {
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
