//! How long certificates live, and when they are renewed.
//!
//! Owns the arithmetic. Refuses to read a clock or to draw randomness. All spans are whole seconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::SerialNumber;
use crate::time::Timestamp;

/// How far before its issuance a certificate begins to be valid, so that a host whose clock is behind takes
/// it at once. Five minutes is what Kubernetes and Istio allow too; a host that is off by more has worse
/// trouble.
pub const BACKDATE: Duration = Duration::from_mins(5);

/// The shortest lifetime that can be asked for. Below it, renewal after two thirds leaves less time than
/// a proxy that is reconnecting may need.
pub const SHORTEST_LIFETIME: Duration = Duration::from_secs(10);

/// The longest service certificate. There is no revocation: a stolen key is good until then.
pub const LONGEST_SERVICE_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// What a lifetime is jittered by at most, in percent up and down, so that certificates issued together are
/// not renewed together (the seeds: "randomly shortened or extended").
const JITTER_PERCENT: u64 = 10;

/// From when until when a certificate is valid, both ends included (RFC 5280 §4.1.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Validity {
    /// The first moment.
    pub not_before: Timestamp,
    /// The last moment.
    pub not_after: Timestamp,
}

impl Validity {
    /// Whether `now` lies in it.
    pub fn contains(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// How long each kind of certificate lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// The root, ten years: as long as a mesh is expected to run between two re-roots.
    pub root: Duration,
    /// The issuing CA, three years: it has to outlive every proxy certificate that it signs, and is
    /// to be replaced when what is left of it no longer covers one.
    pub issuing: Duration,
    /// A proxy certificate, one year: longer than pods live between two roll-outs, since nothing renews it
    /// while the pod runs; short enough that a lost one, should nobody release it, ends by itself.
    pub proxy: Duration,
    /// A service certificate, and the controller's own, about 48 hours before jitter.
    pub service: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            root: Duration::from_hours(10 * 365 * 24),
            issuing: Duration::from_hours(3 * 365 * 24),
            proxy: Duration::from_hours(365 * 24),
            service: Duration::from_hours(48),
        }
    }
}

/// A lifetime out of bounds.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the service certificate lifetime must be 10 s to 30 days, not {0:?}")]
pub struct InvalidLifetime(pub Duration);

/// The issuer is not valid now, or its end is so near that nothing useful can be signed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the issuer is valid from {from} to {to} and cannot sign at {at} (seconds since 1970)",
    from = .issuer.not_before.0, to = .issuer.not_after.0, at = .now.0
)]
pub struct IssuerEnding {
    /// The issuer's validity.
    pub issuer: Validity,
    /// When the signature was asked for.
    pub now: Timestamp,
}

impl Lifetimes {
    /// The default lifetimes with service certificates of `service`, from [`SHORTEST_LIFETIME`] to
    /// [`LONGEST_SERVICE_LIFETIME`].
    pub fn with_service(service: Duration) -> Result<Self, InvalidLifetime> {
        if !(SHORTEST_LIFETIME..=LONGEST_SERVICE_LIFETIME).contains(&service) {
            return Err(InvalidLifetime(service));
        }
        Ok(Self { service, ..Self::default() })
    }

    /// The longest that a service certificate may last from its issuance, jitter included.
    pub fn longest_service(&self) -> Duration {
        let seconds = self.service.as_secs();
        Duration::from_secs(seconds + seconds * JITTER_PERCENT / 100)
    }

    /// The validity of a new root.
    pub fn root_validity(&self, now: Timestamp) -> Validity {
        Validity { not_before: now.minus(BACKDATE), not_after: now.plus(self.root) }
    }

    /// The validity of a new issuing CA, within its root's.
    pub fn issuing_validity(&self, now: Timestamp, root: &Validity) -> Result<Validity, IssuerEnding> {
        within(now, self.issuing, root)
    }

    /// The validity of a new proxy certificate, within its issuer's.
    pub fn proxy_validity(&self, now: Timestamp, issuer: &Validity) -> Result<Validity, IssuerEnding> {
        within(now, self.proxy, issuer)
    }

    /// The validity of a new service or controller certificate, within its issuer's. `random` is any
    /// number, and spreads the lifetime evenly over ten percent up and down.
    pub fn service_validity(
        &self,
        now: Timestamp,
        issuer: &Validity,
        random: u64,
    ) -> Result<Validity, IssuerEnding> {
        let seconds = self.service.as_secs();
        let reach = seconds * JITTER_PERCENT / 100;
        within(now, Duration::from_secs(seconds - reach + random % (2 * reach + 1)), issuer)
    }
}

/// The validity that begins a little before `now`, lasts for `lifetime`, and leaves the issuer's on neither
/// side: a chain with a certificate that outlives its issuer fails in the middle of its life.
fn within(now: Timestamp, lifetime: Duration, issuer: &Validity) -> Result<Validity, IssuerEnding> {
    if !issuer.contains(now) || issuer.not_after.since(now) < SHORTEST_LIFETIME {
        return Err(IssuerEnding { issuer: *issuer, now });
    }
    Ok(Validity {
        not_before: now.minus(BACKDATE).max(issuer.not_before),
        not_after: now.plus(lifetime).min(issuer.not_after),
    })
}

/// When a certificate is to be renewed: after 57 to 67 percent of its life after issuance, so that a third
/// of it is left to try again in. The spread comes from the serial, so all replicas and all restarts agree.
pub fn renewal_time(serial: &SerialNumber, issued_at: Timestamp, validity: &Validity) -> Timestamp {
    let life = validity.not_after.since(issued_at).as_secs();
    let latest = life / 3 * 2 + life % 3 * 2 / 3;
    let spread = life / 10;
    issued_at.plus(Duration::from_secs(latest - serial.spread() % (spread + 1)))
}

