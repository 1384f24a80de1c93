//! Clusters (CDS): service ports of the mesh, ports of the application beside the proxy, and egress.
//!
//! Owns how a cluster connects: protocol, TLS, limits. The addresses come by EDS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cluster::cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbPolicy};
use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::extensions::clusters::common::dns::v3 as dns;
use envoy_types::pb::envoy::extensions::clusters::dns::v3::{DnsCluster, dns_cluster::RefreshRate};
use envoy_types::pb::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;
use envoy_types::pb::envoy::extensions::upstreams::http::v3 as upstreams;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;

use super::proto::{self, Families};
use super::{affinity, liveness, messages, retry, tls};
use smc_model::connection_settings::ConnectionSettings;
use smc_model::outside_server::{ExtensionServer, OutsideServer, ServerHost};
use smc_model::topology::SessionAffinity;
use smc_types::ids::ServiceId;
use smc_types::ports::ADMIN_PORT;
use smc_types::proxy_class::AppProtocol;
use smc_xds::names;

/// How long a TCP and TLS handshake may take. Envoy's default, stated because it decides how fast a
/// client notices a dead pod.
const CONNECT_TIMEOUT_SECONDS: i64 = 5;

/// What people declared for the calls to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Limits<'a> {
    /// What it can bear.
    pub(super) connections: ConnectionSettings,
    /// Whether calls are sent again because a person asked for it.
    pub(super) retried: bool,
    /// The curves that are offered; Envoy's own if none.
    pub(super) curves: &'a [&'a str],
}

/// A port of a service: mutual TLS to the addresses in the EDS resource `endpoints`.
pub(super) fn service(
    service: &ServiceId,
    port: u16,
    protocol: AppProtocol,
    endpoints: &str,
    affinity: SessionAffinity,
    limits: Limits<'_>,
) -> cluster::Cluster {
    let (lb_policy, lb_config) = affinity::balancer(affinity);
    cluster::Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(proto::ads_for_endpoints()),
            service_name: endpoints.to_owned(),
        }),
        lb_policy: lb_policy.into(),
        lb_config,
        common_lb_config: Some(liveness::balanced()),
        outlier_detection: Some(liveness::ejection()),
        ..to_sidecars(service, protocol, limits, base(names::cluster(service, port)))
    }
}

/// A port of a headless service: mutual TLS to the address and port that the client dialled,
/// because a client that dials a pod's address means that pod, and Kubernetes translates no port.
pub(super) fn pod(
    service: &ServiceId,
    port: u16,
    protocol: AppProtocol,
    limits: Limits<'_>,
) -> cluster::Cluster {
    to_sidecars(service, protocol, limits, original_destination(names::pod_cluster(service, port)))
}

/// Mutual TLS with the pods of a service, whose nodes may be gone without a word.
fn to_sidecars(
    service: &ServiceId,
    protocol: AppProtocol,
    limits: Limits<'_>,
    cluster: cluster::Cluster,
) -> cluster::Cluster {
    let settings = limits.connections;
    let common = core::HttpProtocolOptions {
        max_requests_per_connection: settings.max_requests_per_connection.map(proto::number),
        ..messages::answer_limits()
    };
    cluster::Cluster {
        transport_socket: Some(tls::upstream(service, limits.curves)),
        upstream_connection_options: Some(liveness::of_connections()),
        typed_extension_protocol_options: http_options(protocol, common, liveness::http2())
            .into_iter()
            .collect(),
        connect_timeout: settings.connect_timeout.map(proto::duration).or(cluster.connect_timeout),
        circuit_breakers: Some(breakers(limits, protocol)),
        ..cluster
    }
}

