//! The part of Envoy's bootstrap that answers for the probes of a pod.
//!
//! Owns one listener, and the clusters behind it. It takes exactly the requests that the kubelet sends: a
//! stranger can ask what the kubelet asks, and nothing else of the application. It is an argument of the
//! container and no part of the Secret, since it holds no secret and follows from the Pod.

use std::collections::BTreeMap;

use serde::Serialize;
use smc_model::sidecar_settings::LocalProxyMode;
use smc_types::ports::ADMIN_PORT;

use super::probe_target::Target;
use super::probes::{PROBE_PORT, Targets, Timing};
use crate::bootstrap::connection_limit_key;
use crate::json_object::{Fields, object};

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
    let admin = cluster("smc-admin".to_owned(), "127.0.0.1", ADMIN_PORT, None, mode);
    let clusters: Vec<_> = std::iter::once(admin)
        .chain(asked(targets).map(|(name, probed)| {
            let port = probed.0.port();
            cluster(name, address, port, Some(probed), mode)
        }))
        .collect();
    let config = object! {
        "static_resources": { "listeners": [listener(targets)], "clusters": clusters },
        "layered_runtime": {
            "layers": [{
                "name": LISTENER,
                "static_layer": { (connection_limit_key(LISTENER)): CONNECTIONS },
            }],
        },
    };
    // JSON has no such character within a text, but its escape.
    config.to_string().replace('$', "$$").replace("\\u0001", &format!("$({POD_IP})"))
}

/// What is behind the clusters, by the names of these: one for each port to which requests are passed on,
/// then one for each target that Envoy checks by itself.
fn asked<'a>(targets: &'a Targets) -> impl Iterator<Item = (String, Probed<'a>)> {
    let named = |(target, timing): (&'a Target, &Timing)| (cluster_name(target), (target, *timing));
    let (checked, passed_on): (Vec<_>, Vec<_>) = targets.iter().partition(|(target, _)| is_checked(target));
    let passed_on: BTreeMap<_, _> = passed_on.into_iter().map(named).collect();
    passed_on.into_iter().chain(checked.into_iter().map(named))
}

/// A target, and how it is checked.
type Probed<'a> = (&'a Target, Timing);

fn listener(targets: &Targets) -> impl Serialize {
    let ready = route(READY_PATH.to_owned(), READY_PATH.to_owned(), READY_PATH, "smc-admin".to_owned());
    let passed_on = targets.keys().filter_map(|target| {
        let prefix = match target {
            Target::Http { port, .. } => format!("/http/{port}/"),
            Target::Https { port, .. } => format!("/https/{port}/"),
            Target::Tcp { .. } | Target::Grpc { .. } => return None,
        };
        Some(route(target.path(), prefix, "/", cluster_name(target)))
    });
    let routes: Vec<_> = std::iter::once(ready).chain(passed_on).collect();
    let checks = targets.keys().filter(|target| is_checked(target)).map(Some);
    let filters: Vec<_> = checks.chain(std::iter::once(None)).map(filter).collect();
    object! {
        "name": LISTENER,
        "address": { "socket_address": { "address": "::", "port_value": PROBE_PORT, "ipv4_compat": true } },
        "filter_chains": [{
            "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.\
                              http_connection_manager.v3.HttpConnectionManager",
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
            }],
        }],
    }
}

/// The filter that answers for a target by the health of its cluster; without one the router.
fn filter(checked: Option<&Target>) -> impl Serialize {
    let health_check = checked.map(|target| {
        object! {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck",
            "pass_through_mode": false,
            "cluster_min_healthy_percentages": { (cluster_name(target)): { "value": 100 } },
            "headers": [exactly(":path", target.path())],
        }
    });
    let router = checked.is_none().then_some(object! {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        "suppress_envoy_headers": true,
    });
    let name =
        if checked.is_some() { "envoy.filters.http.health_check" } else { "envoy.filters.http.router" };
    object! { "name": name, "typed_config": { ..health_check, ..router } }
}

fn is_checked(target: &Target) -> bool {
    match target {
        Target::Http { .. } | Target::Https { .. } => false,
        Target::Tcp { .. } | Target::Grpc { .. } => true,
    }
}

/// A route for the one request `GET path`, whose `prefix` is replaced.
fn route(path: String, prefix: String, replaced_by: &'static str, cluster: String) -> impl Serialize {
    object! {
        "match": {
            "prefix": prefix,
            "headers": [exactly(":path", path), exactly(":method", "GET".to_owned())],
        },
        // The kubelet waits no longer than its probe says.
        "route": {
            "cluster": cluster, "prefix_rewrite": replaced_by, "timeout": "0s", "idle_timeout": "60s",
        },
    }
}

fn exactly(header: &'static str, value: String) -> impl Serialize {
    object! { "name": header, "string_match": { "exact": value } }
}

fn cluster_name(target: &Target) -> String {
    match target {
        Target::Http { port, .. } => format!("smc-probe-http-{port}"),
        Target::Https { port, .. } => format!("smc-probe-https-{port}"),
        Target::Tcp { port } => format!("smc-probe-tcp-{port}"),
        Target::Grpc { port, service } => format!("smc-probe-grpc-{port}-{service}"),
    }
}

/// One address: with something that is probed, a port of the application beside the sidecar.
fn cluster(
    name: String,
    address: &str,
    port: u16,
    probed: Option<Probed<'_>>,
    mode: LocalProxyMode,
) -> impl Serialize {
    let endpoint = object! { "address": { "socket_address": { "address": address, "port_value": port } } };
    // From the loopback address, so that interception lets it pass (`crate::interception`).
    let from = (probed.is_some() && mode == LocalProxyMode::PodIp).then_some(object! {
        "upstream_bind_config": {
            "source_address": { "address": "127.0.0.1", "port_value": 0 },
            "extra_source_addresses": [{ "address": { "address": "::1", "port_value": 0 } }],
        },
    });
    let target = probed.map(|(target, _)| target);
    // Nothing is verified, as by the kubelet: it is the same pod.
    let tls = matches!(target, Some(Target::Https { .. })).then_some(object! {
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": { "tls_params": { "tls_maximum_protocol_version": "TLSv1_3" } },
            },
        },
    });
    let http2 = matches!(target, Some(Target::Grpc { .. })).then_some(object! {
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        },
    });
    let check =
        probed.filter(|(target, _)| is_checked(target)).map(|(target, timing)| health_check(target, timing));
    object! {
        "name": name.clone(),
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": endpoint }] }],
        },
        ..from,
        ..tls,
        ..http2,
        ..check,
    }
}

/// The check of a target that Envoy makes by itself; its outcome is the answer to the probe.
fn health_check(target: &Target, timing: Timing) -> impl Fields {
    let (interval, timeout) = (format!("{}s", timing.interval), format!("{}s", timing.timeout));
    let grpc = match target {
        Target::Grpc { service, .. } => Some(service),
        Target::Http { .. } | Target::Https { .. } | Target::Tcp { .. } => None,
    };
    object! {
        "health_checks": [{
            "timeout": timeout,
            "interval": interval.clone(),
            // Without traffic of its own, a cluster is checked once a minute by default.
            "no_traffic_interval": interval.clone(),
            "no_traffic_healthy_interval": interval,
            "unhealthy_threshold": 1,
            "healthy_threshold": 1,
            ..grpc.is_none().then_some(object! { "tcp_health_check": {} }),
            ..grpc.map(|service| object! { "grpc_health_check": { "service_name": service } }),
        }],
    }
}
