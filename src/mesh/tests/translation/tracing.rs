//! What is reported of requests, and what an edit of that changes.

use serde_json::{Value, json};
use smc_mesh::translate::{Compiler, Input};

use super::*;

fn traced(field: &Value, more: Vec<Input>) -> Compiler {
    shop([a_may_call("shop/b1"), a_may_call("shop/db"), tracing(field)].into_iter().chain(more))
}

/// The chains by name, with whether they report spans.
fn reporting(view: &View, name: &str) -> Vec<(String, bool)> {
    let traces = |chain: &FilterChain| {
        configured::<HttpConnectionManager>(chain).is_some_and(|manager| manager.tracing.is_some())
    };
    let listener: Listener = get(view, ResourceType::Listener, name);
    listener.filter_chains.iter().map(|chain| (chain.name.clone(), traces(chain))).collect()
}

#[test]
fn every_chain_with_requests_reports_them() {
    let office = json!({"kind": "IPRange", "name": "192.0.2.0/24"});
    let backend = json!({"name": "b", "port": {"number": 8080, "protocol": "http"}});
    let way = ingress("shop/way", json!({"backends": [backend], "sources": [office]}));
    let compiler = traced(&json!({"enable": true}), vec![way]);
    let server = view(&compiler, "shop/b1").unwrap();
    let chains = reporting(&server, names::INBOUND_LISTENER);
    assert_eq!(chains.len(), 2, "{chains:?}");
    assert!(chains.iter().all(|(_, traces)| *traces), "{chains:?}");
    let client = view(&compiler, "shop/a").unwrap();
    let chains = reporting(&client, names::OUTBOUND_LISTENER);
    let of = |part: &str| chains.iter().find(|(name, _)| name.contains(part)).map(|(_, traces)| *traces);
    assert_eq!((of("shop/b"), of("shop/db")), (Some(true), Some(false)), "{chains:?}");
}

#[test]
fn a_pod_without_requests_has_no_collector() {
    let compiler = traced(&json!({"enable": true}), vec![]);
    let clusters = |pod: &str| served(&view(&compiler, pod).unwrap(), ResourceType::Cluster);
    let has = |pod: &str, name: &str| clusters(pod).contains(&name.to_owned());
    assert!(has("shop/b1", names::INBOUND_TRACES) && !has("shop/db", names::INBOUND_TRACES));
    assert!(has("shop/a", names::OUTBOUND_TRACES) && !has("shop/b1", names::OUTBOUND_TRACES));
}

#[test]
fn what_traces_nothing_changes_no_byte() {
    let bytes = |field: &Value| {
        let view = view(&traced(field, vec![]), "shop/b1").unwrap();
        let names = served(&view, ResourceType::Listener);
        names.iter().map(|name| view.get(ResourceType::Listener, name).unwrap().version).collect::<Vec<_>>()
    };
    let without = bytes(&json!(null));
    for off in [json!({"enable": false, "address": "jaeger.example"}), json!({"enable": true, "port": "x"})] {
        assert_eq!(bytes(&off), without, "{off}");
    }
    assert_ne!(bytes(&json!({"enable": true})), without);
}
