//! The HTTP connection manager of both listeners.
//!
//! Owns what the mesh does to requests, which is as little as possible. Headers that instruct Envoy
//! (`x-envoy-retry-on`, `x-envoy-upstream-rq-timeout-ms` and others) are removed before they have
//! an effect: Envoy removes them from requests that do not come from an internal address, and by
//! default no address is internal. That must stay so. Envoy reads the address from
//! `x-forwarded-for`, which the caller writes, so a caller could claim any address; and an internal
//! address configuration without ranges means all private ranges.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use hcm::http_connection_manager as manager;
use manager::RouteSpecifier;

use super::filter;
use crate::translate::rbac::{self, Rules};
use crate::translate::reports::Reports;
use crate::translate::{messages, proto, retry, tracing};

/// Requests of the application. They pass unchanged, as far as HTTP/1.1 with a `Host` can say the same:
/// `host` where HTTP/1.0 has none.
pub(super) fn outbound(stat_prefix: &str, route: &str, host: &str, reports: &Reports) -> listener::Filter {
    pack(hcm::HttpConnectionManager {
        http_protocol_options: Some(messages::http1_of_clients(host)),
        ..application(stat_prefix, route, vec![router()], reports)
    })
}

/// The host of requests out of the mesh in HTTP/1.0 that name none: no name that anything could have
/// (RFC 2606). They pass only where any name does.
const NO_HOST: &str = "host.invalid";

/// Requests of the application to servers that are no sidecars. Where it `restricts` them, no sidecar
/// normalises the path before it is compared, so this one does, and refuses what servers read in two ways.
pub(super) fn egress(stat_prefix: &str, route: &str, restricts: bool, reports: &Reports) -> listener::Filter {
    let slashes = if restricts {
        manager::PathWithEscapedSlashesAction::RejectRequest
    } else {
        manager::PathWithEscapedSlashesAction::KeepUnchanged
    };
    pack(hcm::HttpConnectionManager {
        http_protocol_options: Some(messages::http1_of_clients(NO_HOST)),
        normalize_path: Some(proto::switch(restricts)),
        path_with_escaped_slashes_action: slashes.into(),
        ..application(stat_prefix, route, vec![router()], reports)
    })
}

/// Requests to the application. They are authorised first, and carry the caller's identity in
/// `x-forwarded-client-cert`, which a caller cannot forge. A request that takes longer than `longest` is
/// ended: RBAC judges a request when it begins, and never again, so nothing else would end one that is no
/// longer allowed. An answer that the sidecar gives because the application took no connection says so.
pub(super) fn inbound(
    stat_prefix: &str,
    route: &str,
    filters: Vec<hcm::HttpFilter>,
    longest: Option<Duration>,
    reports: &Reports,
) -> listener::Filter {
    pack(hcm::HttpConnectionManager {
        local_reply_config: Some(retry::not_processed()),
        ..callee(stat_prefix, route, filters, longest, reports, true)
    })
}

/// Requests to the application from outside of the mesh. They are treated as [`inbound`] ones, but for this:
/// the client is no sidecar, and gets no answers that are for sidecars; one over TLS may have a certificate
/// without an identity of the mesh, whose DNS names are passed on. Anybody who reaches the pod can begin a
/// request and have it refused, so that what a connection, and a line of the log, can take is bounded.
pub(super) fn ingress(
    stat_prefix: &str,
    route: &str,
    filters: Vec<hcm::HttpFilter>,
    longest: Option<Duration>,
    reports: &Reports,
    tls: bool,
) -> listener::Filter {
    let mut requests = callee(stat_prefix, route, filters, longest, reports, tls);
    if let Some(details) = &mut requests.set_current_client_cert_details {
        details.dns = true;
    }
    if let Some(options) = &mut requests.common_http_protocol_options {
        options.idle_timeout = Some(proto::seconds(IDLE_SECONDS));
    }
    pack(hcm::HttpConnectionManager {
        access_log: reports.log.ingress.clone(),
        request_headers_timeout: Some(proto::seconds(HEADERS_SECONDS)),
        ..requests
    })
}

/// How long, in seconds, an ingress may take to send the headers of a request: as for a handshake.
const HEADERS_SECONDS: i64 = 10;

/// How long, in seconds, an ingress may keep a connection without a request. Gateways keep theirs for a
/// minute (nginx) to an hour (Envoy), and dial again.
const IDLE_SECONDS: i64 = 300;

