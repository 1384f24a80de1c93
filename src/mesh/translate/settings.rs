//! What translation needs to know besides the mesh: the trust domain, the ports, the certificates.
//!
//! Owns these values. Refuses to make any of them: the ports are the contract with `smc init`, the
//! certificates come from the certificate manager.

use crate::ids::TrustDomain;
use crate::interception::{ADMIN_PORT, METRICS_PORT};
use crate::smi::MeshNamespace;

/// Settings that hold for the whole life of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The domain every identity belongs to.
    pub trust_domain: TrustDomain,
    /// The namespace whose MeshConfig counts.
    pub mesh_namespace: MeshNamespace,
    /// Where interception sends what the application dials.
    pub outbound_port: u16,
    /// Where interception sends what others dial.
    pub inbound_port: u16,
    /// Where Prometheus finds Envoy's statistics, in clear text and nothing else; `None` offers none.
    pub prometheus_port: Option<u16>,
}

impl Settings {
    /// What OSM made customary: its namespace, and the ports 15001 out, 15003 in, 15010 statistics.
    pub fn new(trust_domain: TrustDomain) -> Self {
        Self {
            trust_domain,
            mesh_namespace: MeshNamespace::default(),
            outbound_port: 15001,
            inbound_port: 15003,
            prometheus_port: Some(METRICS_PORT),
        }
    }

    /// Whether a port of the pod is the sidecar's own, which no service may lead to: the mesh would carry others to
    /// Envoy's administration.
    pub fn is_sidecars(&self, port: u16) -> bool {
        [self.outbound_port, self.inbound_port, ADMIN_PORT].contains(&port)
            || self.prometheus_port == Some(port)
    }
}
