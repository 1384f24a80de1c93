//! The part of Envoy's bootstrap that answers for the probes of a pod.
//!
//! Owns one listener, and the clusters behind it. It takes exactly the requests that the kubelet sends: a
//! stranger can ask what the kubelet asks, and nothing else of the application. It is an argument of the
//! container and no part of the Secret, since it holds no secret and follows from the Pod.

use serde_json::{Value, json};

use super::probe_target::Target;
use super::probes::{PROBE_PORT, Targets, Timing};
use crate::api::osm::LocalProxyMode;
use crate::bootstrap::connection_limit_key;
use crate::interception::ADMIN_PORT;

/// Where the sidecar says at the probes' port that it is ready: it has its configuration.
pub const READY_PATH: &str = "/ready";

/// The name of the listener.
const LISTENER: &str = "smc-probes";

/// The most connections to the listener: the kubelet has one at a time for each probe.
const CONNECTIONS: u32 = 64;

/// Stands for the pod's address, which the kubelet puts in the place of the variable when the container
/// starts.
pub(super) const POD_IP: &str = "POD_IP";

/// The text of the argument `--config-yaml`. The kubelet replaces `$(NAME)` in it and reads `$$` as `$`.
pub(super) fn argument(targets: &Targets, mode: LocalProxyMode) -> String {
    let placeholder = "\u{1}";
    let address = match mode {
        LocalProxyMode::Localhost => "127.0.0.1",
        LocalProxyMode::PodIp => placeholder,
    };
    let text = config(targets, address, mode).to_string();
    // JSON has no such character within a text, but its escape.
    text.replace('$', "$$").replace("\\u0001", &format!("$({POD_IP})"))
}

fn config(targets: &Targets, address: &str, mode: LocalProxyMode) -> Value {
    let admin = json!({
        "name": "smc-admin", "type": "STATIC", "connect_timeout": "1s",
        "load_assignment": assignment("smc-admin", "127.0.0.1", ADMIN_PORT),
    });
    let clusters: Vec<_> = std::iter::once(admin)
        .chain(plain_clusters(targets, address, mode))
        .chain(targets.iter().filter_map(|(target, timing)| checked(target, *timing, address, mode)))
        .collect();
    json!({
        "static_resources": { "listeners": [listener(targets)], "clusters": clusters },
        "layered_runtime": { "layers": [
            { "name": LISTENER, "static_layer": { connection_limit_key(LISTENER): CONNECTIONS } },
        ] },
    })
}

fn listener(targets: &Targets) -> Value {
    let ready = route(READY_PATH, READY_PATH, READY_PATH, "smc-admin");
    let routes = std::iter::once(ready).chain(targets.keys().filter_map(|target| match target {
        Target::Http { port, .. } => Some(passed_on(target, &format!("/http/{port}/"))),
        Target::Https { port, .. } => Some(passed_on(target, &format!("/https/{port}/"))),
        Target::Tcp { .. } | Target::Grpc { .. } => None,
    }));
    let routes: Vec<_> = routes.collect();
    let checks = targets.keys().filter(|target| is_checked(target)).map(|target| {
        json!({
            "name": "envoy.filters.http.health_check",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck",
                "pass_through_mode": false,
                "cluster_min_healthy_percentages": { cluster_name(target): { "value": 100 } },
                "headers": [exactly(":path", &target.path())],
            },
        })
    });
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": true,
        },
    });
    let filters: Vec<_> = checks.chain(std::iter::once(router)).collect();
    json!({
        "name": LISTENER,
        "address": { "socket_address": { "address": "::", "port_value": PROBE_PORT, "ipv4_compat": true } },
        "filter_chains": [{ "filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": LISTENER,
                "codec_type": "HTTP1",
                "generate_request_id": false,
                "skip_xff_append": true,
                "server_header_transformation": "PASS_THROUGH",
                // The kubelet opens a connection for each probe.
                "common_http_protocol_options": { "idle_timeout": "5s" },
                "request_headers_timeout": "5s",
                "request_timeout": "5s",
                "route_config": {
                    "name": LISTENER,
                    "virtual_hosts": [{ "name": LISTENER, "domains": ["*"], "routes": routes }],
                },
                "http_filters": filters,
            },
        }] }],
    })
}

fn is_checked(target: &Target) -> bool {
    matches!(target, Target::Tcp { .. } | Target::Grpc { .. })
}

fn passed_on(target: &Target, prefix: &str) -> Value {
    route(&target.path(), prefix, "/", &cluster_name(target))
}