/// The limits of a service's port. Each caller's sidecar counts for itself.
fn breakers(limits: Limits<'_>, protocol: AppProtocol) -> cluster::CircuitBreakers {
    let Limits { connections: settings, retried, .. } = limits;
    let limit = |most: Option<u32>| Some(proto::number(most.unwrap_or(u32::MAX)));
    let mut breakers = self::limits(u32::MAX);
    for threshold in &mut breakers.thresholds {
        threshold.max_connections = limit(settings.max_connections);
        // Envoy would take the limits of requests for limits of connections.
        if !protocol.is_http() {
            continue;
        }
        threshold.max_retries = limit(settings.max_retries);
        threshold.max_pending_requests = limit(settings.max_pending_requests);
        threshold.max_requests = limit(settings.max_requests);
        // With a budget, Envoy heeds no number.
        threshold.retry_budget = (retried && settings.max_retries.is_none()).then(retry::budget);
    }
    breakers
}

/// How long, in seconds, a connection to an application is kept without a request. A server that closes one
/// at the moment of a request makes the request fail, since a sidecar cannot know whether it was read, and
/// those that are widely used wait for two seconds at least. A new connection within the pod takes some 100
/// µs.
const IDLE_SECONDS: i64 = 1;

/// HTTP to the application beside the proxy.
fn beside(protocol: AppProtocol) -> Option<(String, Any)> {
    let common = core::HttpProtocolOptions {
        idle_timeout: Some(proto::seconds(IDLE_SECONDS)),
        ..messages::answer_limits()
    };
    http_options(protocol, common, messages::http2())
}

/// A port of the application beside the proxy, in clear text over the loopback interface.
pub(super) fn local(port: u16, protocol: AppProtocol, loopback: IpAddr) -> cluster::Cluster {
    cluster::Cluster {
        typed_extension_protocol_options: beside(protocol).into_iter().collect(),
        ..fixed(names::local_cluster(port, protocol), loopback, port)
    }
}

/// A port of the application beside the proxy, in clear text at the pod's own address, which is the one that
/// the caller's sidecar dialled. So no address is in it, and all pods of a class share it.
///
/// The connection comes from the loopback address. That tells it from the proxy's calls to its own pod by a
/// service, which interception sends to the inbound listener. The kernel lets no connection from there leave
/// the pod, whatever the destination.
pub(super) fn own_address(port: u16, protocol: AppProtocol) -> cluster::Cluster {
    let source = |ip: IpAddr| proto::socket_address(ip, 0);
    cluster::Cluster {
        upstream_bind_config: Some(core::BindConfig {
            source_address: Some(source(Ipv4Addr::LOCALHOST.into())),
            extra_source_addresses: vec![core::ExtraSourceAddress {
                address: Some(source(Ipv6Addr::LOCALHOST.into())),
                ..core::ExtraSourceAddress::default()
            }],
            ..core::BindConfig::default()
        }),
        circuit_breakers: Some(limits(0)),
        typed_extension_protocol_options: beside(protocol).into_iter().collect(),
        ..original_destination(names::local_cluster(port, protocol))
    }
}

/// The original destination, in the application's own protocol. Only with egress on.
pub(super) fn passthrough() -> cluster::Cluster {
    cluster::Cluster {
        upstream_connection_options: Some(liveness::of_connections()),
        ..original_destination(names::PASSTHROUGH_CLUSTER.to_owned())
    }
}

/// How often, in seconds, a name is resolved again at most, and in any case where its answers have no time to
/// live, as those of the pod's own file; how much later, at random, than its time to live says; and how long
/// after a failure, at first and at most.
const DNS_SECONDS: i64 = 5;
const DNS_JITTER_SECONDS: i64 = 1;
const DNS_FAILURE_SECONDS: (i64, i64) = (1, 10);

