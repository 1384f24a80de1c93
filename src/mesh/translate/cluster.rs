//! Clusters (CDS): service ports of the mesh, ports of the application beside the proxy, and the way out.
//!
//! Owns how a cluster connects: protocol, TLS, limits. Where it connects to comes by EDS.

use std::net::{IpAddr, Ipv4Addr};

use cluster::cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbPolicy};
use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::extensions::upstreams::http::v3 as upstreams;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;

use super::{names, proto, tls};
use crate::catalog::AppProtocol;
use crate::ids::ServiceId;
use crate::interception::ADMIN_PORT;

/// How long a TCP and TLS handshake may take. Envoy's default, written out since it is part of the answer
/// to "how fast does a client notice a dead pod".
const CONNECT_TIMEOUT_SECONDS: i64 = 5;

/// A port of a service: mutual TLS to whatever EDS names under `endpoints`.
pub(super) fn service(
    service: &ServiceId,
    port: u16,
    protocol: AppProtocol,
    endpoints: &str,
) -> cluster::Cluster {
    cluster::Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(proto::ads_for_endpoints()),
            service_name: endpoints.to_owned(),
        }),
        lb_policy: LbPolicy::RoundRobin.into(),
        transport_socket: Some(tls::upstream(service)),
        ..base(names::cluster(service, port), protocol)
    }
}

/// A port of a headless service: mutual TLS to the very address and port that the client dialled. Who picks a pod
/// by its address means that pod, and Kubernetes translates no port on the way there.
pub(super) fn pod(service: &ServiceId, port: u16, protocol: AppProtocol) -> cluster::Cluster {
    cluster::Cluster {
        transport_socket: Some(tls::upstream(service)),
        ..original_destination(names::pod_cluster(service, port), protocol)
    }
}

/// A port of the application beside the proxy, in clear text over the loopback interface.
pub(super) fn local(port: u16, protocol: AppProtocol, loopback: IpAddr) -> cluster::Cluster {
    fixed(names::local_cluster(port, protocol), protocol, loopback, port)
}

/// Wherever the application dialled, unchanged. Only with egress on.
pub(super) fn passthrough() -> cluster::Cluster {
    original_destination(names::PASSTHROUGH_CLUSTER.to_owned(), AppProtocol::Tcp)
}

/// Envoy's own admin server, where the bootstrap puts it.
pub(super) fn admin() -> cluster::Cluster {
    fixed(names::ADMIN_CLUSTER.to_owned(), AppProtocol::Http, Ipv4Addr::LOCALHOST.into(), ADMIN_PORT)
}

fn fixed(name: String, protocol: AppProtocol, ip: IpAddr, port: u16) -> cluster::Cluster {
    let host = endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint::Endpoint {
            address: Some(proto::address(ip, port)),
            ..endpoint::Endpoint::default()
        })),
        ..endpoint::LbEndpoint::default()
    };
    cluster::Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        load_assignment: Some(endpoint::ClusterLoadAssignment {
            cluster_name: name.clone(),
            endpoints: vec![endpoint::LocalityLbEndpoints {
                lb_endpoints: vec![host],
                ..endpoint::LocalityLbEndpoints::default()
            }],
            ..endpoint::ClusterLoadAssignment::default()
        }),
        circuit_breakers: Some(limits(0)),
        ..base(name, protocol)
    }
}

fn original_destination(name: String, protocol: AppProtocol) -> cluster::Cluster {
    cluster::Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into())),
        lb_policy: LbPolicy::ClusterProvided.into(),
        ..base(name, protocol)
    }
}

/// What all clusters have in common.
fn base(name: String, protocol: AppProtocol) -> cluster::Cluster {
    cluster::Cluster {
        name,
        connect_timeout: Some(proto::seconds(CONNECT_TIMEOUT_SECONDS)),
        circuit_breakers: Some(limits(u32::MAX)),
        typed_extension_protocol_options: http_options(protocol).into_iter().collect(),
        ..cluster::Cluster::default()
    }
}

/// The mesh sets no limits of its own; Envoy's defaults (1024) would silently be some. But for retries to the
/// application beside the proxy: whether a request is worth another one is for its caller to say, in the caller's own
/// proxy, and should a header that asks for them ever get through (see the connection manager), it gets none.
fn limits(max_retries: u32) -> cluster::CircuitBreakers {
    let unlimited = || Some(proto::number(u32::MAX));
    cluster::CircuitBreakers {
        thresholds: vec![cluster::circuit_breakers::Thresholds {
            max_connections: unlimited(),
            max_pending_requests: unlimited(),
            max_requests: unlimited(),
            max_retries: Some(proto::number(max_retries)),
            ..cluster::circuit_breakers::Thresholds::default()
        }],
        ..cluster::CircuitBreakers::default()
    }
}

/// What a cluster speaks: one entry at most for the map, whose order thus cannot matter. `http` carries on
/// with whatever the client began; `http2` is always HTTP/2.
fn http_options(protocol: AppProtocol) -> Option<(String, Any)> {
    use upstreams::http_protocol_options as options;
    let choice = match protocol {
        AppProtocol::Http => {
            options::UpstreamProtocolOptions::UseDownstreamProtocolConfig(options::UseDownstreamHttpConfig {
                http_protocol_options: Some(core::Http1ProtocolOptions::default()),
                http2_protocol_options: Some(core::Http2ProtocolOptions::default()),
                ..options::UseDownstreamHttpConfig::default()
            })
        }
        AppProtocol::Http2 => {
            options::UpstreamProtocolOptions::ExplicitHttpConfig(options::ExplicitHttpConfig {
                protocol_config: Some(options::explicit_http_config::ProtocolConfig::Http2ProtocolOptions(
                    core::Http2ProtocolOptions::default(),
                )),
            })
        }
        AppProtocol::Tcp | AppProtocol::TcpServerFirst | AppProtocol::Https => return None,
    };
    let options = upstreams::HttpProtocolOptions {
        upstream_protocol_options: Some(choice),
        ..upstreams::HttpProtocolOptions::default()
    };
    Some(("envoy.extensions.upstreams.http.v3.HttpProtocolOptions".to_owned(), pack_any(options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cluster_waits_for_its_endpoints_for_ever() {
        let cluster = service(&"shop/b".parse().unwrap(), 80, AppProtocol::Http, "shop/b|80");
        let source = cluster.eds_cluster_config.unwrap().eds_config.unwrap();
        assert_eq!(source.initial_fetch_timeout, Some(proto::seconds(15)));
    }
}
