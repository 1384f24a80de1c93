//! The rate limit on the requests of one proxy.
//!
//! Owns a token bucket, shared by the streams of a proxy. Does not sleep: it returns the time of the
//! next read, and the stream waits until then.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use smc_host::sync::lock;

/// Requests that may come at once. A starting Envoy subscribes once per type and acknowledges each
/// response; in State of the World it subscribes again for every name it warms. A few hundred is far
/// more than that.
const BURST: u32 = 500;

/// The time that refills the bucket by one request: 100 requests per second, a multiple of what the
/// acknowledgements in a busy mesh take.
const EARN_ONE: Duration = Duration::from_millis(10);

/// A request costs one, and one more for each of these many bytes, so that a proxy sends at most 6.4
/// MB/s. Most requests are smaller. The largest costs as much as a whole burst; a resume in a mesh of
/// 5,000 services, with 3 MB for all types together, a tenth of one.
const BYTES_FOR_ONE: u64 = 64 << 10;

/// A token bucket. Streams of a proxy beyond its rate are not ended, only read more slowly: the flow
/// control of HTTP/2 slows the sender down, so a flood costs only its sender. Cheap to clone; clones
/// are the same bucket.
#[derive(Debug, Clone)]
pub(super) struct RateLimit(Arc<Mutex<Bucket>>);

#[derive(Debug)]
struct Bucket {
    /// The time at which the bucket is full again: the "theoretical arrival time" of the generic cell
    /// rate algorithm (GCRA).
    spent_until: Instant,
}

impl RateLimit {
    /// A full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Bucket { spent_until: now })))
    }

    /// The time at which the next request may be read: `now` or earlier unless the bucket is empty.
    pub(super) fn ready_at(&self, now: Instant) -> Instant {
        lock(&self.0).spent_until.checked_sub(EARN_ONE * (BURST - 1)).unwrap_or(now)
    }

    /// Charges the bucket for a request of this encoded length. A request that costs more than the
    /// bucket holds delays the next one.
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
        let limit = RateLimit::new(start);
        for _ in 0..BURST {
            assert!(limit.ready_at(start) <= start);
            limit.take(start, 0);
        }
        assert_eq!(limit.ready_at(start), start + EARN_ONE);
        let later = start + EARN_ONE;
        assert!(limit.ready_at(later) <= later);
        limit.take(later, 0);
        assert!(limit.ready_at(later) > later);
    }

    #[test]
    fn an_idle_stream_earns_no_more_than_a_full_bucket() {
        let start = Instant::now();
        let limit = RateLimit::new(start);
        limit.take(start, 0);
        let later = start + Duration::from_hours(1);
        for _ in 0..BURST {
            assert!(limit.ready_at(later) <= later);
            limit.take(later, 0);
        }
        assert!(limit.ready_at(later) > later);
    }

    #[test]
    fn a_request_costs_what_it_weighs() {
        let start = Instant::now() + Duration::from_hours(1);
        let waits = |lengths: &[usize]| {
            let limit = RateLimit::new(start);
            for &bytes in lengths {
                limit.take(start, bytes);
            }
            limit.ready_at(start).saturating_duration_since(start)
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
        let limit = RateLimit::new(start);
        let other = limit.clone();
        limit.take(start, 64 << 20);
        assert!(other.ready_at(start) > start);
    }
}
