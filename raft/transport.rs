//! gRPC over mutual TLS between replicas, on the [`smc_host::network::Network`] that they are given.
//!
//! Owns connections, their authentication and their bounds. [`route`] checks that a message is for this
//! replica; openraft interprets it.

pub(crate) mod client;
mod listener;
mod route;
pub(crate) mod server;
pub(crate) mod tls;

/// The largest message, in bytes: room for a batch of proposals, or log entries read at once, of 4 MiB each.
pub(crate) const MAX_MESSAGE: usize = 16 * 1024 * 1024;
