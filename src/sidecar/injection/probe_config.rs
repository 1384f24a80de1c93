//! The part of Envoy's bootstrap that answers for the probes of a pod.
//!
//! Owns one listener, and the clusters behind it. It takes exactly the requests that the kubelet sends,
//! whose paths only those know who may read the Pod, and passes on nothing of them: neither a header nor a
//! body. It is an argument of the container and no part of the Secret, since it follows from the Pod and
//! has no secret that the Pod's probes do not have as well.

use std::collections::BTreeMap;

use serde::Serialize;
use smc_model::sidecar_settings::LocalProxyMode;
use smc_xds::names;

use super::probe_headers::Headers;
use super::probe_target::Target;
use super::probes::{PROBE_PORT, Targets, Timing};
use super::statistics::Statistics;
use crate::bootstrap::connection_limit_key;
use crate::json_object::{Fields, object};
use crate::omitted_statistics;

/// Where Envoy says that it has its configuration, below the token at the probes' port. What its admin server
/// says at this path is something else: Envoy is live, with or without a configuration, half a minute after
/// its start.
pub(super) const READY_PATH: &str = "/ready";

/// The name of the listener.
const LISTENER: &str = "smc-probes";

/// The most connections to the listener. The kubelet has one at a time for each probe; the rest is room for
/// strangers, so that they do not take its place: none lasts longer than [`PATIENCE`] without a request, so
/// they would have to open thousands a second. A silent connection takes 8 KiB of Envoy, and one that sends
/// headers up to [`HEADERS_KIB`] more: 64 MiB at most.
const CONNECTIONS: u32 = 4096;

/// How long the listener waits for a request. The kubelet sends it as soon as it is connected.
const PATIENCE: &str = "1s";

/// The most KiB of headers of a request, beside what the pod's probes declare.
const HEADERS_KIB: usize = 8;

/// The longest argument of a process in bytes. Linux has 128 KiB for each, with the zero at its end
/// (`MAX_ARG_STRLEN`, execve(2)); a container with a longer one never starts.
pub(super) const MAX_ARGUMENT: usize = 128 * 1024 - 1;

/// The longest text of an address, which the kubelet puts in the place of a variable.
const MAX_ADDRESS: usize = "0000:0000:0000:0000:0000:0000:255.255.255.255".len();

/// The argument's variable for the pod's address, which the kubelet puts in its place when the container
/// starts.
pub(super) const POD_IP: &str = "POD_IP";

/// Stands for that variable until `$` is escaped. Paths are encoded and values of headers are checked, so no
/// text of a Pod has it.
const POD_ADDRESS: &str = "\u{1}";

/// The same, as it is within a text of JSON.
const ESCAPED_ADDRESS: &str = "\\u0001";

/// The text of the argument `--config-yaml`, with what makes all statistics if they are wanted. The kubelet
/// replaces `$(NAME)` in it and reads `$$` as `$`.
/// `None` if a process might not start with it.
pub(super) fn argument(targets: &Targets, mode: LocalProxyMode, statistics: Statistics) -> Option<String> {
    let address = match mode {
        LocalProxyMode::Localhost => "127.0.0.1",
        LocalProxyMode::PodIp => POD_ADDRESS,
    };
    let clusters: Vec<_> =
        asked(targets).map(|(name, probed)| cluster(name, address, probed, mode)).collect();
    let all_statistics = (statistics == Statistics::All).then(omitted_statistics::all);
    let config = object! {
        ..all_statistics,
        "static_resources": { "listeners": [listener(targets)], "clusters": clusters },
        "layered_runtime": {
            "layers": [{
                "name": LISTENER,
                "static_layer": { (connection_limit_key(LISTENER)): CONNECTIONS },
            }],
        },
    };
    let variable = format!("$({POD_IP})");
    let text = config.to_string().replace('$', "$$");
    let addresses = text.matches(ESCAPED_ADDRESS).count();
    let argument = text.replace(ESCAPED_ADDRESS, &variable);
    (argument.len() + addresses * MAX_ADDRESS <= MAX_ARGUMENT).then_some(argument)
}

