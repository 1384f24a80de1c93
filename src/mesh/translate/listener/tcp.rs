//! The TCP proxy filter of both listeners.

use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3 as tcp_proxy;
use envoy_types::util::pack_any;
use tcp_proxy::tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight};

use super::filter;
use crate::translate::access_log::Logs;
use crate::translate::route::Destination;
use crate::translate::{affinity, proto};

/// How often a connection is tried, each time at another pod where there is one. Nothing was sent yet.
const CONNECT_ATTEMPTS: u32 = 2;

/// Connects to `destination` as soon as a client has connected. `by_caller` says whether one of its clusters
/// picks its pod by the caller.
pub(super) fn proxy(
    stat_prefix: &str,
    destination: &Destination,
    by_caller: bool,
    log: &Logs,
) -> listener::Filter {
    pack(tcp_proxy::TcpProxy {
        max_connect_attempts: Some(proto::number(CONNECT_ATTEMPTS)),
        hash_policy: by_caller.then(affinity::of_connection).into_iter().collect(),
        ..base(stat_prefix, destination, log)
    })
}

/// Connects to `destination` only after the TLS handshake, so that an application gets no
/// connection of a client that is not allowed.
pub(super) fn proxy_after_handshake(
    stat_prefix: &str,
    destination: &Destination,
    log: &Logs,
) -> listener::Filter {
    pack(tcp_proxy::TcpProxy {
        upstream_connect_mode: tcp_proxy::UpstreamConnectMode::OnDownstreamTlsHandshake.into(),
        // Required with that mode. At 0, early bytes of the client wait in the socket.
        max_early_data_bytes: Some(proto::number(0_u32)),
        ..base(stat_prefix, destination, log)
    })
}

fn base(stat_prefix: &str, destination: &Destination, log: &Logs) -> tcp_proxy::TcpProxy {
    let specifier = match destination {
        Destination::One(cluster) => ClusterSpecifier::Cluster(cluster.clone()),
        Destination::Split(weights) => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: weights
                .iter()
                .map(|(name, weight)| ClusterWeight {
                    name: name.clone(),
                    weight: *weight,
                    metadata_match: None,
                })
                .collect(),
        }),
    };
    tcp_proxy::TcpProxy {
        stat_prefix: stat_prefix.to_owned(),
        cluster_specifier: Some(specifier),
        access_log: log.tcp.clone(),
        // A pool, a listener for events or a broker's client may be silent for days. Envoy's default is an
        // hour. What is gone is noticed by probes.
        idle_timeout: Some(proto::seconds(0)),
        ..tcp_proxy::TcpProxy::default()
    }
}

fn pack(proxy: tcp_proxy::TcpProxy) -> listener::Filter {
    filter("envoy.filters.network.tcp_proxy", pack_any(proxy))
}
