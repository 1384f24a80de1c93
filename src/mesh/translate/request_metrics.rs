//! OSM's metrics of requests, as Envoy's own statistics: `osm_request_total` and `osm_request_duration_ms`.
//!
//! Owns their labels. A caller's sidecar counts, as in OSM. Each label has a value that policy or the sidecar
//! itself gives, and none that a request does: the caller's account is in the node of the bootstrap, and the
//! service that took the request in the metadata of its cluster. So callers with one intent share what
//! counts, a kilobyte for each filter chain with requests. The status is the server's, so the number of
//! series is bounded, for each filter chain. The caller's pod is no label: what scrapes a sidecar knows it.

use envoy_types::pb::envoy::config::accesslog::v3 as log;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::extensions::access_loggers::stats::v3 as stats;
use envoy_types::pb::envoy::r#type::v3::Scope;
use envoy_types::util::pack_any;
use log::access_log::ConfigType;
use stats::config::histogram::Unit;
use stats::config::{Counter, Histogram, Stat, Tag};

use super::ordered_struct::DescribedCluster;
use super::proto;
use smc_types::ids::ServiceId;
use smc_xds::names::{METADATA, NODE_NAMESPACE, NODE_SERVICE_ACCOUNT};

/// The most series of each metric for a filter chain, thus for a port of a service with its splits' backends.
/// What does not fit is not counted. A server that answers with each of 900 statuses fills the first, some
/// 128 KiB, and keeps no other service but those beside it in a split from being counted. The second are as
/// many as the backends of a split may be counted.
const MAX_COUNTERS: u32 = 256;
const MAX_HISTOGRAMS: u32 = 64;

/// What the metadata of a service's cluster says.
const KIND: &str = "kind";
const NAMESPACE: &str = "namespace";
const NAME: &str = "name";

/// Counts the requests of a connection manager.
pub(super) fn counting() -> log::AccessLog {
    let of_node = |name: &str| format!("%CEL(xds.node.metadata.{name})%");
    let of_cluster = |name: &str| format!("%CLUSTER_METADATA({METADATA}:{name})%");
    let labels = [
        ("source_namespace", of_node(NODE_NAMESPACE)),
        ("source_kind", "ServiceAccount".to_owned()),
        ("source_name", of_node(NODE_SERVICE_ACCOUNT)),
        ("destination_namespace", of_cluster(NAMESPACE)),
        ("destination_kind", of_cluster(KIND)),
        ("destination_name", of_cluster(NAME)),
    ];
    let labels = labels.map(|(name, value_format)| tag(name, value_format));
    let status = tag("response_code", "%RESPONSE_CODE%".to_owned());
    let stat = |name: &str, tags: Vec<Tag>| Some(Stat { name: name.to_owned(), tags });
    let total = Counter {
        stat: stat("osm_request_total", [status].into_iter().chain(labels.clone()).collect()),
        value_fixed: Some(proto::long_number(1)),
        ..Counter::default()
    };
    let duration = Histogram {
        stat: stat("osm_request_duration_ms", labels.to_vec()),
        unit: Unit::Milliseconds.into(),
        value_format: "%DURATION%".to_owned(),
    };
    let config = stats::Config {
        stats_scope: Some(Scope {
            max_counters: Some(proto::number(MAX_COUNTERS)),
            max_histograms: Some(proto::number(MAX_HISTOGRAMS)),
            // Without `sharing_name`: Envoy 1.40 crashes by it where it validates a configuration.
            ..Scope::default()
        }),
        histograms: vec![duration],
        counters: vec![total],
        ..stats::Config::default()
    };
    log::AccessLog {
        name: "envoy.access_loggers.stats".to_owned(),
        config_type: Some(ConfigType::TypedConfig(pack_any(config))),
        ..log::AccessLog::default()
    }
}

/// The cluster of a service, as the metrics call it where `counted`.
pub(super) fn described(cluster: Cluster, service: &ServiceId, counted: bool) -> DescribedCluster {
    if !counted {
        return DescribedCluster::plain(cluster);
    }
    let says = [(KIND, "Service"), (NAMESPACE, service.namespace()), (NAME, service.name())];
    DescribedCluster::new(cluster, METADATA, says)
}

fn tag(name: &str, value_format: String) -> Tag {
    Tag { name: name.to_owned(), value_format, ..Tag::default() }
}
