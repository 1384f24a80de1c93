//! The histograms in which openraft counts sizes of batches.
//!
//! Owns a replacement for the crate of the same name, which the workspace's `[patch]` puts in its place. With
//! the first value, that crate makes the tables of all its 16 resolutions: 27 MB, a fifth of an idle
//! controller. openraft uses one of the coarsest, reads it only under its feature `runtime-stats`, which SMC
//! does not use, and has no feature that leaves the recording out.
//!
//! A bucket holds the values of one binary magnitude: 0; 1; 2 and 3; 4 to 7; and so on. A percentile is the
//! least value of its bucket, up to half too small. What openraft does not use is left out; an
//! openraft that uses more does not compile.

use std::fmt;
use std::marker::PhantomData;

/// One for zero, and one for each bit that can be a value's highest.
const BUCKETS: usize = 65;

/// How often values of each binary magnitude were recorded. Counts stop at the highest number.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    counts: [u64; BUCKETS],
    data: PhantomData<T>,
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Histogram<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.percentile_stats(), f)
    }
}

impl<T> Histogram<T> {
    /// An empty histogram.
    pub const fn new() -> Self {
        Self { counts: [0; BUCKETS], data: PhantomData }
    }

    /// Counts a value.
    pub const fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value `times` times.
    pub const fn record_n(&mut self, value: u64, times: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        // A `u64` has at most 64 significant bits.
        self.counts[bucket] = self.counts[bucket].saturating_add(times);
    }

    /// How many values were recorded, and their percentiles. All are 0 if there is none.
    pub fn percentile_stats(&self) -> PercentileStats {
        let samples = self.counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let at = |permille| self.permille(samples, permille);
        PercentileStats {
            samples,
            p0_1: at(1),
            p1: at(10),
            p5: at(50),
            p10: at(100),
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p99_9: at(999),
        }
    }

    /// The least value of the bucket that holds this share of `samples`, and more than it.
    fn permille(&self, samples: u64, permille: u64) -> u64 {
        let rank = (u128::from(samples) * u128::from(permille)).div_ceil(1000).max(1);
        let mut counted = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            counted += u128::from(count);
            if counted >= rank {
                return bucket.checked_sub(1).map_or(0, |bit| 1 << bit);
            }
        }
        0
    }
}

/// The number of values of a histogram, and percentiles of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PercentileStats {
    /// How many values there are.
    pub samples: u64,
    /// The value that one in a thousand does not exceed.
    pub p0_1: u64,
    /// The value that one in a hundred does not exceed.
    pub p1: u64,
    /// The value that one in twenty does not exceed.
    pub p5: u64,
    /// The value that one in ten does not exceed.
    pub p10: u64,
    /// The median.
    pub p50: u64,
    /// The value that one in ten exceeds.
    pub p90: u64,
    /// The value that one in a hundred exceeds.
    pub p99: u64,
    /// The value that one in a thousand exceeds.
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, p1, p50, p99, .. } = self;
        write!(f, "{samples} values, p1 {p1}, p50 {p50}, p99 {p99}")
    }
}

/// Several histograms with their names, a line each.
#[derive(Debug, Clone)]
pub struct AsciiChart<T = ()> {
    series: Vec<(String, Histogram<T>)>,
}

impl<T> Default for AsciiChart<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> AsciiChart<T> {
    /// A chart without a histogram.
    pub const fn new() -> Self {
        Self { series: Vec::new() }
    }

    /// The same chart with one histogram more.
    #[must_use]
    pub fn add(mut self, name: &str, histogram: Histogram<T>) -> Self {
        self.series.push((name.to_owned(), histogram));
        self
    }
}

impl<T> fmt::Display for AsciiChart<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.series.iter().try_for_each(|(name, histogram)| writeln!(f, "{name}: {histogram:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_least_value_of_their_magnitude() {
        let mut histogram: Histogram = Histogram::new();
        assert_eq!(histogram.percentile_stats().p99_9, 0);
        for value in 0..1000 {
            histogram.record(value);
        }
        let stats = histogram.percentile_stats();
        assert_eq!((stats.samples, stats.p0_1, stats.p1, stats.p50, stats.p99), (1000, 0, 8, 256, 512));
        histogram.record_n(u64::MAX, u64::MAX);
        let stats = histogram.percentile_stats();
        assert_eq!((stats.samples, stats.p50), (u64::MAX, 1 << 63));
    }

    #[test]
    fn a_chart_has_a_line_for_each_histogram() {
        let mut histogram: Histogram = Histogram::new();
        histogram.record(5);
        let chart = AsciiChart::new().add("empty", Histogram::new()).add("five", histogram);
        let lines = "empty: 0 values, p1 0, p50 0, p99 0\nfive: 1 values, p1 4, p50 4, p99 4\n";
        assert_eq!(chart.to_string(), lines);
    }
}
