//! What an edit of a limit changes: a changed listener ends connections, and a changed configuration of a
//! filter begins with full buckets.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use smc_mesh::translate::{Compiler, Input};
use smc_testkit::mesh::*;
use smc_types::proxy_class::AppProtocol::Http;
use smc_xds::names;

use super::{a_may_call, changed, shop};

const FILTER: &str = "rate_limit_inbound_8080_http_shop/b";
const SECOND_FILTER: &str = "rate_limit_inbound_8080_http_shop/b_0";
const ROUTES: &str = "inbound_8080_http";

fn limit(requests: u32) -> Value {
    json!({"requests": requests, "unit": "minute"})
}

/// The mesh with this limit for `shop/b`, and these for paths.
fn limited(service: &Value, paths: &[(&str, Value)], more: Vec<Input>) -> Compiler {
    let paths: Vec<_> =
        paths.iter().map(|(path, limit)| json!({"path": path, "rateLimit": {"local": limit}})).collect();
    let spec = json!({"rateLimit": {"local": {"http": service}}, "httpRoutes": paths});
    shop([a_may_call("shop/b1"), upstream_setting("shop/limit", "b", spec)].into_iter().chain(more))
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Whether the filter chain of the mesh differs: its connections would end, and its buckets be others.
fn chain_differs(before: &Compiler, after: &Compiler) -> bool {
    let chain = |compiler: &Compiler| {
        super::chain(&view(compiler, "shop/b1").unwrap(), names::INBOUND_LISTENER, ROUTES)
    };
    chain(before) != chain(after)
}

#[test]
fn an_edit_of_a_limit_changes_its_filter_and_no_listener() {
    let plain = || limited(&limit(10), &[("/a", limit(1))], vec![]);
    let other_answer = |field: &str, value: Value| {
        let mut limit = limit(10);
        limit[field] = value;
        limit
    };
    let answered = |limit: Value| {
        let mut other = limit.clone();
        other["requests"] = 20.into();
        let one = |limit: &Value| limited(limit, &[], vec![]);
        changed(&one(&limit), &one(&other))
    };
    for (edited, expected) in [
        (limited(&limit(20), &[("/a", limit(1))], vec![]), names(&[FILTER])),
        (limited(&limit(10), &[("/a", limit(2))], vec![]), names(&[FILTER])),
        (limited(&limit(10), &[("/b", limit(1))], vec![]), names(&[ROUTES])),
        (limited(&limit(10), &[], vec![]), names(&[FILTER, ROUTES])),
    ] {
        assert_eq!(changed(&plain(), &edited), expected);
    }
    let headers = json!([{"name": "x-why", "value": "because"}]);
    for limit in
        [other_answer("responseStatusCode", 503.into()), other_answer("responseHeadersToAdd", headers)]
    {
        assert_eq!(answered(limit.clone()), names(&[FILTER]));
        let one = |limit: &Value| limited(limit, &[], vec![]);
        assert_eq!(changed(&one(&super::rate_limit::limit(10)), &one(&limit)), names(&[FILTER]));
    }
}

#[test]
fn the_first_limit_of_a_port_and_each_other_answer_change_the_listener() {
    let none = shop([a_may_call("shop/b1")]);
    let plain = limited(&limit(10), &[], vec![]);
    assert_eq!(changed(&none, &plain), names(&[FILTER, names::INBOUND_LISTENER]));
    let mut other = limit(1);
    other["responseStatusCode"] = 503.into();
    // Connections that are there have the first filter alone, and the limit of the service stays in it.
    let two = limited(&limit(10), &[("/a", other)], vec![]);
    assert_eq!(changed(&plain, &two), names(&[SECOND_FILTER, ROUTES, names::INBOUND_LISTENER]));
}

/// Clear text from the endpoints of `shop/db`, or TLS.
fn open(protocol: &str) -> Input {
    let mut backend = json!({"name": "b", "port": {"number": 8080, "protocol": protocol}});
    if protocol == "https" {
        backend["tls"] = json!({"skipClientCertValidation": true});
    }
    let sources = json!([{"kind": "Service", "name": "db", "namespace": "shop"}]);
    ingress("shop/way", json!({"backends": [backend], "sources": sources}))
}

/// Calls of the mesh then differ from those of an ingress by name, so their chain is another one.
#[test]
fn the_first_ingress_over_tls_changes_the_chain_of_the_mesh_and_no_filter() {
    let plain = || limited(&limit(10), &[("/a", limit(1))], vec![]);
    let changed = changed(&plain(), &limited(&limit(10), &[("/a", limit(1))], vec![open("https")]));
    assert!(changed.contains(names::INBOUND_LISTENER) && !changed.contains(FILTER), "{changed:?}");
}

/// A limit would be lifted by any edit of policy, else.
#[test]
fn other_policy_changes_no_filter() {
    let plain = || limited(&limit(10), &[("/a", limit(1))], vec![]);
    for more in [
        vec![group("shop/all-http", &json!([{"name": "other", "pathRegex": "/other"}]))],
        vec![target("shop/another", "shop/b1", &["shop/db"], &[("TCPRoute", "all-tcp")])],
        vec![mesh_config(true, false)],
        vec![mesh_config(true, true)],
        vec![connection_settings("shop/z", "b", &json!({"tcp": {"maxConnections": 1}}))],
        vec![pod("shop/b3", "shop/b1", "b", &["10.1.0.9"])],
        vec![service("shop/elsewhere", "db", &["10.9.0.7"], &[(80, 8080, Http)])],
        vec![split("shop/canary", "b", &[("db", 1)], &[])],
        vec![open("http")],
    ] {
        let edited = limited(&limit(10), &[("/a", limit(1))], more);
        let changed = changed(&plain(), &edited);
        assert!(!changed.contains(FILTER) && !chain_differs(&plain(), &edited), "{changed:?}");
    }
}
