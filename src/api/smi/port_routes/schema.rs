//! The schemas of TCPRoute and UDPRoute.

use schemars::JsonSchema;

use super::MAX_PORTS;

/// TCP ports of a destination's pods.
#[derive(Debug, JsonSchema)]
pub struct TcpRouteSpec {
    /// What the route matches; left out, all ports.
    pub matches: Option<PortMatch>,
}

/// UDP ports of a destination's pods. The mesh carries no UDP: the object has no effect, and says so.
#[derive(Debug, JsonSchema)]
pub struct UdpRouteSpec {
    /// What the route matches; left out, all ports.
    pub matches: Option<PortMatch>,
}

/// Ports.
#[derive(Debug, JsonSchema)]
pub struct PortMatch {
    /// Ports of the pod; empty or left out, all.
    #[schemars(length(max = MAX_PORTS), inner(range(min = 1, max = 65535)))]
    pub ports: Option<Vec<u16>>,
}