/// What is behind the clusters, by the names of these: one for each port to which requests are passed on,
/// then one for each target that Envoy checks by itself.
fn asked<'a>(targets: &'a Targets) -> impl Iterator<Item = (String, Probed<'a>)> {
    let named = |(target, timing): (&'a Target, &Timing)| (cluster_name(target), (target, *timing));
    let (checked, passed_on): (Vec<_>, Vec<_>) =
        targets.timings.iter().partition(|(target, _)| target.is_checked());
    let passed_on: BTreeMap<_, _> = passed_on.into_iter().map(named).collect();
    passed_on.into_iter().chain(checked.into_iter().map(named))
}

/// A target, and how it is checked.
type Probed<'a> = (&'a Target, Timing);

fn listener(targets: &Targets) -> impl Serialize {
    let routes = targets.requests().map(|(target, number, headers)| {
        let prefix = targets.prefix(number);
        let below = match target {
            Target::Https { port, .. } => format!("{prefix}/https/{port}/"),
            _ => format!("{prefix}/http/{}/", target.port()),
        };
        route(prefix + &target.path(), below, cluster_name(target), headers)
    });
    let routes: Vec<_> = routes.collect();
    let checks = targets.timings.keys().filter(|target| target.is_checked()).map(Filter::Answer);
    let filters: Vec<_> = std::iter::once(Filter::Ready)
        .chain(checks)
        .chain([Filter::Measure, Filter::Refuse, Filter::Strip, Filter::Route])
        .map(|which| filter(&which, targets))
        .collect();
    let longest = targets.requests().map(|(target, _, headers)| target.path().len() + headers.len()).max();
    object! {
        "name": LISTENER,
        // The address that the kubelet asks. Not `::`, with which Envoy does not start where the kernel has
        // no IPv6, and not every address of both families, which is known when the container starts and not
        // before.
        "address": { "socket_address": { "address": POD_ADDRESS, "port_value": PROBE_PORT } },
        // Strangers at other ports use up no probe's place, nor strangers at this one the places there.
        "ignore_global_conn_limit": true,
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
                    "common_http_protocol_options": { "idle_timeout": PATIENCE, "max_requests_per_connection": 1 },
                    "request_headers_timeout": PATIENCE,
                    "request_timeout": PATIENCE,
                    "delayed_close_timeout": "0.1s",
                    "max_request_headers_kb": HEADERS_KIB + longest.unwrap_or_default() / 1024,
                    "route_config": {
                        "name": LISTENER,
                        "virtual_hosts": [{ "name": LISTENER, "domains": ["*"], "routes": routes }],
                        // The kubelet would follow a redirect to a path that is no probe's, which nothing
                        // answers here. Without a target, it takes a redirect for an answer.
                        "response_headers_to_remove": ["location"],
                    },
                    "http_filters": filters,
                },
            }],
        }],
    }
}

/// The HTTP filters of the listener, in their order.
enum Filter<'a> {
    /// Answers whether the sidecar has its configuration: one of the clusters that all of them have.
    Ready,
    /// Answers for a target by the health of its cluster.
    Answer(&'a Target),
    /// Waits for a body, of a byte at most, and adds its length where the request does not say it. What the
    /// request itself says of a body is not enough: `Connection: transfer-encoding` removes it.
    Measure,
    /// Refuses what has a length.
    Refuse,
    /// Removes all headers of the request. The route was chosen before.
    Strip,
    /// Passes the request on.
    Route,
}

