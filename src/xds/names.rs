//! The names of Envoy resources.
//!
//! Owns their spelling. Names follow OSM's, since people read them in Envoy's `config_dump` and
//! statistics. A name is unique within its type for one proxy; the name of an EDS resource is
//! unique in the mesh, because all proxies share one table of them. `smc_mesh::lint` spells the
//! names that it knows itself, so that it can find a wrong one.

use std::collections::BTreeSet;
use std::fmt::Display;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use smc_types::ids::{ServiceAccountId, ServiceId};
use smc_types::proxy_class::AppProtocol;

/// The listener of connections from the application.
pub const OUTBOUND_LISTENER: &str = "outbound-listener";
/// The listener of connections to the application.
pub const INBOUND_LISTENER: &str = "inbound-listener";
/// The listener of Envoy's statistics, for Prometheus.
pub const PROMETHEUS_LISTENER: &str = "inbound-prometheus-listener";
/// The cluster that connects to the address that the application dialled. Only with egress on.
pub const PASSTHROUGH_CLUSTER: &str = "passthrough-outbound";
/// The cluster of Envoy's own admin server.
pub const ADMIN_CLUSTER: &str = "envoy-admin";
/// The configuration of the filter that asks a server whether a request may pass, and the cluster of that
/// server.
pub const EXTERNAL_AUTHORIZATION: &str = "external-authorization";
/// The cluster of the collector for what the inbound listener reports. Each half of a snapshot has its own,
/// so that neither waits for the other.
pub const INBOUND_TRACES: &str = "inbound-traces";
/// The cluster of the collector for what the outbound listener reports.
pub const OUTBOUND_TRACES: &str = "outbound-traces";
/// The cluster of the collector that is sent what the inbound listener logs, and what its records are called.
pub const INBOUND_LOGS: &str = "inbound-logs";
/// The same for the outbound listener.
pub const OUTBOUND_LOGS: &str = "outbound-logs";

/// The namespace of what resources say of themselves as Envoy's metadata.
pub const METADATA: &str = "mesh.smc.dev";
/// What the metadata of a sidecar's node says: the namespace and the name of its service account.
pub const NODE_NAMESPACE: &str = "namespace";
/// See [`NODE_NAMESPACE`].
pub const NODE_SERVICE_ACCOUNT: &str = "service_account";

/// The path of a sidecar's statistics.
pub const STATISTICS_PATH: &str = "/stats/prometheus";
/// The path and query at a sidecar's statistics ([`smc_types::ports::METRICS_PORT`]) that ask for the
/// requests to each cluster, of those to which any was sent: `^cluster\..*\.upstream_rq_total$`. Envoy counts
/// a TCP connection here, too. It counts what was sent over a connection that was made, so an attempt that
/// reached no server is not among it (`ConnPoolImplBase::attachStreamToClient`).
pub const CALLS_PATH: &str = "/stats/prometheus?usedonly&filter=%5Ecluster%5C..*%5C.upstream_rq_total%24";

/// The response header by which a sidecar tells the caller's that the application was never sent the
/// request. Only sidecars set it: theirs remove it from what applications answer.
pub const NOT_PROCESSED_HEADER: &str = "x-smc-not-processed";

/// The secret with the proxy's own certificate and key. All identities use one name, although the
/// content differs: a proxy is served only its own, and clusters that refer to it are equal for all
/// proxies.
pub const SERVICE_CERTIFICATE: &str = "service-cert";

/// The validation context of inbound HTTP connections: any identity of the mesh.
pub const INBOUND_VALIDATION: &str = "root-cert-for-mtls-inbound";

/// The validation context of inbound connections to a port without HTTP: the identities that are
/// allowed there.
pub fn inbound_port_validation(port: u16, protocol: AppProtocol) -> String {
    format!("{INBOUND_VALIDATION}:{port}_{}", protocol.as_str())
}

/// The validation context of connections to a service: the identities behind it.
pub fn outbound_validation(service: &ServiceId) -> String {
    format!("root-cert-for-mtls-outbound:{service}")
}

/// The validation context of connections from an ingress to a port: the names that it may have.
pub fn ingress_validation(port: u16) -> String {
    format!("root-cert-for-ingress:{port}")
}

