//! The ports of a sidecar.
//!
//! Owns the numbers on which the bootstrap, interception and the translation agree.

use std::ops::RangeInclusive;

/// The proxy's listener for the application's connections, unless a parameter names another port.
pub const OUTBOUND_PORT: u16 = 15001;
/// The proxy's listener for connections to the application, unless a parameter names another port.
pub const INBOUND_PORT: u16 = 15003;
/// The proxy's Prometheus listener. Scrapers are outside the mesh.
pub const METRICS_PORT: u16 = 15010;
/// The ports of rewritten liveness, readiness, startup and TCP probes. The kubelet is outside the mesh.
pub const PROBE_PORTS: RangeInclusive<u16> = 15901..=15904;
/// The proxy's admin interface, on loopback only. The same for every proxy, because the metrics
/// listener, which many proxies share, reads the statistics from it.
pub const ADMIN_PORT: u16 = 15000;

/// Whether a port is one of a sidecar's, where no parameter names others.
pub fn is_of_sidecars(port: u16) -> bool {
    [OUTBOUND_PORT, INBOUND_PORT, METRICS_PORT, ADMIN_PORT].contains(&port) || PROBE_PORTS.contains(&port)
}
