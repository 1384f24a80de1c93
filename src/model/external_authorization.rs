//! A server that is asked whether a request may pass.
//!
//! Owns where it is, and what an answer that does not come means.

use std::net::IpAddr;
use std::time::Duration;

/// What sidecars ask before a request reaches its application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExternalAuthorization {
    /// The server; `None` if what was declared cannot be read. Then every request is denied.
    pub server: Option<AuthorizationServer>,
    /// What the names of its statistics begin with: letters, digits, `_` and `-`; never empty.
    pub stat_prefix: String,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Whether a request passes if no answer comes. Never set without a server.
    pub failure_mode_allow: bool,
}

/// A server of Envoy's gRPC service `envoy.service.auth.v3.Authorization`, outside of the mesh, in clear
/// text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuthorizationServer {
    /// Its host.
    pub host: ServerHost,
    /// Its port.
    pub port: u16,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerHost {
    /// At this address.
    Address(IpAddr),
    /// At the addresses that this name has, in lower case, as each sidecar resolves it, without search
    /// domains.
    Name(String),
}