/// A host outside of the mesh, in the application's own protocol, at the addresses that its name has. A name
/// that does not resolve (yet) holds nothing up but its own connections.
pub(super) fn resolved(
    name: String,
    host: &str,
    port: u16,
    protocol: AppProtocol,
    families: Families,
) -> cluster::Cluster {
    use dns::DnsLookupFamily;
    let family = match (families.ipv6_only, families.dual) {
        (true, _) => DnsLookupFamily::V6Only,
        (_, true) => DnsLookupFamily::V4Preferred,
        _ => DnsLookupFamily::V4Only,
    };
    let (soon, late) = DNS_FAILURE_SECONDS;
    let dns = DnsCluster {
        dns_refresh_rate: Some(proto::seconds(DNS_SECONDS)),
        dns_failure_refresh_rate: Some(RefreshRate {
            base_interval: Some(proto::seconds(soon)),
            max_interval: Some(proto::seconds(late)),
        }),
        respect_dns_ttl: true,
        dns_min_refresh_rate: Some(proto::seconds(DNS_SECONDS)),
        dns_jitter: Some(proto::seconds(DNS_JITTER_SECONDS)),
        dns_lookup_family: family.into(),
        typed_dns_resolver_config: Some(as_it_is_written()),
        ..DnsCluster::default()
    };
    cluster::Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(
            cluster::cluster::CustomClusterType {
                name: "envoy.cluster.dns".to_owned(),
                typed_config: Some(pack_any(dns)),
            },
        )),
        load_assignment: Some(assignment(&name, host.to_owned(), port)),
        wait_for_warm_on_init: Some(proto::switch(false)),
        ..to_strangers(protocol, base(name))
    }
}

/// A resolver that asks for a name and nothing else. Otherwise the search domains of the pod came first, and
/// a Service `example` in a namespace `com` would be `example.com`.
fn as_it_is_written() -> core::TypedExtensionConfig {
    let options =
        core::DnsResolverOptions { no_default_search_domain: true, ..core::DnsResolverOptions::default() };
    core::TypedExtensionConfig {
        name: "envoy.network.dns_resolver.cares".to_owned(),
        typed_config: Some(pack_any(CaresDnsResolverConfig {
            dns_resolver_options: Some(options),
            ..CaresDnsResolverConfig::default()
        })),
    }
}

/// The original destination outside of the mesh, in the application's own protocol.
pub(super) fn dialled(name: String, protocol: AppProtocol) -> cluster::Cluster {
    to_strangers(protocol, original_destination(name))
}

/// A server that sidecars themselves call. Without one, nothing answers.
pub(super) fn outside(
    name: &str,
    server: Option<&OutsideServer>,
    protocol: AppProtocol,
    families: Families,
) -> cluster::Cluster {
    let name = name.to_owned();
    match server {
        Some(OutsideServer { host: ServerHost::Name(host), port }) => {
            resolved(name, host, *port, protocol, families)
        }
        Some(OutsideServer { host: ServerHost::Address(ip), port }) => {
            to_strangers(protocol, fixed(name, *ip, *port))
        }
        None => cluster::Cluster {
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
            ..to_strangers(protocol, base(name))
        },
    }
}

/// How many connections, and how many reports that wait for one or for an answer, a sidecar has with a
/// collector. One of traces has five spans, some 5 KB, and one of logs up to 16 KiB and one record more; what
/// does not fit is lost. A collector that takes connections and does not answer would have one for each
/// report otherwise.
const COLLECTOR_CONNECTIONS: u32 = 4;
const COLLECTOR_REPORTS: u32 = 64;

/// The server that takes traces.
pub(super) fn trace_collector(name: &str, server: &OutsideServer, families: Families) -> cluster::Cluster {
    collector(outside(name, Some(server), AppProtocol::Http, families))
}

/// The server that takes what is logged.
pub(super) fn log_collector(name: &str, server: &ExtensionServer, families: Families) -> cluster::Cluster {
    cluster::Cluster {
        connect_timeout: Some(proto::duration(server.connect_timeout)),
        ..collector(outside(name, Some(&server.server), AppProtocol::Http2, families))
    }
}

fn collector(cluster: cluster::Cluster) -> cluster::Cluster {
    let mut breakers = limits(0);
    for threshold in &mut breakers.thresholds {
        threshold.max_connections = Some(proto::number(COLLECTOR_CONNECTIONS));
        threshold.max_pending_requests = Some(proto::number(COLLECTOR_REPORTS));
        threshold.max_requests = Some(proto::number(COLLECTOR_REPORTS));
    }
    cluster::Cluster { circuit_breakers: Some(breakers), ..cluster }
}

