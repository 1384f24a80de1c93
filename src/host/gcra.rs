//! The generic cell rate algorithm (GCRA, ITU-T I.371): a token bucket that is one point in time.
//!
//! Owns the arithmetic of every rate limit. What a unit costs, how much may come at once, and what happens
//! beyond that is its user's. Time is passed in.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket. Costs are the times in which they are earned again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gcra {
    /// When the bucket is full again: the "theoretical arrival time".
    full_at: Instant,
}

impl Gcra {
    /// A full bucket.
    pub fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Takes `cost` out of the bucket, also more than is in it.
    pub fn spend(&mut self, now: Instant, cost: Duration) {
        self.full_at = self.full_at.max(now) + cost;
    }

    /// Gives back what was spent and turned out not to be owed.
    pub fn refund(&mut self, cost: Duration) {
        self.full_at = self.full_at.checked_sub(cost).unwrap_or(self.full_at);
    }

    /// When no more than `burst` is missing: `now` or earlier if it is so already.
    pub fn ready_at(&self, now: Instant, burst: Duration) -> Instant {
        self.full_at.checked_sub(burst).unwrap_or(now)
    }

    /// Whether no more than `burst` is missing.
    pub fn admits(&self, now: Instant, burst: Duration) -> bool {
        self.full_at <= now + burst
    }

    /// Whether a new bucket is the same.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COST: Duration = Duration::from_millis(10);

    proptest! {
        /// A user that asks at any time gets the burst, and then one for each cost that passes.
        #[test]
        fn what_is_admitted_never_exceeds_the_burst_and_what_was_earned(
            pauses in proptest::collection::vec(0_u64..30, 1..200), burst in 0_u32..20,
        ) {
            let start = Instant::now();
            let (mut bucket, mut now, mut admitted) = (Gcra::new(start), start, 0_u128);
            for pause in pauses {
                now += Duration::from_millis(pause);
                let admits = bucket.admits(now, COST * burst);
                prop_assert_eq!(admits, bucket.ready_at(now, COST * burst) <= now);
                if admits {
                    bucket.spend(now, COST);
                    admitted += 1;
                }
                let earned = (now - start).as_millis() / COST.as_millis();
                prop_assert!(admitted <= u128::from(burst) + 1 + earned);
            }
        }
    }

    #[test]
    fn what_is_given_back_can_be_spent_again() {
        let start = Instant::now() + Duration::from_hours(1);
        let mut bucket = Gcra::new(start);
        bucket.spend(start, COST * 3);
        assert!(!bucket.admits(start, COST) && !bucket.is_full(start));
        bucket.refund(COST * 2);
        assert!(bucket.admits(start, COST) && bucket.is_full(start + COST));
    }
}
