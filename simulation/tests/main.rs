//! The real controller on a network that fails and on machines that lose their power, as a seed says.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod partition;
mod power;
mod shop;