/// Servers that are no sidecars. They get no pings, which some take for an attack (gRPC's `too_many_pings`).
fn to_strangers(protocol: AppProtocol, cluster: cluster::Cluster) -> cluster::Cluster {
    cluster::Cluster {
        upstream_connection_options: Some(liveness::of_connections()),
        typed_extension_protocol_options: http_options(
            protocol,
            messages::answer_limits(),
            messages::http2(),
        )
        .into_iter()
        .collect(),
        ..cluster
    }
}

/// How many readers of the statistics Envoy's admin server has at a time, and how many wait for their turn.
/// It renders a whole answer, some 10 MB for 300 clusters, before it looks at anything else, and keeps it
/// until its reader has it.
const READERS: u32 = 2;
const WAITING_READERS: u32 = 16;

/// Envoy's own admin server, at the address in the bootstrap.
pub(super) fn admin() -> cluster::Cluster {
    let mut limits = limits(0);
    for limit in &mut limits.thresholds {
        limit.max_connections = Some(proto::number(READERS));
        limit.max_pending_requests = Some(proto::number(WAITING_READERS));
    }
    cluster::Cluster {
        circuit_breakers: Some(limits),
        typed_extension_protocol_options: http_options(
            AppProtocol::Http,
            messages::answer_limits(),
            core::Http2ProtocolOptions::default(),
        )
        .into_iter()
        .collect(),
        ..fixed(names::ADMIN_CLUSTER.to_owned(), Ipv4Addr::LOCALHOST.into(), ADMIN_PORT)
    }
}

/// One host at this address, or of this name.
fn assignment(cluster: &str, address: String, port: u16) -> endpoint::ClusterLoadAssignment {
    let host = endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint::Endpoint {
            address: Some(proto::address_of(address, port)),
            ..endpoint::Endpoint::default()
        })),
        ..endpoint::LbEndpoint::default()
    };
    endpoint::ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: vec![endpoint::LocalityLbEndpoints {
            lb_endpoints: vec![host],
            ..endpoint::LocalityLbEndpoints::default()
        }],
        ..endpoint::ClusterLoadAssignment::default()
    }
}

fn fixed(name: String, ip: IpAddr, port: u16) -> cluster::Cluster {
    cluster::Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        load_assignment: Some(assignment(&name, ip.to_string(), port)),
        circuit_breakers: Some(limits(0)),
        ..base(name)
    }
}

fn original_destination(name: String) -> cluster::Cluster {
    cluster::Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into())),
        lb_policy: LbPolicy::ClusterProvided.into(),
        ..base(name)
    }
}

/// The fields of all clusters; without HTTP, which each says for itself.
fn base(name: String) -> cluster::Cluster {
    cluster::Cluster {
        name,
        connect_timeout: Some(proto::seconds(CONNECT_TIMEOUT_SECONDS)),
        circuit_breakers: Some(limits(u32::MAX)),
        ..cluster::Cluster::default()
    }
}

/// Circuit breakers without limits, because Envoy's defaults (1024) would limit silently. Retries
/// to the application beside the proxy are the exception: the caller's proxy decides on retries.
/// Should a header that asks for them ever pass the connection manager, it has no effect.
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

