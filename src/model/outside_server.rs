//! A server outside of the mesh that sidecars themselves call, in clear text.
//!
//! Owns where it is.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use smc_types::ids::ServiceId;

/// A server. Its text is its host and port, as in a URL: what it is called in a request to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutsideServer {
    /// Its host.
    pub host: ServerHost,
    /// Its port.
    pub port: u16,
}

/// A server that speaks HTTP/2 without TLS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtensionServer {
    /// Where it is.
    pub server: OutsideServer,
    /// How long connecting may take.
    pub connect_timeout: Duration,
}

impl OutsideServer {
    /// The service of Kubernetes whose full name is its host.
    pub fn service(&self) -> Option<ServiceId> {
        let ServerHost::Name(name) = &self.host else { return None };
        let (service, namespace) = name.strip_suffix(ServiceId::DOMAIN)?.split_once('.')?;
        ServiceId::new(namespace, service).ok()
    }
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