/// The validation context of connections from an ingress to a port where not each client has a certificate:
/// any of the mesh's CA.
pub fn optional_ingress_validation(port: u16) -> String {
    format!("root-cert-for-optional-ingress:{port}")
}

/// The cluster of a service port.
pub fn cluster(service: &ServiceId, port: u16) -> String {
    format!("{service}|{port}")
}

/// The cluster of a headless service port, which connects to the pod that the application dialled.
pub fn pod_cluster(service: &ServiceId, port: u16) -> String {
    format!("{service}|{port}|pod")
}

/// The service port of a [`cluster`] or [`pod_cluster`]; `None` for any other cluster.
pub fn service_port(cluster: &str) -> Option<(ServiceId, u16)> {
    let (service, port) = cluster.split_once('|')?;
    let port = port.strip_suffix("|pod").unwrap_or(port);
    Some((service.parse().ok()?, port.parse().ok()?))
}

/// The endpoints of a service port: all of them, or those of `only` these identities. The name
/// holds a hash of the identities, so equal names mean equal endpoints for every proxy.
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
        name.push_str(&HEXLOWER.encode(&hasher.finalize()[..8]));
    }
    name
}

/// The cluster of a port of the application beside the proxy.
pub fn local_cluster(port: u16, protocol: AppProtocol) -> String {
    format!("local|{port}|{}", protocol.as_str())
}

/// The route configuration of a service port.
pub fn outbound_route(service: &ServiceId, port: u16) -> String {
    format!("outbound_{service}_{port}")
}

/// The filter chain of connections to a service port.
pub fn outbound_chain(service: &ServiceId, port: u16, protocol: AppProtocol) -> String {
    format!("outbound_{service}_{port}_{}", protocol.as_str())
}

/// The filter chain of connections to those pods of a headless service that listen on `number`. `own` is the
/// [`outbound_chain`] of the service port.
pub fn headless_chain(own: &str, number: u16) -> String {
    format!("{own}_{number}")
}

/// The filter chain, and the route configuration, of connections out of the mesh that are dialled to this
/// port in a network.
pub fn egress(port: u16, network: impl Display) -> String {
    format!("egress_{port}_{network}")
}

/// The filter chain of TLS that asks for `host` among those of `chain`, an [`egress`].
pub fn egress_tls(chain: &str, host: impl Display) -> String {
    format!("{chain}_{host}")
}

/// The cluster of a host outside of the mesh that the sidecar resolves.
pub fn egress_host(host: &str, port: u16, http: bool) -> String {
    format!("egress|{host}|{port}|{}", if http { "http" } else { "tcp" })
}

/// The cluster that connects to the address outside of the mesh that the application dialled.
pub fn egress_dialled(http: bool) -> String {
    format!("egress-dialled|{}", if http { "http" } else { "tcp" })
}

/// The filter chain, and the route configuration, of a port of the application.
pub fn inbound(port: u16, protocol: AppProtocol) -> String {
    format!("inbound_{port}_{}", protocol.as_str())
}

/// A filter that limits the rate of requests on a filter chain, by the first limit in it.
pub fn rate_limit(chain: &str, first: &str) -> String {
    format!("rate_limit_{chain}_{first}")
}

/// A filter that limits the rate of connections to a service on a filter chain.
pub fn connection_limit(chain: &str, service: &ServiceId) -> String {
    format!("connection_limit_{chain}_{service}")
}

/// The filter chain, and the route configuration, of connections from an ingress to a port of the
/// application.
pub fn ingress(port: u16, transport: &str) -> String {
    format!("ingress_{port}_{transport}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_of_a_service_port_names_it_and_no_other_cluster_does() {
        let service: ServiceId = "shop/web".parse().unwrap();
        for name in [cluster(&service, 80), pod_cluster(&service, 80)] {
            assert_eq!(service_port(&name), Some((service.clone(), 80)), "{name}");
        }
        let local = local_cluster(80, AppProtocol::Http);
        for name in [PASSTHROUGH_CLUSTER, ADMIN_CLUSTER, &local, "shop/web|http", "shop/web|70000", "shop|80"]
        {
            assert_eq!(service_port(name), None, "{name}");
        }
    }
}
