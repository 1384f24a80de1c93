//! The names of resources, each in one place.
//!
//! A name is what one resource calls another by, and what a person reads in Envoy's `config_dump` and in
//! the statistics, so they follow OSM's customs. Names are unique within their type for one proxy. The
//! names of EDS resources are unique in the whole mesh, since all proxies share one table of them.

use std::collections::BTreeSet;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::catalog::AppProtocol;
use crate::ids::{ServiceAccountId, ServiceId};

/// The listener that takes what the application dials.
pub const OUTBOUND_LISTENER: &str = "outbound-listener";
/// The listener that takes what others dial.
pub const INBOUND_LISTENER: &str = "inbound-listener";
/// The listener that Prometheus reads.
pub const PROMETHEUS_LISTENER: &str = "inbound-prometheus-listener";
/// The cluster that leads to wherever the application dialled, used with egress on.
pub const PASSTHROUGH_CLUSTER: &str = "passthrough-outbound";
/// Envoy's own admin server.
pub const ADMIN_CLUSTER: &str = "envoy-admin";

/// The proxy's own certificate and key. One name for all identities, although the content differs: a
/// proxy is served only its own, and clusters that call it the same can be shared by all proxies.
pub const SERVICE_CERTIFICATE: &str = "service-cert";

/// Whom an inbound connection may come from at all: any identity of the mesh.
pub const INBOUND_VALIDATION: &str = "root-cert-for-mtls-inbound";

/// Whom a connection to a port without HTTP may come from: exactly the identities allowed there.
pub fn inbound_port_validation(port: u16, protocol: AppProtocol) -> String {
    format!("{INBOUND_VALIDATION}:{port}_{}", protocol.as_str())
}

/// Who may answer for a service.
pub fn outbound_validation(service: &ServiceId) -> String {
    format!("root-cert-for-mtls-outbound:{service}")
}

/// A port of a service, as clients see it.
pub fn cluster(service: &ServiceId, port: u16) -> String {
    format!("{service}|{port}")
}

/// A port of a headless service, reached at the pod that the client chose.
pub fn pod_cluster(service: &ServiceId, port: u16) -> String {
    format!("{service}|{port}|pod")
}

/// The endpoints of a service port: all of them, or those of `only` these identities. The identities are
/// in the name, so equal names mean equal endpoints for every proxy.
pub fn endpoints(service: &ServiceId, port: u16, only: Option<&BTreeSet<ServiceAccountId>>) -> String {
    let mut name = cluster(service, port);
    if let Some(accounts) = only {
        let mut hasher = Sha256::new();
        for account in accounts {
            // A line break cannot occur in a name.
            hasher.update(account.to_string().as_bytes());
            hasher.update(b"\n");
        }
        // 64 bits, among the sets of accounts behind one service port.
        name.push('#');
        for byte in &hasher.finalize()[..8] {
            let _ = write!(name, "{byte:02x}");
        }
    }
    name
}

/// A port of the application beside the proxy.
pub fn local_cluster(port: u16, protocol: AppProtocol) -> String {
    format!("local|{port}|{}", protocol.as_str())
}

/// The routes to a service port.
pub fn outbound_route(service: &ServiceId, port: u16) -> String {
    format!("outbound_{service}_{port}")
}

/// The chain that takes connections to a service port.
pub fn outbound_chain(service: &ServiceId, port: u16, protocol: AppProtocol) -> String {
    format!("outbound_{service}_{port}_{}", protocol.as_str())
}

/// The chain that takes connections to those pods of a headless service that listen on `number`; `own` is the
/// [`outbound_chain`] of the service port.
pub fn headless_chain(own: &str, number: u16) -> String {
    format!("{own}_{number}")
}

/// The chain, and the routes, that take connections to a port of the application.
pub fn inbound(port: u16, protocol: AppProtocol) -> String {
    format!("inbound_{port}_{}", protocol.as_str())
}
