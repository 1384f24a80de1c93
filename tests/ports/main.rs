//! What strangers can do at the ports of a sidecar that are outside of the mesh: those of probes and
//! statistics.
//!
//! Real Envoys, with the configuration that injection and translation make. A test program of its own,
//! since it measures how fast an Envoy answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod probes;
mod sidecar;
mod statistics;
