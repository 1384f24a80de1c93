//! The real controller on a network that is partitioned and on machines that lose their power, as a seed
//! determines.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod api_servers;
mod clocks;
mod failing;
mod moves;
mod partition;
mod power;
mod proxies;
mod scaling;
mod seeds;
mod source;