/// What the sidecar of a callee does to requests. Those that are denied pass none of the `filters`.
/// `tls` says whether a client has a certificate to pass on.
fn callee(
    stat_prefix: &str,
    route: &str,
    filters: Vec<hcm::HttpFilter>,
    longest: Option<Duration>,
    reports: &Reports,
    tls: bool,
) -> hcm::HttpConnectionManager {
    // Denies every request, unless the rules of the route replace these.
    let authorise = http_filter(rbac::HTTP_FILTER, Rules::none().http_filter());
    let pass_on = || manager::SetCurrentClientCertDetails {
        uri: true,
        ..manager::SetCurrentClientCertDetails::default()
    };
    let forward = if tls {
        manager::ForwardClientCertDetails::SanitizeSet
    } else {
        manager::ForwardClientCertDetails::Sanitize
    };
    hcm::HttpConnectionManager {
        forward_client_cert_details: forward.into(),
        set_current_client_cert_details: tls.then(pass_on),
        // A rule for /public/.* must not allow /public/../private, which an application may resolve
        // to /private.
        normalize_path: Some(proto::switch(true)),
        common_http_protocol_options: Some(messages::request_limits(core::HttpProtocolOptions {
            max_stream_duration: longest.map(proto::duration),
            ..core::HttpProtocolOptions::default()
        })),
        ..application(stat_prefix, route, [vec![authorise], filters, vec![router()]].concat(), reports)
    }
}

/// How long, in seconds, a reader of the statistics may be connected without a question, and take to ask it.
const READERS_PATIENCE: i64 = 1;

/// Inline routes, without an access log, for clients of which none is known.
pub(super) fn statistics(
    stat_prefix: &str,
    routes: RouteConfiguration,
    rate: hcm::HttpFilter,
) -> listener::Filter {
    let patience = || Some(proto::seconds(READERS_PATIENCE));
    pack(hcm::HttpConnectionManager {
        codec_type: manager::CodecType::Http1.into(),
        // A connection's own address, not what it says of itself.
        use_remote_address: Some(proto::switch(true)),
        skip_xff_append: true,
        common_http_protocol_options: Some(core::HttpProtocolOptions {
            idle_timeout: patience(),
            ..core::HttpProtocolOptions::default()
        }),
        request_headers_timeout: patience(),
        request_timeout: patience(),
        upgrade_configs: Vec::new(),
        ..base(stat_prefix, RouteSpecifier::RouteConfig(routes), vec![rate, router()])
    })
}

/// What both sides do to messages of applications, and report of them.
fn application(
    stat_prefix: &str,
    route: &str,
    filters: Vec<hcm::HttpFilter>,
    reports: &Reports,
) -> hcm::HttpConnectionManager {
    hcm::HttpConnectionManager {
        access_log: reports.log.http.clone(),
        tracing: reports.tracing.clone(),
        request_id_extension: reports.tracing.as_ref().map(|_| tracing::request_ids()),
        common_http_protocol_options: Some(messages::request_limits(core::HttpProtocolOptions::default())),
        http_protocol_options: Some(messages::http1()),
        http2_protocol_options: Some(messages::http2()),
        max_request_headers_kb: Some(proto::number(messages::request_header_kb())),
        // Whether the body is wanted is the application's to say, and so is what it says before its answer.
        proxy_100_continue: true,
        ..base(stat_prefix, rds(route), filters)
    }
}

fn base(
    stat_prefix: &str,
    routes: RouteSpecifier,
    filters: Vec<hcm::HttpFilter>,
) -> hcm::HttpConnectionManager {
    hcm::HttpConnectionManager {
        codec_type: manager::CodecType::Auto.into(),
        stat_prefix: stat_prefix.to_owned(),
        http_filters: filters,
        route_specifier: Some(routes),
        // No timeout for idle streams, such as gRPC watches and long polls. Envoy's default is five minutes.
        stream_idle_timeout: Some(proto::seconds(0)),
        server_header_transformation: manager::ServerHeaderTransformation::PassThrough.into(),
        upgrade_configs: vec![manager::UpgradeConfig {
            upgrade_type: "websocket".to_owned(),
            ..manager::UpgradeConfig::default()
        }],
        ..hcm::HttpConnectionManager::default()
    }
}

fn rds(name: &str) -> RouteSpecifier {
    RouteSpecifier::Rds(hcm::Rds { config_source: Some(proto::ads()), route_config_name: name.to_owned() })
}

fn router() -> hcm::HttpFilter {
    http_filter("envoy.filters.http.router", pack_any(Router::default()))
}

pub(super) fn http_filter(name: &str, config: Any) -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: name.to_owned(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(config)),
        ..hcm::HttpFilter::default()
    }
}

fn pack(manager: hcm::HttpConnectionManager) -> listener::Filter {
    filter("envoy.filters.network.http_connection_manager", pack_any(manager))
}
