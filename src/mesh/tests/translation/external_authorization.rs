//! What asks a server whether a request may pass, and what an edit of that changes.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::ExtAuthz;
use serde_json::{Value, json};
use smc_mesh::translate::{Compiler, Input};

use super::*;

fn server(address: &str) -> Value {
    json!({"enable": true, "address": address, "port": 9191})
}

fn asked(field: &Value, more: Vec<Input>) -> Compiler {
    shop([a_may_call("shop/b1"), external_authorization(field)].into_iter().chain(more))
}

/// The names of the filters of an inbound chain.
fn filters(view: &View, chain: &str) -> Vec<String> {
    let chain = super::chain(view, names::INBOUND_LISTENER, chain);
    let [filter] = &chain.filters[..] else { panic!("{chain:?}") };
    let Some(filter::ConfigType::TypedConfig(any)) = &filter.config_type else { panic!("{filter:?}") };
    let manager = HttpConnectionManager::decode(&*any.value).unwrap();
    manager.http_filters.into_iter().map(|filter| filter.name).collect()
}

#[test]
fn what_asks_a_server_comes_after_rules_and_limits_on_every_way_in() {
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let backend = json!({"name": "b", "port": {"number": 8080, "protocol": "http"}});
    let limit = json!({"rateLimit": {"local": {"http": {"requests": 1, "unit": "minute"}}}});
    let more = vec![
        ingress("shop/way", json!({"backends": [backend], "sources": [office]})),
        upstream_setting("shop/limit", "b", limit),
    ];
    let view = view(&asked(&server("192.0.2.7"), more), "shop/b1").unwrap();
    for chain in ["inbound_8080_http", "ingress_8080_http"] {
        let filters = filters(&view, chain);
        let [rules, limit, authorization, router] = &filters[..] else { panic!("{filters:?}") };
        assert_eq!(rules, "envoy.filters.http.rbac");
        assert!(limit.starts_with("rate_limit_"), "{limit}");
        assert_eq!(authorization, names::EXTERNAL_AUTHORIZATION);
        assert_eq!(router, "envoy.filters.http.router");
    }
}

/// Of other protocols there is no request.
#[test]
fn a_pod_without_http_asks_nothing() {
    let compiler = asked(&server("192.0.2.7"), vec![a_may_call("shop/db")]);
    let view = view(&compiler, "shop/db").unwrap();
    assert_eq!(served(&view, ResourceType::ExtensionConfig), Vec::<String>::new());
    assert!(!served(&view, ResourceType::Cluster).contains(&names::EXTERNAL_AUTHORIZATION.to_owned()));
}

#[test]
fn an_edit_changes_no_listener() {
    let before = asked(&server("192.0.2.7"), vec![]);
    let with = |name: &str, value: Value| {
        let mut field = server("192.0.2.7");
        field[name] = value;
        field
    };
    for field in [
        server("192.0.2.8"),
        server("opa.example.com"),
        server("no server"),
        with("timeout", json!("2s")),
        with("statPrefix", json!("other")),
        with("failureModeAllow", json!(true)),
    ] {
        let changed = changed(&before, &asked(&field, vec![]));
        assert_eq!(changed, [names::EXTERNAL_AUTHORIZATION.to_owned()].into(), "{field}");
    }
    let off = changed(&before, &asked(&json!({"enable": false}), vec![]));
    assert!(off.contains(names::INBOUND_LISTENER), "{off:?}");
}

/// A cluster without a host answers nothing, and what has no answer is denied.
#[test]
fn without_a_server_that_could_be_read_nothing_passes() {
    let compiler = asked(&json!({"enable": true, "address": "no server", "failureModeAllow": true}), vec![]);
    let view = view(&compiler, "shop/b1").unwrap();
    let cluster: Cluster = get(&view, ResourceType::Cluster, names::EXTERNAL_AUTHORIZATION);
    assert_eq!(cluster.load_assignment, None);
    let config: TypedExtensionConfig =
        get(&view, ResourceType::ExtensionConfig, names::EXTERNAL_AUTHORIZATION);
    let filter = ExtAuthz::decode(&*config.typed_config.unwrap().value).unwrap();
    assert!(!filter.failure_mode_allow);
}
