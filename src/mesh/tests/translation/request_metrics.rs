//! What is counted of requests, and for whom it is made.

use serde_json::Value;

use super::*;

fn counting(flag: &Value) -> Compiler {
    let permissive = json!({"enablePermissiveTrafficPolicyMode": true});
    shop([mesh_config_of(json!({"traffic": permissive, "observability": {"requestMetrics": flag}}))])
}

#[test]
fn callers_share_what_counts_their_requests() {
    let compiler = counting(&json!(true));
    let [a, b] = ["shop/a", "shop/b1"].map(|pod| view(&compiler, pod).unwrap());
    let version = |view: &View| view.get(ResourceType::Listener, names::OUTBOUND_LISTENER).unwrap().version;
    assert_eq!(version(&a), version(&b), "two identities, one outbound half");

    let listener: Listener = get(&a, ResourceType::Listener, names::OUTBOUND_LISTENER);
    let managers: Vec<_> =
        listener.filter_chains.iter().filter_map(configured::<HttpConnectionManager>).collect();
    let counts = |manager: &HttpConnectionManager| {
        manager.access_log.iter().filter(|log| log.name == "envoy.access_loggers.stats").count()
    };
    assert!(!managers.is_empty() && managers.iter().all(|manager| counts(manager) == 1));
    let inbound: Listener = get(&b, ResourceType::Listener, names::INBOUND_LISTENER);
    let managers = inbound.filter_chains.iter().filter_map(configured::<HttpConnectionManager>);
    assert_eq!(managers.map(|manager| counts(&manager)).sum::<usize>(), 0, "the caller's sidecar counts");

    let cluster: Cluster = get(&a, ResourceType::Cluster, "shop/b|80");
    let fields = &cluster.metadata.unwrap().filter_metadata[names::METADATA].fields;
    assert_eq!(fields.len(), 3, "{fields:?}");
}

#[test]
fn what_counts_nothing_changes_no_byte() {
    let bytes = |flag: Value| {
        let view = view(&counting(&flag), "shop/a").unwrap();
        [ResourceType::Listener, ResourceType::Cluster].map(|kind| {
            served(&view, kind).iter().map(|name| view.get(kind, name).unwrap().version).collect::<Vec<_>>()
        })
    };
    assert_eq!(bytes(json!(false)), bytes(json!(null)));
    let (on, off) = (bytes(json!(true)), bytes(json!(false)));
    assert!(on[0] != off[0] && on[1] != off[1]);
}
