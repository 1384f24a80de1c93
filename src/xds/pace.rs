//! How fast one proxy may ask.
//!
//! Owns a token bucket, shared by the streams of a proxy. Refuses to sleep: it says until when to wait, and the streams
//! simply do not read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::lock;

/// Requests that may come at once. A starting Envoy asks once per type and acknowledges each response; an
/// SotW one asks again for every name it warms. A few hundred is far more than any of them sends in one go.
const BURST: u32 = 500;

/// The time in which one more request is earned: 100 requests per second, a multiple of what acknowledging
/// every push of a busy mesh takes.
const EARN_ONE: Duration = Duration::from_millis(10);

/// A request costs one, and one more for each so many bytes, so that what is read of a proxy is 6.4 MB/s at most.
/// Small requests are mostly smaller. The largest costs as much as a whole burst; resuming in a mesh of 5,000 services,
/// with 3 MB for all types together, a tenth of one.
const BYTES_FOR_ONE: u64 = 64 << 10;

/// A token bucket. Over its rate a proxy's streams are not ended, only read more slowly: the flow control of HTTP/2
/// carries that back to the sender, so a flood costs its sender and nobody else. Cheap to clone; clones are the same
/// bucket.
#[derive(Debug, Clone)]
pub(super) struct Pace(Arc<Mutex<Bucket>>);

#[derive(Debug)]
struct Bucket {
    /// When the bucket would be empty, had it been drained at the steady rate: the "theoretical arrival
    /// time" of the generic cell rate algorithm.
    spent_until: Instant,
}

impl Pace {
    /// A full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Bucket { spent_until: now })))
    }

    /// When the next request may be read: `now` or earlier unless the bucket is empty.
    pub(super) fn ready_at(&self, now: Instant) -> Instant {
        lock(&self.0).spent_until.checked_sub(EARN_ONE * (BURST - 1)).unwrap_or(now)
    }

    /// Takes a request of this encoded length out of the bucket. One that is larger than what is in there is paid for
    /// by the wait for the next.
    pub(super) fn take(&self, now: Instant, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let micros = u64::try_from(EARN_ONE.as_micros()).unwrap_or(u64::MAX);
        let cost = EARN_ONE + Duration::from_micros(bytes.saturating_mul(micros) / BYTES_FOR_ONE);
        let mut bucket = lock(&self.0);
        bucket.spent_until = bucket.spent_until.max(now) + cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_requests_are_earned_one_by_one() {
        let start = Instant::now() + Duration::from_hours(1);
        let pace = Pace::new(start);
        for _ in 0..BURST {
            assert!(pace.ready_at(start) <= start);
            pace.take(start, 0);
        }
        assert_eq!(pace.ready_at(start), start + EARN_ONE);
        let later = start + EARN_ONE;
        assert!(pace.ready_at(later) <= later);
        pace.take(later, 0);
        assert!(pace.ready_at(later) > later);
    }

    #[test]
    fn an_idle_stream_earns_no_more_than_a_full_bucket() {
        let start = Instant::now();
        let pace = Pace::new(start);
        pace.take(start, 0);
        let later = start + Duration::from_hours(1);
        for _ in 0..BURST {
            assert!(pace.ready_at(later) <= later);
            pace.take(later, 0);
        }
        assert!(pace.ready_at(later) > later);
    }

    #[test]
    fn a_request_costs_what_it_weighs() {
        let start = Instant::now() + Duration::from_hours(1);
        let waits = |lengths: &[usize]| {
            let pace = Pace::new(start);
            for &bytes in lengths {
                pace.take(start, bytes);
            }
            pace.ready_at(start).saturating_duration_since(start)
        };
        let honest = [1_400_000, 1_400_000, 1_000, 200_000, 700_000, 100, 100, 100, 100, 100];
        assert_eq!(waits(&honest), Duration::ZERO);
        assert_eq!(waits(&[4 << 20; 7]), Duration::ZERO);
        let most = [32 << 20; 10];
        assert_eq!(waits(&most[..1]), EARN_ONE * 14);
        let each = EARN_ONE * 513;
        assert_eq!(waits(&most), waits(&most[..1]) + each * 9);
    }

    #[test]
    fn clones_are_the_same_bucket() {
        let start = Instant::now() + Duration::from_hours(1);
        let pace = Pace::new(start);
        let other = pace.clone();
        pace.take(start, 64 << 20);
        assert!(other.ready_at(start) > start);
    }
}