/// A route for the one request `GET path`, whose `prefix` is replaced.
fn route(path: &str, prefix: &str, replaced_by: &str, cluster: &str) -> Value {
    json!({
        "match": { "prefix": prefix, "headers": [exactly(":path", path), exactly(":method", "GET")] },
        // The kubelet waits no longer than its probe says.
        "route": { "cluster": cluster, "prefix_rewrite": replaced_by, "timeout": "0s", "idle_timeout": "60s" },
    })
}

fn exactly(header: &str, value: &str) -> Value {
    json!({ "name": header, "string_match": { "exact": value } })
}

fn cluster_name(target: &Target) -> String {
    match target {
        Target::Http { port, .. } => format!("smc-probe-http-{port}"),
        Target::Https { port, .. } => format!("smc-probe-https-{port}"),
        Target::Tcp { port } => format!("smc-probe-tcp-{port}"),
        Target::Grpc { port, service } => format!("smc-probe-grpc-{port}-{service}"),
    }
}

/// The clusters of what is passed on: one for each port.
fn plain_clusters(targets: &Targets, address: &str, mode: LocalProxyMode) -> Vec<Value> {
    let mut made = std::collections::BTreeMap::new();
    for target in targets.keys() {
        let (port, tls) = match target {
            Target::Http { port, .. } => (*port, false),
            Target::Https { port, .. } => (*port, true),
            Target::Tcp { .. } | Target::Grpc { .. } => continue,
        };
        let mut cluster = application(target, port, address, mode);
        if tls && let Some(cluster) = cluster.as_object_mut() {
            let context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
            // Nothing is verified, as by the kubelet: it is the same pod.
            let socket = json!({
                "name": "envoy.transport_sockets.tls",
                "typed_config": { "@type": context, "common_tls_context": {
                    "tls_params": { "tls_maximum_protocol_version": "TLSv1_3" },
                } },
            });
            cluster.insert("transport_socket".to_owned(), socket);
        }
        made.insert(cluster_name(target), cluster);
    }
    made.into_values().collect()
}

/// The cluster of a target that Envoy checks by itself; its health is the answer to the probe.
fn checked(target: &Target, timing: Timing, address: &str, mode: LocalProxyMode) -> Option<Value> {
    let (port, kind, check) = match target {
        Target::Tcp { port } => (*port, "tcp_health_check", json!({})),
        Target::Grpc { port, service } => (*port, "grpc_health_check", json!({ "service_name": service })),
        Target::Http { .. } | Target::Https { .. } => return None,
    };
    let (interval, timeout) = (format!("{}s", timing.interval), format!("{}s", timing.timeout));
    let mut cluster = application(target, port, address, mode);
    let fields = cluster.as_object_mut()?;
    let health_check = json!({
        "timeout": timeout, "interval": interval,
        // Without traffic of its own, a cluster is checked once a minute by default.
        "no_traffic_interval": interval, "no_traffic_healthy_interval": interval,
        "unhealthy_threshold": 1, "healthy_threshold": 1, kind: check,
    });
    fields.insert("health_checks".to_owned(), json!([health_check]));
    if kind == "grpc_health_check" {
        let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
        let http2 = json!({
            options: {
                "@type": format!("type.googleapis.com/{options}"),
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        });
        fields.insert("typed_extension_protocol_options".to_owned(), http2);
    }
    Some(cluster)
}

/// A port of the application beside the sidecar.
fn application(target: &Target, port: u16, address: &str, mode: LocalProxyMode) -> Value {
    let name = cluster_name(target);
    let mut cluster = json!({
        "name": name, "type": "STATIC", "connect_timeout": "1s",
        "load_assignment": assignment(&name, address, port),
    });
    if mode == LocalProxyMode::PodIp
        && let Some(fields) = cluster.as_object_mut()
    {
        // From the loopback address, so that interception lets it pass (`crate::interception`).
        let from = json!({
            "source_address": { "address": "127.0.0.1", "port_value": 0 },
            "extra_source_addresses": [{ "address": { "address": "::1", "port_value": 0 } }],
        });
        fields.insert("upstream_bind_config".to_owned(), from);
    }
    cluster
}

fn assignment(cluster: &str, address: &str, port: u16) -> Value {
    let endpoint = json!({ "address": { "socket_address": { "address": address, "port_value": port } } });
    json!({ "cluster_name": cluster, "endpoints": [{ "lb_endpoints": [{ "endpoint": endpoint }] }] })
}
