//! Breaks the rules for where spans of requests go.

use envoy_types::pb::envoy::config::core::v3::{HeaderValueOption, http_uri::HttpUpstreamType};
use envoy_types::pb::envoy::config::trace::v3::{OpenTelemetryConfig, ZipkinConfig, tracing};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing;

use envoy_types::pb::envoy::r#type::tracing::v3::CustomTag;

use super::*;

fn traced(change: impl FnOnce(&mut Tracing)) -> String {
    inbound_http(|manager| change(manager.tracing.as_mut().unwrap()))
}

fn zipkin(change: impl FnOnce(&mut ZipkinConfig)) -> String {
    traced(|traced| {
        let provider = traced.provider.as_mut().unwrap();
        let Some(tracing::http::ConfigType::TypedConfig(any)) = &mut provider.config_type else {
            panic!("typed")
        };
        let mut config = ZipkinConfig::decode(&*any.value).unwrap();
        change(&mut config);
        *any = pack_any(config);
    })
}

#[test]
fn spans_go_to_the_collector_and_no_client_asks_for_them() {
    let forced = traced(|traced| traced.client_sampling = None);
    assert!(forced.contains("a client asks"), "{forced}");
    let other = traced(|traced| {
        traced.provider.as_mut().unwrap().config_type =
            Some(tracing::http::ConfigType::TypedConfig(pack_any(OpenTelemetryConfig::default())));
    });
    assert!(other.contains("another tracer"), "{other}");
    let none = zipkin(|config| config.collector_service = None);
    assert!(none.contains("without a collector"), "{none}");
    for cluster in ["shop/a|80", names::EXTERNAL_AUTHORIZATION, names::OUTBOUND_TRACES] {
        let elsewhere = zipkin(|config| {
            let uri = config.collector_service.as_mut().unwrap().http_uri.as_mut().unwrap();
            uri.http_upstream_type = Some(HttpUpstreamType::Cluster(cluster.to_owned()));
        });
        assert!(elsewhere.contains("another server"), "{elsewhere}");
    }
    let beside = zipkin(|config| config.collector_cluster = "shop/a|80".to_owned());
    assert!(beside.contains("another server"), "{beside}");
    let more = traced(|traced| traced.custom_tags.push(CustomTag::default()));
    assert!(more.contains("more of a request"), "{more}");
    let headers = zipkin(|config| {
        let service = config.collector_service.as_mut().unwrap();
        service.request_headers_to_add.push(HeaderValueOption::default());
    });
    assert!(headers.contains("headers of its own"), "{headers}");
    let reader = broken(ResourceType::Listener, names::PROMETHEUS_LISTENER, |listener: &mut Listener| {
        unpacked(&mut listener.filter_chains[0], |manager: &mut HttpConnectionManager| {
            manager.tracing = Some(Tracing::default());
        });
    });
    assert!(reader.contains("reads the statistics"), "{reader}");
}
