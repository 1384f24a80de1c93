//! What proxies are served by: their class.
//!
//! Owns the key under which proxies share a snapshot. Proxies of one class get the same resources.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{NamespacedName, ServiceAccountId, ServiceId};

/// The properties that decide what a proxy is served: its identity, the ports that services target, the
/// address families of its pod, and the Telemetry that holds for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProxyClass {
    /// The identity.
    pub account: ServiceAccountId,
    /// The inbound ports, sorted.
    pub inbound: Vec<InboundPort>,
    /// Whether the pods have IPv4 addresses.
    pub ipv4: bool,
    /// Whether the pods have IPv6 addresses.
    pub ipv6: bool,
    /// The Telemetry by which it logs, which may mean some pods of an identity alone.
    pub telemetry: Option<NamespacedName>,
}

/// One port of a workload that services target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InboundPort {
    /// The port in the pod.
    pub port: u16,
    /// The protocol that the services declare for it.
    pub protocol: AppProtocol,
    /// The services that target it with that protocol.
    pub services: BTreeSet<ServiceId>,
}

/// The protocol of a port: from `appProtocol`, the port's name or its number, else HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AppProtocol {
    /// HTTP/1.1, or HTTP/2 where the client begins it.
    Http,
    /// HTTP/2 without TLS, thus also gRPC.
    Http2,
    /// TCP where the client speaks first.
    Tcp,
    /// TCP where the server speaks first, so nothing may be sniffed before connecting.
    TcpServerFirst,
    /// The application's own TLS, carried through.
    Https,
}

impl AppProtocol {
    /// Its name, as configuration and reports spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Tcp => "tcp",
            Self::TcpServerFirst => "tcp-server-first",
            Self::Https => "https",
        }
    }

    /// Whether the mesh reads requests on it, and HTTP rules thus apply.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2)
    }
}
