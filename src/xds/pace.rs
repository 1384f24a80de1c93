//! How fast one stream may ask.
//!
//! Owns a token bucket. Refuses to sleep: it says until when to wait, and the stream simply does not read.

use std::time::Duration;

use tokio::time::Instant;

/// Requests a stream may send at once. A starting Envoy asks once per type and acknowledges each response; an
/// SotW one asks again for every name it warms. A few hundred is far more than any of them sends in one go.
const BURST: u32 = 500;

/// The time in which one more request is earned: 100 requests per second, a multiple of what acknowledging
/// every push of a busy mesh takes.
const EARN_ONE: Duration = Duration::from_millis(10);

/// A token bucket. Over its rate a stream is not ended, only read more slowly: the flow control of HTTP/2
/// carries that back to the sender, so a flood costs its sender and nobody else.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the bucket would be empty, had it been drained at the steady rate: the "theoretical arrival
    /// time" of the generic cell rate algorithm.
    spent_until: Instant,
}

impl Pace {
    /// A full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self { spent_until: now }
    }

    /// When the next request may be read: `now` or earlier unless the bucket is empty.
    pub(super) fn ready_at(&self, now: Instant) -> Instant {
        self.spent_until.checked_sub(EARN_ONE * (BURST - 1)).unwrap_or(now)
    }

    /// Takes one request out of the bucket.
    pub(super) fn take(&mut self, now: Instant) {
        self.spent_until = self.spent_until.max(now) + EARN_ONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_requests_are_earned_one_by_one() {
        let start = Instant::now() + Duration::from_secs(3600);
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert!(pace.ready_at(start) <= start);
            pace.take(start);
        }
        assert_eq!(pace.ready_at(start), start + EARN_ONE);
        let later = start + EARN_ONE;
        assert!(pace.ready_at(later) <= later);
        pace.take(later);
        assert!(pace.ready_at(later) > later);
    }

    #[test]
    fn an_idle_stream_earns_no_more_than_a_full_bucket() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.take(start);
        let later = start + Duration::from_secs(3600);
        for _ in 0..BURST {
            assert!(pace.ready_at(later) <= later);
            pace.take(later);
        }
        assert!(pace.ready_at(later) > later);
    }
}
