//! A server outside of the mesh that sidecars themselves call, in clear text.
//!
//! Owns where it is.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A server. Its text is its host and port, as in a URL: what it is called in a request to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutsideServer {
    /// Its host.
    pub host: ServerHost,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for OutsideServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            ServerHost::Name(name) => write!(f, "{name}:{}", self.port),
            ServerHost::Address(ip) => SocketAddr::new(*ip, self.port).fmt(f),
        }
    }
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
