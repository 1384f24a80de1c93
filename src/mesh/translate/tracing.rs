//! Traces: what the connection managers of a listener report of each request, to a Zipkin collector.
//!
//! Owns which decisions about a request hold. One that it brings with it is kept: the headers of B3, or
//! `traceparent` of W3C, so that a trace that an application or a gateway began goes on. Both are passed on.
//! Else the sidecar that sees it first draws, by the rate that was declared, and the others follow. Nothing
//! else makes a sidecar trace: `x-client-trace-id` has no effect, and Envoy removes `x-envoy-force-trace`
//! from what comes from no internal address, of which there is none. The draw is by `x-request-id`, which
//! stays as the application wrote it.

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::trace::v3::{ZipkinConfig, tracing, zipkin_config};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::RequestIdExtension;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing as OfManager;
use envoy_types::pb::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::util::pack_any;

use super::proto;
use smc_model::tracing::Tracing;

/// How long, in seconds, the collector may take to answer. Envoy's own, which holds whatever is said here; it
/// wants something said.
const PATIENCE_SECONDS: i64 = 5;

/// Leaves `x-request-id` as it is. By default Envoy writes into it that a request is traced.
pub(super) fn request_ids() -> RequestIdExtension {
    let unchanged = UuidRequestIdConfig {
        pack_trace_reason: Some(proto::switch(false)),
        ..UuidRequestIdConfig::default()
    };
    RequestIdExtension { typed_config: Some(pack_any(unchanged)) }
}

/// What each connection manager says, with this cluster of the collector.
pub(super) fn of_manager(tracing: &Tracing, cluster: &str) -> OfManager {
    let Tracing { collector, path, sampling } = tracing;
    let uri = core::HttpUri {
        uri: format!("http://{collector}{path}"),
        timeout: Some(proto::seconds(PATIENCE_SECONDS)),
        http_upstream_type: Some(core::http_uri::HttpUpstreamType::Cluster(cluster.to_owned())),
    };
    let zipkin = ZipkinConfig {
        collector_service: Some(core::HttpService { http_uri: Some(uri), ..core::HttpService::default() }),
        trace_id_128bit: true,
        // A span for each sidecar: it is no part of the application's.
        shared_span_context: Some(proto::switch(false)),
        collector_endpoint_version: zipkin_config::CollectorEndpointVersion::HttpJson.into(),
        trace_context_option: zipkin_config::TraceContextOption::UseB3WithW3cPropagation.into(),
        ..ZipkinConfig::default()
    };
    OfManager {
        client_sampling: Some(Percent { value: 0.0 }),
        random_sampling: Some(Percent { value: f64::from(*sampling) / 100.0 }),
        provider: Some(tracing::Http {
            name: "envoy.tracers.zipkin".to_owned(),
            config_type: Some(tracing::http::ConfigType::TypedConfig(pack_any(zipkin))),
        }),
        ..OfManager::default()
    }
}
