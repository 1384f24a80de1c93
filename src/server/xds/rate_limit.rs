//! The rate limit on what one proxy makes a replica do.
//!
//! Owns a token bucket, shared by the streams and connections of a proxy, that pays for requests, their
//! bytes, the work they cause, and streams. Does not sleep: it returns the time of the next read, and the
//! stream waits until then.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use smc_host::gcra::Gcra;
use smc_host::sync::lock;
use tokio::time::Instant;

/// Requests that may come at once. A starting Envoy subscribes once per type and acknowledges each
/// response; in State of the World it subscribes again for every name it warms. A few hundred is far
/// more than that.
const BURST: u32 = 500;

/// The time that refills the bucket by one request: 100 requests per second, a multiple of what the
/// acknowledgements in a busy mesh take.
const EARN_ONE: Duration = Duration::from_millis(10);

/// These many bytes cost as much as a request, so that a proxy sends at most 6.5 MB/s. Most requests are
/// smaller. The largest costs a quarter of a whole burst; a resume in a mesh of 5,000 services, with 3 MB for
/// all types together, a tenth of one.
const BYTES_FOR_ONE: u64 = 64 << 10;

/// These many names that a request makes the session look at cost as much as a request. They take about a
/// third of a millisecond, so a proxy takes 3 % of a core for long, and a sixth of a second at once. A
/// resume in a mesh of 10,000 services looks at about 200,000, two fifths of a burst.
const NAMES_FOR_ONE: u64 = 1024;

/// A stream costs as much as these many requests: 10 streams a second, and 50 at once. A proxy that
/// reconnects opens one, or five to sixteen separate ones, and waits half a second or more before it
/// tries again.
const REQUESTS_FOR_STREAM: u32 = 10;

/// How many streams may wait for the bucket: as many as may be open. Who opens more does not wait for an
/// answer.
const WAITING_STREAMS: u32 = 32;

/// How often streams that are refused are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// A token bucket. Streams of a proxy beyond its rate are not ended, only read more slowly: the flow
/// control of HTTP/2 slows the sender down, so a flood costs only its sender. Cheap to clone; clones
/// are the same bucket.
#[derive(Debug, Clone)]
pub(super) struct RateLimit(Arc<Mutex<Bucket>>);

#[derive(Debug)]
struct Bucket {
    requests: Gcra,
    /// The refused streams that have not been reported.
    refused: u64,
    reported_at: Option<Instant>,
}

/// Whether a stream may be opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// At [`RateLimit::ready_at`].
    Allowed,
    /// Its proxy opens them far faster than it may. The number of those
    /// refused that is to be reported now.
    Refused { report: Option<u64> },
}

impl RateLimit {
    /// A full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Bucket { requests: Gcra::new(now), refused: 0, reported_at: None })))
    }

    /// The time at which the next request may be read: `now` or earlier unless the bucket is empty.
    pub(super) fn ready_at(&self, now: Instant) -> Instant {
        lock(&self.0).requests.ready_at(now, EARN_ONE * (BURST - 1))
    }

    /// Charges the bucket for a request.
    pub(super) fn take_request(&self, now: Instant) {
        lock(&self.0).requests.spend(now, EARN_ONE);
    }

    /// Charges the bucket for bytes of requests, also of such as never end.
    pub(super) fn take_bytes(&self, now: Instant, bytes: usize) {
        lock(&self.0).requests.spend(now, share(bytes, BYTES_FOR_ONE));
    }

    /// Charges the bucket for names that the session looked at. More than it holds delays the next request.
    pub(super) fn take_work(&self, now: Instant, names: usize) {
        lock(&self.0).requests.spend(now, share(names, NAMES_FOR_ONE));
    }

    /// Charges the bucket for a stream, unless too many wait already.
    pub(super) fn open_stream(&self, now: Instant) -> Opening {
        let cost = EARN_ONE * REQUESTS_FOR_STREAM;
        let mut bucket = lock(&self.0);
        if !bucket.requests.admits(now, EARN_ONE * BURST + cost * WAITING_STREAMS) {
            bucket.refused += 1;
            let due = bucket.reported_at.is_none_or(|at| at + REPORT_INTERVAL <= now);
            let report = due.then(|| {
                bucket.reported_at = Some(now);
                std::mem::take(&mut bucket.refused)
            });
            return Opening::Refused { report };
        }
        bucket.requests.spend(now, cost);
        Opening::Allowed
    }

    /// Whether no connection uses the bucket and it is full, so that a new one is the same.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        Arc::strong_count(&self.0) == 1 && lock(&self.0).requests.is_full(now)
    }
}

