//! The statistics that a sidecar does not make.
//!
//! Owns what is left out: what neither SMC nor its documents use, of services that a sidecar may call. Envoy
//! has some 256 statistics for each port of these, called or not. Of those that are made, it makes the ones
//! that count calls when there are calls. What concerns the sidecar itself, its inbound side and the
//! controller is all made, and so is what shows how the controller serves it: updates, taken and refused.

use serde::Serialize;

use crate::json_object::{Fields, Object, object};

/// The clusters of services: `cluster.NAMESPACE/NAME|PORT`.
const CLUSTERS: &str = r"cluster\..*/.*\|\d+[^.]*";

/// What outbound TCP proxies count, which the clusters count as well.
const TCP_PROXIES: &str = "tcp.outbound_";

/// The same of outbound connection managers, but for their subscriptions (`rds`).
const CONNECTION_MANAGERS: &str = r"http\.outbound_[^.]*\.([^r]|r[^d]|rd[^s]).*";

/// The same of connection managers, as a listener counts it.
const OF_LISTENERS: &str = r"listener\..*\.http\.outbound_.*";

/// The subscriptions to the endpoints, the routes and the roots of services.
const SUBSCRIPTIONS: [&str; 3] =
    [CLUSTERS, r"http\.outbound_[^.]*\.rds\..*", r"sds\.root-cert-for-mtls-outbound.*"];

/// What a subscription counts beside the updates that were taken and refused.
const OF_SUBSCRIPTIONS: [&str; 5] = [
    "assignment_.*",
    "config_reload.*",
    "init_fetch_timeout",
    "update_(attempt|duration|empty|failure|no_rebuild|time)",
    "version.*",
];

/// What a cluster of a service counts beside its subscription.
const OF_CLUSTERS: [&str; 10] = [
    "warming_state",
    // Services have no bounds by default, no zones, no subsets, and no weights of endpoints.
    "circuit_breakers\\..*",
    "default\\.total_match_count",
    "lb_.*",
    "max_host_weight",
    "membership_(change|degraded|excluded)",
    // Connections that fail eject an endpoint and nothing else does. How many are ejected, and were, stays.
    "outlier_detection\\.ejections_(consecutive_5xx|detected_.*|enforced_[a-su-z].*|overflow|success_rate)",
    // When the sidecar's own certificate ends is the same for each service, and the controller's business.
    "ssl\\.certificate\\..*",
    "ssl\\.(ocsp_.*|no_certificate|fail_verify_cert_hash)",
    "client_ssl_socket_factory\\..*",
];

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Pattern {
    Prefix(&'static str),
    SafeRegex { regex: String },
}

/// What makes all statistics where it is merged with a bootstrap, as Envoy does with its `--config-yaml`.
pub(crate) fn all() -> Object<impl Fields> {
    object! { "stats_config": { "stats_matcher": { "reject_all": false } } }
}

/// The bootstrap's `stats_config`.
pub(crate) fn stats_config() -> impl Serialize {
    let of_clusters = format!(r"{CLUSTERS}\.({})", OF_CLUSTERS.join("|"));
    let of_subscriptions = format!(r"({})\.({})", SUBSCRIPTIONS.join("|"), OF_SUBSCRIPTIONS.join("|"));
    let expressions =
        [CONNECTION_MANAGERS.to_owned(), OF_LISTENERS.to_owned(), of_clusters, of_subscriptions];
    let expressions = expressions.map(|regex| Pattern::SafeRegex { regex });
    let patterns: Vec<_> = std::iter::once(Pattern::Prefix(TCP_PROXIES)).chain(expressions).collect();
    object! { "stats_matcher": { "exclusion_list": { "patterns": patterns } } }
}