/// When a certificate is to be renewed because another CA has signed since `since`: within a tenth of its life, and within
/// an hour, spread by the serial, so that a whole mesh does not renew at once.
pub fn reissue_time(
    serial: &SerialNumber,
    issued_at: Timestamp,
    validity: &Validity,
    since: Timestamp,
) -> Timestamp {
    let reach = (validity.not_after.since(issued_at).as_secs() / 10).min(3600);
    since.plus(Duration::from_secs(serial.spread() % (reach + 1)))
}

/// Whether a certificate is to be renewed now: from its renewal on, and whenever it is not valid. One that was issued by
/// a clock that ran ahead, and was put back since, only becomes valid some time.
pub fn renewal_is_due(validity: &Validity, renewal: Timestamp, now: Timestamp) -> bool {
    renewal <= now || !validity.contains(now)
}

/// How long to wait after a failed attempt, the first being number 0: doubling from one second to one
/// minute, and of that half to all by `random`, so that those who failed together do not return together.
pub fn retry_delay(attempt: u32, random: u64) -> Duration {
    let full = (1000 << attempt.min(10)).min(60_000u64);
    Duration::from_millis(full / 2 + random % (full / 2 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;
    const NOW: Timestamp = Timestamp(1_800_000_000);

    fn issuer() -> Validity {
        Lifetimes::default().root_validity(NOW)
    }

    #[test]
    fn a_service_lifetime_stays_within_ten_percent_of_what_was_asked() {
        let lifetimes = Lifetimes::default();
        for random in [0, 1, 12_345_678_901, u64::MAX] {
            let validity = lifetimes.service_validity(NOW, &issuer(), random).unwrap();
            let life = validity.not_after.since(NOW).as_secs();
            assert!((48 * HOUR * 9 / 10..=48 * HOUR * 11 / 10).contains(&life), "{life}");
            assert!(life <= lifetimes.longest_service().as_secs());
            assert_eq!(validity.not_before, NOW.minus(BACKDATE).max(issuer().not_before));
        }
    }

    #[test]
    fn a_certificate_is_renewed_from_its_renewal_on_and_while_it_is_not_valid() {
        let at = |seconds| NOW.plus(Duration::from_secs(seconds));
        let (validity, renewal) = (Validity { not_before: at(100), not_after: at(200) }, at(160));
        for (now, due) in [(99, true), (100, false), (159, false), (160, true), (200, true), (201, true)] {
            assert_eq!(renewal_is_due(&validity, renewal, at(now)), due, "{now}");
        }
    }

    #[test]
    fn nothing_outlives_its_issuer_and_an_ended_issuer_signs_nothing() {
        let lifetimes = Lifetimes::default();
        let ending =
            Validity { not_before: NOW.minus(BACKDATE), not_after: NOW.plus(Duration::from_mins(1)) };
        assert_eq!(lifetimes.proxy_validity(NOW, &ending).unwrap().not_after, ending.not_after);
        assert_eq!(lifetimes.service_validity(NOW, &ending, 7).unwrap().not_after, ending.not_after);
        for moment in [NOW.plus(Duration::from_secs(55)), NOW.plus(Duration::from_secs(61)), Timestamp(0)] {
            assert!(lifetimes.service_validity(moment, &ending, 7).is_err(), "{moment:?}");
            assert!(lifetimes.proxy_validity(moment, &ending).is_err(), "{moment:?}");
            assert!(lifetimes.issuing_validity(moment, &ending).is_err(), "{moment:?}");
        }
    }

    #[test]
    fn the_issuing_certificate_outlives_the_proxy_certificates_of_its_first_two_years() {
        let lifetimes = Lifetimes::default();
        let issuing = lifetimes.issuing_validity(NOW, &issuer()).unwrap();
        let later = NOW.plus(Duration::from_hours(2 * 365 * 24));
        assert_eq!(lifetimes.proxy_validity(later, &issuing).unwrap().not_after, later.plus(lifetimes.proxy));
    }

    #[test]
    fn retries_slow_down_to_a_minute_and_never_come_at_once() {
        for (attempt, from, to) in
            [(0, 500, 1000), (1, 1000, 2000), (6, 30_000, 60_000), (u32::MAX, 30_000, 60_000)]
        {
            for random in [0, 1, u64::MAX] {
                let delay = u64::try_from(retry_delay(attempt, random).as_millis()).unwrap();
                assert!((from..=to).contains(&delay), "attempt {attempt}: {delay} ms");
            }
        }
    }

    #[test]
    fn absurd_lifetimes_are_refused() {
        for bad in [0, 9, 30 * DAY + 1, u64::MAX] {
            assert!(Lifetimes::with_service(Duration::from_secs(bad)).is_err(), "{bad}");
        }
        assert!(Lifetimes::with_service(Duration::from_secs(30)).is_ok());
    }

    #[test]
    fn a_certificate_is_renewed_between_57_and_67_percent_of_its_life_and_always_at_the_same_moment() {
        for life in [10, 30, 3600, 48 * HOUR] {
            let validity =
                Validity { not_before: NOW.minus(BACKDATE), not_after: NOW.plus(Duration::from_secs(life)) };
            for byte in [0, 1, 77, 255] {
                let serial = SerialNumber::draw([byte; 16]);
                let age = renewal_time(&serial, NOW, &validity).since(NOW).as_secs();
                assert!(age >= life * 55 / 100 && age <= life * 67 / 100, "{age} of {life}");
                assert_eq!(renewal_time(&serial, NOW, &validity), renewal_time(&serial, NOW, &validity));
            }
        }
    }
}
