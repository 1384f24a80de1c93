//! Lifetimes and renewal times of certificates.
//!
//! Owns the arithmetic. All spans are whole seconds. The time and randomness come from the caller.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use smc_types::time::Timestamp;
use thiserror::Error;

use super::SerialNumber;

/// How far before its issuance a certificate becomes valid, so that a host whose clock is behind
/// accepts it at once. Kubernetes and Istio also allow five minutes.
pub const BACKDATE: Duration = Duration::from_mins(5);

/// The shortest lifetime that can be configured. Below it, renewal after two thirds leaves less
/// time than a proxy may need to reconnect.
pub const SHORTEST_LIFETIME: Duration = Duration::from_secs(10);

/// The longest lifetime of a service certificate. There is no revocation: a stolen key is valid
/// until the end.
pub const LONGEST_SERVICE_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// The largest jitter of a lifetime, in percent up and down, so that certificates issued together
/// are not renewed together (the seeds: "randomly shortened or extended").
const JITTER_PERCENT: u64 = 10;

/// The period in which a certificate is valid, both ends included (RFC 5280 §4.1.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Validity {
    /// The first valid second.
    pub not_before: Timestamp,
    /// The last valid second.
    pub not_after: Timestamp,
}

impl Validity {
    /// Whether `now` lies in the period.
    pub fn contains(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// The lifetime of each kind of certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// The root, ten years.
    pub root: Duration,
    /// The issuing CA, three years: it must outlive every proxy certificate that it signs, and is
    /// replaced before its remaining lifetime no longer covers one.
    pub issuing: Duration,
    /// A proxy certificate, one year: longer than pods live between two roll-outs, since it is not
    /// renewed while the pod runs; short enough that a lost one that is never released ends.
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

/// The issuer is not valid now, or ends within [`SHORTEST_LIFETIME`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the issuer is valid from {from} to {to} and cannot sign at {at} (seconds since 1970)",
    from = .issuer.not_before.0, to = .issuer.not_after.0, at = .now.0
)]
pub struct IssuerEnding {
    /// The issuer's validity.
    pub issuer: Validity,
    /// The time of the attempted signature.
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

    /// The longest time from a service certificate's issuance to its end, jitter included.
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

    /// The validity of a new service or controller certificate, within its issuer's. `random` is
    /// any number, and spreads the lifetime evenly over ten percent up and down.
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

/// The validity from [`BACKDATE`] before `now` until `lifetime` after it, cut to the issuer's: a
/// chain whose leaf outlives its issuer fails in the middle of the leaf's life.
fn within(now: Timestamp, lifetime: Duration, issuer: &Validity) -> Result<Validity, IssuerEnding> {
    if !issuer.contains(now) || issuer.not_after.since(now) < SHORTEST_LIFETIME {
        return Err(IssuerEnding { issuer: *issuer, now });
    }
    Ok(Validity {
        not_before: now.minus(BACKDATE).max(issuer.not_before),
        not_after: now.plus(lifetime).min(issuer.not_after),
    })
}

/// The time at which a certificate is renewed: after 57 to 67 percent of its life, which leaves a
/// third for retries. The spread comes from the serial number, so all replicas agree, also after a
/// restart.
pub fn renewal_time(serial: &SerialNumber, issued_at: Timestamp, validity: &Validity) -> Timestamp {
    let life = validity.not_after.since(issued_at).as_secs();
    let latest = life / 3 * 2 + life % 3 * 2 / 3;
    let spread = life / 10;
    issued_at.plus(Duration::from_secs(latest - serial.spread() % (spread + 1)))
}

/// The time at which a certificate is renewed because another CA signs since `since`: within a
/// tenth of its life and within an hour, spread by the serial number, so that a whole mesh does not
/// renew at once.
pub fn reissue_time(
    serial: &SerialNumber,
    issued_at: Timestamp,
    validity: &Validity,
    since: Timestamp,
) -> Timestamp {
    let reach = (validity.not_after.since(issued_at).as_secs() / 10).min(3600);
    since.plus(Duration::from_secs(serial.spread() % (reach + 1)))
}

/// Whether a certificate is renewed now: from its renewal time on, and whenever it is not valid. A
/// certificate is not valid yet if the issuing clock ran ahead and was put back.
pub fn renewal_is_due(validity: &Validity, renewal: Timestamp, now: Timestamp) -> bool {
    renewal <= now || !validity.contains(now)
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
    fn a_service_lifetime_stays_within_ten_percent_of_the_configured_one() {
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
    fn a_certificate_is_due_from_its_renewal_on_and_while_not_valid() {
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
    fn an_issuing_ca_outlives_the_proxy_certificates_of_its_first_two_years() {
        let lifetimes = Lifetimes::default();
        let issuing = lifetimes.issuing_validity(NOW, &issuer()).unwrap();
        let later = NOW.plus(Duration::from_hours(2 * 365 * 24));
        assert_eq!(lifetimes.proxy_validity(later, &issuing).unwrap().not_after, later.plus(lifetimes.proxy));
    }

    #[test]
    fn absurd_lifetimes_are_refused() {
        for bad in [0, 9, 30 * DAY + 1, u64::MAX] {
            assert!(Lifetimes::with_service(Duration::from_secs(bad)).is_err(), "{bad}");
        }
        assert!(Lifetimes::with_service(Duration::from_secs(30)).is_ok());
    }

    #[test]
    fn renewal_comes_at_57_to_67_percent_of_life_always_at_the_same_moment() {
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
