//! Exponential back-off: the waits between attempts of something that fails.
//!
//! Owns the arithmetic. The caller counts attempts, draws randomness and sleeps.

use std::time::Duration;

/// Waits that double from the first to the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Waits from `first` to `longest`, in whole milliseconds.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The wait after failed attempt number `attempt`, the first being 0.
    pub fn wait(&self, attempt: u32) -> Duration {
        let factor = 1u32.checked_shl(attempt).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// Half to all of [`Self::wait`], by any number `random`, so that callers that failed together
    /// do not retry together.
    pub fn wait_with_jitter(&self, attempt: u32, random: u64) -> Duration {
        let full = u64::try_from(self.wait(attempt).as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(full / 2 + random % (full / 2 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

    #[test]
    fn waits_double_from_the_first_to_the_longest() {
        let expected = [1, 2, 4, 8, 16, 32, 60, 60];
        for (attempt, seconds) in (0..).zip(expected).chain([(31, 60), (32, 60), (u32::MAX, 60)]) {
            assert_eq!(BACKOFF.wait(attempt), Duration::from_secs(seconds), "attempt {attempt}");
        }
    }

    #[test]
    fn retries_slow_down_to_a_minute_and_never_come_at_once() {
        for (attempt, from, to) in
            [(0, 500, 1000), (1, 1000, 2000), (6, 30_000, 60_000), (u32::MAX, 30_000, 60_000)]
        {
            for random in [0, 1, u64::MAX] {
                let wait = u64::try_from(BACKOFF.wait_with_jitter(attempt, random).as_millis()).unwrap();
                assert!((from..=to).contains(&wait), "attempt {attempt}: {wait} ms");
            }
        }
    }
}
