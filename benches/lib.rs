//! What the benchmarks share: a mesh of any size, the same every time, and the real controller as a process.
//!
//! Service *i* stands in namespace `n<i mod 10>`, has one port and an identity of its own. Proxies are spread over
//! the services in turn. The identity of service *i* may call the `reach` services after it, by an HTTP route.

pub mod controller;
pub mod mesh;

use std::time::Duration;

/// What goes wrong with a benchmark ends it.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The value that `percent` of the samples do not exceed.
pub fn percentile(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort();
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

/// [`percentile`], in milliseconds.
pub fn percentile_ms(samples: &[Duration], percent: usize) -> f64 {
    percentile(samples, percent).as_secs_f64() * 1e3
}
