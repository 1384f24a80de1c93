//! The HTTP connection manager, as both listeners use it.
//!
//! Owns what the mesh does to requests, which is as little as it can. What a request asks of Envoy itself
//! (`x-envoy-retry-on`, `x-envoy-upstream-rq-timeout-ms` and their like) is removed before anything acts on it: Envoy
//! does so with requests that do not come from an internal address, and no address is. That is its default, and it
//! must stay one: whoever calls writes the `x-forwarded-for` that an address is read from, so any range that were
//! called internal could be claimed, and a configuration without ranges means all private ones.

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
use crate::translate::{access_log, proto};

/// What the application sends. Requests pass as they are.
pub(super) fn outbound(stat_prefix: &str, route: &str) -> listener::Filter {
    pack(hcm::HttpConnectionManager {
        access_log: vec![access_log::http()],
        ..base(stat_prefix, rds(route), vec![router()])
    })
}

/// What others send to the application: authorised first, and with the caller's identity in
/// `x-forwarded-client-cert`, which a caller cannot forge.
pub(super) fn inbound(stat_prefix: &str, route: &str) -> listener::Filter {
    // Deny unless the route's own rules allow.
    let authorise = http_filter(rbac::HTTP_FILTER, Rules::nobody().http_filter());
    pack(hcm::HttpConnectionManager {
        access_log: vec![access_log::http()],
        forward_client_cert_details: manager::ForwardClientCertDetails::SanitizeSet.into(),
        set_current_client_cert_details: Some(manager::SetCurrentClientCertDetails {
            uri: true,
            ..manager::SetCurrentClientCertDetails::default()
        }),
        // A rule for /public/.* must not let /public/../private through to an application that
        // resolves the dots.
        normalize_path: Some(proto::switch(true)),
        ..base(stat_prefix, rds(route), vec![authorise, router()])
    })
}

/// Fixed routes, no log.
pub(super) fn fixed(stat_prefix: &str, routes: RouteConfiguration) -> listener::Filter {
    pack(base(stat_prefix, RouteSpecifier::RouteConfig(routes), vec![router()]))
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
        // Long quiet streams (gRPC watches, long polls) are the application's business: Envoy's default
        // would end them after five minutes.
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

fn http_filter(name: &str, config: Any) -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: name.to_owned(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(config)),
        ..hcm::HttpFilter::default()
    }
}

fn pack(manager: hcm::HttpConnectionManager) -> listener::Filter {
    filter("envoy.filters.network.http_connection_manager", pack_any(manager))
}
