//! Shared by the benchmarks: a deterministic mesh of any size, and the real controller as a process.
//!
//! Service *i* is in namespace `n<i mod 10>` (or modulo another number of namespaces), and has one port and
//! its own identity. Proxies are distributed over the services in turn. The identity of service *i* may call
//! the `reach` services after it, by an HTTP route.

pub mod bootstraps;
pub mod controller;
pub mod controllers;
pub mod mesh;
pub mod processor_time;
pub mod program;
pub mod proxies;
pub mod sidecar;

use std::time::Duration;

/// Any error ends a benchmark.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The value that `percent` of the samples do not exceed.
pub fn percentile(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort();
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

/// To one place, for figures that say no more.
pub fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// [`percentile`], in milliseconds.
pub fn percentile_ms(samples: &[Duration], percent: usize) -> f64 {
    percentile(samples, percent).as_secs_f64() * 1e3
}
