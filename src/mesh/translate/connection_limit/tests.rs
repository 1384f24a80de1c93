//! Which buckets count a connection.

use prost::Message;
use smc_model::rate_limit::{RateUnit, RequestLimit};
use smc_types::proxy_class::AppProtocol;

use super::super::intern::Interner;
use super::super::rate_limit::tests::{id, intent};
use super::*;

fn port(protocol: AppProtocol, services: &[&str]) -> InboundPort {
    InboundPort { port: 8080, protocol, services: services.iter().map(|name| id(name)).collect() }
}

fn rate(amount: u32) -> Rate {
    Rate { amount, unit: RateUnit::Minute, burst: 2 }
}

fn connections(amount: u32) -> LocalRateLimits {
    LocalRateLimits { connections: Some(rate(amount)), ..LocalRateLimits::default() }
}

/// The filters of a chain for these names: name, and most at once.
fn filters(port: &InboundPort, server_names: &[String], intent: &InboundIntent) -> Vec<(String, u32)> {
    let mut interner = Interner::default();
    let mut draft = Draft::new(&mut interner);
    let filters = ConnectionLimits::new(port, server_names, intent).filters("chain", &mut draft);
    let part = draft.finish();
    let described = filters.into_iter().map(|filter| {
        let resource = part.snapshot.get(ResourceType::ExtensionConfig, &filter.name).expect("it is served");
        let any = envoy_types::pb::google::protobuf::Any::decode(&*resource.any()).unwrap();
        let config = TypedExtensionConfig::decode(&*any.value).unwrap().typed_config.unwrap();
        let limit = LocalRateLimit::decode(&*config.value).unwrap();
        assert_eq!(limit.share_key, "");
        (filter.name, limit.token_bucket.unwrap().max_tokens)
    });
    described.collect()
}

#[test]
fn a_connection_counts_for_each_service_of_its_port_that_has_a_limit() {
    let requests = RequestLimit { rate: rate(9), status: 429, headers: Vec::new() };
    let of_requests = LocalRateLimits { requests: Some(requests), ..LocalRateLimits::default() };
    let intent = intent(vec![
        ("db", connections(1)),
        ("other", connections(5)),
        ("peers", connections(3)),
        ("web", of_requests),
    ]);
    for protocol in [AppProtocol::Http, AppProtocol::Tcp] {
        let named = |services: &[&str], names: &[String]| filters(&port(protocol, services), names, &intent);
        let limit = |service: &str, most: u32| (format!("connection_limit_chain_shop/{service}"), most);
        assert_eq!(named(&["db"], &[]), [limit("db", 3)]);
        assert_eq!(named(&["db", "peers", "web"], &[]), [limit("db", 3), limit("peers", 5)]);
        assert_eq!(named(&["web"], &[]), []);
        // Of a port in two protocols, the chain is for the names of some services.
        assert_eq!(named(&["db", "peers"], &[id("peers").fqdn()]), [limit("peers", 5)]);
        assert_eq!(named(&["db"], &["*.svc.cluster.local".to_owned()]), [limit("db", 3)]);
    }
}
