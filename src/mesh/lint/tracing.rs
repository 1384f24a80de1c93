//! Where spans of requests may go.
//!
//! Owns the rule for the tracers of connection managers. What a span tells of a request, its path and query
//! among it, goes to the collector that was declared and nowhere else. Envoy refuses a listener whose
//! collector has no cluster.

use envoy_types::pb::envoy::config::core::v3::http_uri::HttpUpstreamType;
use envoy_types::pb::envoy::config::trace::v3::{ZipkinConfig, tracing};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing;
use prost::{DecodeError, Message, Name};

use super::reader::{Client, INBOUND_TRACES, OUTBOUND_TRACES, Reader};
use smc_xds::resource::ResourceType;

impl Reader {
    pub(super) fn tracing(&mut self, traced: Option<&Tracing>, client: Client) -> Result<(), DecodeError> {
        let Some(traced) = traced else { return Ok(()) };
        if client == Client::Scraper {
            self.fault("traces what reads the statistics");
        }
        if !traced.custom_tags.is_empty() {
            self.fault("reports more of a request than Envoy does by itself");
        }
        if traced.client_sampling.is_none_or(|share| share.value != 0.0) {
            self.fault("traces what a client asks to be traced");
        }
        let provider = traced.provider.as_ref().and_then(|provider| provider.config_type.as_ref());
        let zipkin = match provider {
            Some(tracing::http::ConfigType::TypedConfig(any)) if any.type_url == ZipkinConfig::type_url() => {
                ZipkinConfig::decode(&*any.value)?
            }
            _ => {
                self.fault("traces by another tracer than Zipkin's");
                return Ok(());
            }
        };
        let service = zipkin.collector_service.unwrap_or_default();
        if !service.request_headers_to_add.is_empty() {
            self.fault("sends a collector headers of its own");
        }
        let uri = service.http_uri.unwrap_or_default();
        let Some(HttpUpstreamType::Cluster(cluster)) = uri.http_upstream_type else {
            self.fault("traces without a collector");
            return Ok(());
        };
        let own = if client == Client::Application { OUTBOUND_TRACES } else { INBOUND_TRACES };
        if cluster != own || !zipkin.collector_cluster.is_empty() {
            self.fault("traces to another server than a collector");
        }
        self.refer(ResourceType::Cluster, &cluster);
        Ok(())
    }
}
