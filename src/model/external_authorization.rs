//! A server that is asked whether a request may pass.
//!
//! Owns what is asked, and what an answer that does not come means.

use std::time::Duration;

use crate::outside_server::OutsideServer;

/// What sidecars ask before a request reaches its application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExternalAuthorization {
    /// The server of Envoy's gRPC service `envoy.service.auth.v3.Authorization`; `None` if what was declared
    /// cannot be read. Then every request is denied.
    pub server: Option<OutsideServer>,
    /// What the names of its statistics begin with: letters, digits, `_` and `-`; never empty.
    pub stat_prefix: String,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Whether a request passes if no answer comes. Never set without a server.
    pub failure_mode_allow: bool,
}
