//! The settings of the translation: trust domain, mesh namespace, the sidecar's ports.
//!
//! Owns these values. The ports are those to which `smc init` redirects (`interception.rs`).

use std::time::Duration;

use smc_types::ids::{MeshNamespace, TrustDomain};
use smc_types::ports::{ADMIN_PORT, INBOUND_PORT, METRICS_PORT, OUTBOUND_PORT};

/// The default bound on a request: a day. A stream that was allowed once is not judged again, so this is the
/// longest that it outlives the policy which allowed it. Clients of watches and websockets reconnect.
pub const STREAM_DURATION: Duration = Duration::from_hours(24);

/// The longest bound on a request that is set: a year. Envoy takes no arbitrary number.
const LONGEST_STREAM: Duration = Duration::from_hours(365 * 24);

/// The default of [`Settings::request_retries`]: enough for one pod that has gone and another that is about
/// to, few enough that a service without a working pod is not asked much more than otherwise.
pub const REQUEST_RETRIES: u32 = 2;

/// The most that [`Settings::request_retries`] may be. Each hop of a call multiplies.
pub const MAX_REQUEST_RETRIES: u32 = 5;

/// Settings that hold for the whole life of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The domain of every identity.
    pub trust_domain: TrustDomain,
    /// The namespace whose MeshConfig counts.
    pub mesh_namespace: MeshNamespace,
    /// The port to which interception redirects connections of the application.
    pub outbound_port: u16,
    /// The port to which interception redirects connections to the application.
    pub inbound_port: u16,
    /// The port of the statistics listener, in clear text; `None` for no such listener.
    pub prometheus_port: Option<u16>,
    /// How long a request to an application may take, its response and an upgraded connection included. Zero
    /// means without end; a year is the most.
    pub stream_duration: Duration,
    /// How often a sidecar sends a request again that was certainly not processed; 0 for never.
    pub request_retries: u32,
}

impl Settings {
    /// OSM's settings: its namespace, and the ports 15001 (outbound), 15003 (inbound) and 15010 (statistics).
    pub fn new(trust_domain: TrustDomain) -> Self {
        Self {
            trust_domain,
            mesh_namespace: MeshNamespace::default(),
            outbound_port: OUTBOUND_PORT,
            inbound_port: INBOUND_PORT,
            prometheus_port: Some(METRICS_PORT),
            stream_duration: STREAM_DURATION,
            request_retries: REQUEST_RETRIES,
        }
    }

    /// The bound on a request, if there is one.
    pub(super) fn longest_stream(&self) -> Option<Duration> {
        Some(self.stream_duration.min(LONGEST_STREAM)).filter(|duration| !duration.is_zero())
    }

    /// Whether a port of the pod is the sidecar's own. No service may lead to it, or other
    /// workloads could call Envoy's admin server.
    pub fn is_sidecars(&self, port: u16) -> bool {
        [self.outbound_port, self.inbound_port, ADMIN_PORT].contains(&port)
            || self.prometheus_port == Some(port)
    }
}