/// The HTTP protocol of a cluster. `http` uses the version of the downstream connection, `http2` is always
/// HTTP/2; `common` is what both have in common. The result is at most one entry of the map, so the order of
/// the map cannot matter.
fn http_options(
    protocol: AppProtocol,
    common: core::HttpProtocolOptions,
    http2: core::Http2ProtocolOptions,
) -> Option<(String, Any)> {
    use upstreams::http_protocol_options as options;
    let choice = match protocol {
        AppProtocol::Http => {
            options::UpstreamProtocolOptions::UseDownstreamProtocolConfig(options::UseDownstreamHttpConfig {
                http_protocol_options: Some(messages::http1()),
                http2_protocol_options: Some(http2),
                ..options::UseDownstreamHttpConfig::default()
            })
        }
        AppProtocol::Http2 => {
            options::UpstreamProtocolOptions::ExplicitHttpConfig(options::ExplicitHttpConfig {
                protocol_config: Some(options::explicit_http_config::ProtocolConfig::Http2ProtocolOptions(
                    http2,
                )),
            })
        }
        AppProtocol::Tcp | AppProtocol::TcpServerFirst | AppProtocol::Https => return None,
    };
    let options = upstreams::HttpProtocolOptions {
        common_http_protocol_options: Some(common),
        upstream_protocol_options: Some(choice),
        ..upstreams::HttpProtocolOptions::default()
    };
    Some(("envoy.extensions.upstreams.http.v3.HttpProtocolOptions".to_owned(), pack_any(options)))
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use upstreams::http_protocol_options::explicit_http_config::ProtocolConfig;

    use super::*;

    #[test]
    fn every_cluster_of_http_bounds_what_a_stream_keeps_for_a_slow_reader() {
        use upstreams::http_protocol_options::UpstreamProtocolOptions::{
            AutoConfig, ExplicitHttpConfig, UseDownstreamProtocolConfig,
        };
        let id: ServiceId = "shop/b".parse().unwrap();
        for protocol in [AppProtocol::Http, AppProtocol::Http2] {
            let balanced = service(&id, 80, protocol, "shop/b|80", SessionAffinity::None, Limits::default());
            let beside = local(80, protocol, Ipv4Addr::LOCALHOST.into());
            for cluster in
                [balanced, pod(&id, 80, protocol, Limits::default()), beside, own_address(80, protocol)]
            {
                let options = cluster.typed_extension_protocol_options.into_values().next().unwrap();
                let options = upstreams::HttpProtocolOptions::decode(&*options.value).unwrap();
                let http2 = match options.upstream_protocol_options.unwrap() {
                    UseDownstreamProtocolConfig(config) => config.http2_protocol_options,
                    ExplicitHttpConfig(config) => match config.protocol_config {
                        Some(ProtocolConfig::Http2ProtocolOptions(http2)) => Some(http2),
                        _ => None,
                    },
                    AutoConfig(_) => None,
                };
                let window = http2.unwrap().initial_stream_window_size.unwrap().value;
                assert!(window <= 1 << 20, "{}: {window}", cluster.name);
            }
        }
    }

    #[test]
    fn a_lost_node_is_noticed_by_every_cluster_that_leads_to_others() {
        use AppProtocol::{Http, Http2, Https, Tcp, TcpServerFirst};
        let id: ServiceId = "shop/b".parse().unwrap();
        let loopback = Ipv4Addr::LOCALHOST.into();
        for protocol in [Http, Http2, Https, Tcp, TcpServerFirst] {
            for affinity in [SessionAffinity::None, SessionAffinity::ClientIp] {
                let balanced = service(&id, 80, protocol, "shop/b|80", affinity, Limits::default());
                let ejection = balanced.outlier_detection.clone().unwrap();
                assert!(ejection.split_external_local_origin_errors, "answers do not count");
                assert_eq!(ejection.enforcing_consecutive_5xx, Some(proto::number(0_u32)));
                for cluster in [balanced, pod(&id, 80, protocol, Limits::default()), passthrough()] {
                    let probed = cluster.upstream_connection_options.unwrap().tcp_keepalive;
                    assert_eq!(probed, Some(liveness::tcp_keepalive()), "{}", cluster.name);
                }
            }
            for beside in [local(80, protocol, loopback), own_address(80, protocol)] {
                assert_eq!((beside.upstream_connection_options, beside.outlier_detection), (None, None));
            }
        }
    }

    #[test]
    fn no_cluster_waits_for_its_endpoints_for_ever() {
        let cluster = service(
            &"shop/b".parse().unwrap(),
            80,
            AppProtocol::Http,
            "shop/b|80",
            SessionAffinity::None,
            Limits::default(),
        );
        let source = cluster.eds_cluster_config.unwrap().eds_config.unwrap();
        assert_eq!(source.initial_fetch_timeout, Some(proto::seconds(15)));
    }
}
