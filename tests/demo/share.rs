//! Tests whether a weight explains an observed share, by the normal approximation of the binomial
//! distribution.
//!
//! Envoy draws the cluster of each request independently, so of `n` requests a number distributed
//! Binomial(n, p) goes to a backend of weight `p`. The share differs from `p` by more than `z`
//! standard deviations, √(p(1−p)/n) each, with a probability that for `z` = 4.5 is about 1 in
//! 150,000 (the approximation itself is good enough from n·p·(1−p) ≈ 20 on; the smallest window has
//! 400 · 0.1 · 0.9 = 36). Half a request is added as continuity correction.

/// Accepted distance of a share, in standard deviations.
pub const Z: f64 = 4.5;

/// An observed share, with its expected value and bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Observed, 0 to 1.
    pub observed: f64,
    /// By weight, 0 to 1.
    pub expected: f64,
    /// The largest distance between the two.
    pub bound: f64,
}

impl Share {
    /// Returns the share of `part` in `whole` requests; `None` without requests.
    pub fn of(part: u64, whole: u64, expected: f64) -> Option<Self> {
        if whole == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "far fewer requests than 2^52")]
        let (part, whole) = (part as f64, whole as f64);
        let deviation = (expected * (1.0 - expected) / whole).sqrt();
        Some(Self { observed: part / whole, expected, bound: Z * deviation + 0.5 / whole })
    }

    /// Returns true if the weight explains the share.
    pub fn fits(self) -> bool {
        (self.observed - self.expected).abs() <= self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_fits_within_its_bound_and_not_beyond() {
        for (part, whole, expected, fits) in [
            (200, 400, 0.5, true),
            (245, 400, 0.5, true),
            (246, 400, 0.5, false),
            (155, 400, 0.5, true),
            (154, 400, 0.5, false),
            (360, 400, 0.9, true),
            (333, 400, 0.9, true),
            (332, 400, 0.9, false),
            (387, 400, 0.9, true),
            (388, 400, 0.9, false),
            (200, 400, 0.9, false),
            (360, 400, 0.5, false),
        ] {
            let share = Share::of(part, whole, expected).unwrap();
            assert_eq!(share.fits(), fits, "{part} of {whole} at {expected}: {share:?}");
        }
        assert_eq!(Share::of(0, 0, 0.5), None);
    }
}
