//! What each caller's sidecar may ask of a service at a time (back-pressure).
//!
//! Owns the limits, each for one port of the service and one sidecar. Zero means that nothing passes.

use std::time::Duration;

/// The limits that a person set; `None` means that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ConnectionSettings {
    /// The most connections at once.
    pub max_connections: Option<u32>,
    /// How long a connection may take to come to be, with its handshake.
    pub connect_timeout: Option<Duration>,
    /// The most requests at once.
    pub max_requests: Option<u32>,
    /// The most requests over one connection; never zero.
    pub max_requests_per_connection: Option<u32>,
    /// The most requests that wait for a connection.
    pub max_pending_requests: Option<u32>,
    /// The most retries at once.
    pub max_retries: Option<u32>,
}
