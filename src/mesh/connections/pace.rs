//! The pace at which the streams of many proxies are ended, so that they do not all reconnect at once.

use std::num::NonZeroU32;
use std::time::Duration;

/// The times at which streams are ended, one after another at a steady rate. The first is ended at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndSchedule {
    per_second: NonZeroU32,
}

impl EndSchedule {
    /// A schedule that ends `per_second` streams each second.
    pub fn new(per_second: NonZeroU32) -> Self {
        Self { per_second }
    }

    /// The time from the beginning to the end of the stream after `ended` others. Exact to the
    /// nanosecond, so the rate does not drift.
    pub fn delay(self, ended: usize) -> Duration {
        let per_second = u64::from(self.per_second.get());
        let ended = u64::try_from(ended).unwrap_or(u64::MAX);
        let nanos = ended % per_second * 1_000_000_000 / per_second;
        Duration::from_secs(ended / per_second) + Duration::from_nanos(nanos)
    }

    /// The time from the beginning until `count` streams are ended.
    pub fn duration(self, count: usize) -> Duration {
        self.delay(count.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(per_second: u32) -> EndSchedule {
        EndSchedule::new(NonZeroU32::new(per_second).unwrap())
    }

    #[test]
    fn streams_end_at_a_steady_rate_from_the_beginning_on() {
        let millis = Duration::from_millis;
        // Streams per second, streams ended before, time.
        let table = [
            (1, 0, millis(0)),
            (1, 1, millis(1000)),
            (1, 60, millis(60_000)),
            (10, 0, millis(0)),
            (10, 1, millis(100)),
            (10, 25, millis(2500)),
            (3, 1, Duration::from_nanos(333_333_333)),
            (3, 3, millis(1000)),
            (3, 3_000_000, millis(1_000_000_000)),
            (u32::MAX, 1, Duration::ZERO),
            (u32::MAX, u32::MAX as usize, millis(1000)),
        ];
        for (per_second, ended, expected) in table {
            assert_eq!(schedule(per_second).delay(ended), expected, "{ended} at {per_second}/s");
        }
    }

    #[test]
    fn the_duration_is_the_time_of_the_last_end() {
        let table = [(0, 0), (1, 0), (2, 500), (3, 1000), (20_000, 9_999_500)];
        for (count, millis) in table {
            assert_eq!(schedule(2).duration(count), Duration::from_millis(millis), "{count}");
        }
    }

    #[test]
    fn no_second_has_more_ends_than_the_rate() {
        for per_second in [1, 7, 100, 999] {
            let schedule = schedule(per_second);
            let rate = per_second as usize;
            for ended in 0..2 * rate {
                assert!(schedule.delay(ended + rate) >= schedule.delay(ended) + Duration::from_secs(1));
            }
        }
    }
}