/// The time that refills the bucket by `units`, of which `for_one` cost as much as a request.
fn share(units: usize, for_one: u64) -> Duration {
    let nanos = u64::try_from(EARN_ONE.as_nanos()).unwrap_or(u64::MAX);
    let units = u64::try_from(units).unwrap_or(u64::MAX);
    Duration::from_nanos(units.saturating_mul(nanos) / for_one)
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
            limit.take_request(start);
        }
        assert_eq!(limit.ready_at(start), start + EARN_ONE);
        let later = start + EARN_ONE;
        assert!(limit.ready_at(later) <= later);
        limit.take_request(later);
        assert!(limit.ready_at(later) > later);
    }

    #[test]
    fn an_idle_stream_earns_no_more_than_a_full_bucket() {
        let start = Instant::now();
        let limit = RateLimit::new(start);
        limit.take_request(start);
        let later = start + Duration::from_hours(1);
        for _ in 0..BURST {
            assert!(limit.ready_at(later) <= later);
            limit.take_request(later);
        }
        assert!(limit.ready_at(later) > later);
    }

    #[test]
    fn a_request_costs_what_it_weighs() {
        let start = Instant::now() + Duration::from_hours(1);
        let waits = |lengths: &[usize]| {
            let limit = RateLimit::new(start);
            for &bytes in lengths {
                limit.take_request(start);
                limit.take_bytes(start, bytes);
            }
            limit.ready_at(start).saturating_duration_since(start)
        };
        let honest = [1_400_000, 1_400_000, 1_000, 200_000, 700_000, 100, 100, 100, 100, 100];
        assert_eq!(waits(&honest), Duration::ZERO);
        assert_eq!(waits(&[4 << 20; 7]), Duration::ZERO);
        let most = [8 << 20; 20];
        assert_eq!(waits(&most[..3]), Duration::ZERO);
        let each = EARN_ONE * 129;
        assert_eq!(waits(&most), (each * 20).checked_sub(EARN_ONE * 499).unwrap());
    }

    #[test]
    fn clones_are_the_same_bucket() {
        let start = Instant::now() + Duration::from_hours(1);
        let limit = RateLimit::new(start);
        let other = limit.clone();
        limit.take_bytes(start, 64 << 20);
        assert!(other.ready_at(start) > start);
    }

    #[test]
    fn work_costs_what_it_looks_at() {
        let start = Instant::now() + Duration::from_hours(1);
        let limit = RateLimit::new(start);
        let resume_of_10000_services = 200_000;
        limit.take_work(start, 2 * resume_of_10000_services);
        assert!(limit.ready_at(start) <= start);
        // What a subscription to `*` among 49,000 names cost before it was charged.
        limit.take_work(start, 10 * 49_000);
        assert!(limit.ready_at(start) > start + Duration::from_secs(3));
    }

    #[test]
    fn streams_wait_for_the_bucket_and_those_beyond_are_refused_and_counted() {
        let start = Instant::now() + Duration::from_hours(1);
        let limit = RateLimit::new(start);
        let opened = (0..10_000).take_while(|_| limit.open_stream(start) == Opening::Allowed).count();
        assert_eq!(opened, 50 + 32 + 1);
        assert_eq!(limit.ready_at(start), start + EARN_ONE * (33 * 10 + 1));
        let refused: Vec<_> = (0..5).map(|_| limit.open_stream(start)).collect();
        // The first was refused, and reported, above.
        assert!(refused.iter().all(|opening| *opening == Opening::Refused { report: None }));
        let later = start + REPORT_INTERVAL;
        assert_eq!(limit.open_stream(later), Opening::Allowed);
        while limit.open_stream(later) == Opening::Allowed {}
        let reported = limit.open_stream(later);
        assert_eq!(reported, Opening::Refused { report: None }, "reported by the one before");
        // An hour of 100 streams a second is 360 lines.
        let lines = (0..3_600).filter(|second| {
            let now = later + Duration::from_secs(*second);
            let flood = (0..100).map(|_| limit.open_stream(now));
            flood.filter(|opening| matches!(opening, Opening::Refused { report: Some(_) })).count() > 0
        });
        assert!(lines.count() <= 361);
    }

    #[test]
    fn a_bucket_is_idle_when_it_is_full_and_unused() {
        let start = Instant::now() + Duration::from_hours(1);
        let limit = RateLimit::new(start);
        assert!(limit.is_idle(start));
        limit.take_request(start);
        assert!(!limit.is_idle(start) && limit.is_idle(start + EARN_ONE));
        let _used = limit.clone();
        assert!(!limit.is_idle(start + EARN_ONE));
    }
}