fn filter(which: &Filter<'_>, targets: &Targets) -> impl Serialize + use<> {
    let name = match which {
        Filter::Ready | Filter::Answer(_) => "health_check",
        Filter::Measure => "buffer",
        Filter::Refuse => "rbac",
        Filter::Strip => "header_mutation",
        Filter::Route => "router",
    };
    let answer = match which {
        // A cluster that does not exist is not healthy, and one that does is.
        Filter::Ready => Some((names::ADMIN_CLUSTER.to_owned(), 0, READY_PATH.to_owned())),
        Filter::Answer(target) => Some((cluster_name(target), 100, target.path())),
        Filter::Measure | Filter::Refuse | Filter::Strip | Filter::Route => None,
    };
    let answer = answer.map(|(cluster, healthy, path)| {
        object! {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck",
            "pass_through_mode": false,
            "cluster_min_healthy_percentages": { (cluster): { "value": healthy } },
            "headers": only(targets.prefix(0) + &path),
        }
    });
    let measure = matches!(which, Filter::Measure).then_some(object! {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
        "max_request_bytes": 1,
    });
    let refuse = matches!(which, Filter::Refuse).then_some(object! {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
        "rules": {
            "action": "DENY",
            "policies": {
                "body": {
                    "permissions": [{ "header": { "name": "content-length", "present_match": true } }],
                    "principals": [{ "any": true }],
                },
            },
        },
    });
    let strip = matches!(which, Filter::Strip).then_some(object! {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        "mutations": {
            "request_mutations": [{
                // Pseudo-headers begin with a colon.
                "remove_on_match": { "key_matcher": { "safe_regex": { "regex": "[^:].*" } } },
            }],
        },
    });
    let route = matches!(which, Filter::Route).then_some(object! {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        "suppress_envoy_headers": true,
    });
    object! {
        "name": format!("envoy.filters.http.{name}"),
        "typed_config": { ..answer, ..measure, ..refuse, ..strip, ..route },
    }
}

/// A route for the one request `GET path`, without its `prefix`, with these headers and no others.
fn route(path: String, prefix: String, cluster: String, headers: &Headers) -> impl Serialize + use<> {
    let added = headers.others().map(|(name, value)| {
        object! {
            // Percent signs would begin a command.
            "header": { "key": name.to_owned(), "value": value.replace('%', "%%") },
            "keep_empty_value": true,
        }
    });
    let declared = headers.host().map(|host| object! { "host_rewrite_literal": host.to_owned() });
    // Else that of the kubelet's own request.
    let asked = declared.is_none().then_some(object! { "host_rewrite": "%DOWNSTREAM_LOCAL_ADDRESS%" });
    object! {
        "match": { "prefix": prefix, "headers": only(path) },
        "request_headers_to_add": added.collect::<Vec<_>>(),
        // The kubelet waits no longer than its probe says.
        "route": {
            "cluster": cluster,
            "prefix_rewrite": "/",
            "timeout": "0s",
            "idle_timeout": "60s",
            ..declared,
            ..asked,
        },
    }
}

/// Matches the requests `GET path`.
fn only(path: String) -> [impl Serialize; 2] {
    let exactly = |name, value| object! { "name": name, "string_match": { "exact": value } };
    [exactly(":path", path), exactly(":method", "GET".to_owned())]
}

fn cluster_name(target: &Target) -> String {
    match target {
        Target::Http { port, .. } => format!("smc-probe-http-{port}"),
        Target::Https { port, .. } => format!("smc-probe-https-{port}"),
        Target::Tcp { port } => format!("smc-probe-tcp-{port}"),
        Target::Grpc { port, service } => format!("smc-probe-grpc-{port}-{service}"),
    }
}

/// A port of the application beside the sidecar.
fn cluster(name: String, address: &str, probed: Probed<'_>, mode: LocalProxyMode) -> impl Serialize {
    let (target, timing) = probed;
    let port = target.port();
    let endpoint = object! { "address": { "socket_address": { "address": address, "port_value": port } } };
    // From the loopback address, so that interception lets it pass (`crate::interception`).
    let from = (mode == LocalProxyMode::PodIp).then_some(object! {
        "upstream_bind_config": {
            "source_address": { "address": "127.0.0.1", "port_value": 0 },
            "extra_source_addresses": [{ "address": { "address": "::1", "port_value": 0 } }],
        },
    });
    // Nothing is verified, as by the kubelet: it is the same pod.
    let tls = matches!(target, Target::Https { .. }).then_some(object! {
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": { "tls_params": { "tls_maximum_protocol_version": "TLSv1_3" } },
            },
        },
    });
    let http2 = matches!(target, Target::Grpc { .. })
        .then_some(object! { "explicit_http_config": { "http2_protocol_options": {} } });
    // A request has a connection of its own, as if the kubelet had made it.
    let http1 = http2.is_none().then_some(object! {
        "common_http_protocol_options": { "max_requests_per_connection": 1 },
        "explicit_http_config": { "http_protocol_options": {} },
    });
    let check = target.is_checked().then(|| health_check(target, timing));
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
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                ..http2,
                ..http1,
            },
        },
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
