//! The TCP proxy, as both listeners use it.

use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3 as tcp_proxy;
use envoy_types::util::pack_any;
use tcp_proxy::tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight};

use super::filter;
use crate::translate::access_log;
use crate::translate::route::Destination;

/// Carries bytes to `destination`.
pub(super) fn proxy(stat_prefix: &str, destination: &Destination) -> listener::Filter {
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
    filter(
        "envoy.filters.network.tcp_proxy",
        pack_any(tcp_proxy::TcpProxy {
            stat_prefix: stat_prefix.to_owned(),
            cluster_specifier: Some(specifier),
            access_log: vec![access_log::tcp()],
            ..tcp_proxy::TcpProxy::default()
        }),
    )
}
