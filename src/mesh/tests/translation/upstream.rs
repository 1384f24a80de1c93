//! What Retries and UpstreamTrafficSettings become.

use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use envoy_types::pb::envoy::config::route::v3::RetryPolicy;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use serde_json::Value;

use super::*;

fn alice_retries(policy: &Value) -> Input {
    let spec = json!({
        "source": {"kind": "ServiceAccount", "name": "a", "namespace": "shop"},
        "destinations": [{"kind": "Service", "name": "b", "namespace": "shop"}],
        "retryPolicy": policy,
    });
    retry("shop/r", spec)
}

fn served_policy(compiler: &Compiler) -> Option<RetryPolicy> {
    let route = names::outbound_route(&"shop/b".parse().unwrap(), 80);
    let routes: RouteConfiguration = get(&view(compiler, "shop/a").unwrap(), ResourceType::Route, &route);
    routes.virtual_hosts[0].retry_policy.clone()
}

fn threshold(compiler: &Compiler, cluster: &str) -> Thresholds {
    let cluster: Cluster = get(&view(compiler, "shop/a").unwrap(), ResourceType::Cluster, cluster);
    cluster.circuit_breakers.unwrap().thresholds.remove(0)
}

const OWN: &str = "connect-failure,refused-stream,reset-before-request,retriable-headers";

#[test]
fn a_retry_adds_to_what_is_sent_again_anyway() {
    let mut compiler = shop([a_may_call("shop/b1")]);
    let own = served_policy(&compiler).unwrap();
    assert_eq!((own.retry_on.as_str(), own.num_retries.unwrap().value), (OWN, 2));
    // The policy, the conditions that are added, how often.
    for (policy, added, retries) in [
        (json!({"retryOn": "5xx"}), ",5xx", 2),
        (json!({"retryOn": "5xx", "numRetries": 1}), ",5xx", 1),
        (json!({"retryOn": "unavailable,5xx,connect-failure", "numRetries": 7}), ",5xx,unavailable", 7),
        (json!({"retryOn": "connect-failure", "numRetries": 3}), "", 3),
    ] {
        compiler.apply([alice_retries(&policy)]);
        let served = served_policy(&compiler).unwrap();
        assert_eq!(served.retry_on, format!("{OWN}{added}"), "{policy}");
        assert_eq!(served.num_retries.unwrap().value, retries, "{policy}");
        let expected =
            RetryPolicy { retry_on: served.retry_on.clone(), num_retries: served.num_retries, ..own.clone() };
        assert_eq!(served, expected, "the rest is as it was");
    }
    let timed = json!({"retryOn": "5xx", "perTryTimeout": "1s", "retryBackoffBaseInterval": "50ms"});
    compiler.apply([alice_retries(&timed)]);
    let served = served_policy(&compiler).unwrap();
    assert_eq!(served.per_try_timeout.unwrap().seconds, 1);
    assert_eq!(served.retry_back_off.unwrap().base_interval.unwrap().nanos, 50_000_000);
}

#[test]
fn a_retry_of_none_switches_everything_off_for_its_pair() {
    let mut compiler = shop([a_may_call("shop/b1"), a_may_call("shop/db")]);
    compiler.apply([alice_retries(&json!({"retryOn": "5xx", "numRetries": 0}))]);
    assert_eq!(served_policy(&compiler), None);
    let cluster = threshold(&compiler, "shop/b|80");
    compiler.apply([alice_retries(&json!({"retryOn": "5xx", "numRetries": 3}))]);
    assert_eq!(threshold(&compiler, "shop/b|80"), cluster, "its number replaces no cluster");
}

#[test]
fn retries_have_a_budget_where_a_person_asked_for_them_and_nowhere_else() {
    let mut compiler = shop([
        a_may_call("shop/b1"),
        pod("shop/v1", "shop/b1", "v1", &["10.1.0.9"]),
        service("shop/v1", "v1", &["10.9.0.9"], &[(80, 8080, Http)]),
        service("shop/v2", "v1", &["10.9.0.8"], &[(80, 8080, Http)]),
        split("shop/s", "b", &[("v1", 1)], &[]),
    ]);
    let budgets = |compiler: &Compiler| {
        ["shop/b|80", "shop/v1|80", "shop/v2|80"].map(|name| threshold(compiler, name).retry_budget.is_some())
    };
    assert_eq!(budgets(&compiler), [false; 3]);
    compiler.apply([alice_retries(&json!({"retryOn": "5xx"}))]);
    assert_eq!(budgets(&compiler), [true, true, false], "of the service, and where its split leads");
    // A number that a person gave is obeyed in the place of it.
    compiler.apply([connection_settings("shop/u", "v1", &json!({"http": {"maxRetries": 3}}))]);
    assert_eq!(budgets(&compiler), [true, false, false]);
    assert_eq!(threshold(&compiler, "shop/v1|80").max_retries.unwrap().value, 3);
}

#[test]
fn what_a_service_can_bear_is_in_the_clusters_of_its_callers() {
    let mut compiler = shop([a_may_call("shop/b1"), a_may_call("shop/db")]);
    let [b, db] = ["shop/b|80", "shop/db|3306"];
    let cluster = |compiler: &Compiler, name: &str| -> Cluster {
        get(&view(compiler, "shop/a").unwrap(), ResourceType::Cluster, name)
    };
    let before = cluster(&compiler, db);
    compiler.apply([connection_settings(
        "shop/u",
        "b",
        &json!({
            "tcp": {"maxConnections": 1, "connectTimeout": "250ms"},
            "http": {"maxRequests": 2, "maxRequestsPerConnection": 3, "maxPendingRequests": 4, "maxRetries": 5},
        }),
    )]);
    let found = threshold(&compiler, b);
    let value = |limit: &Option<_>| {
        limit.as_ref().map(|limit: &envoy_types::pb::google::protobuf::UInt32Value| limit.value)
    };
    let limits =
        [&found.max_connections, &found.max_requests, &found.max_pending_requests, &found.max_retries]
            .map(value);
    assert_eq!(limits, [Some(1), Some(2), Some(4), Some(5)]);
    let served = cluster(&compiler, b);
    assert_eq!(served.connect_timeout.unwrap().nanos, 250_000_000);
    let options = served.typed_extension_protocol_options.into_values().next().unwrap();
    let options = HttpProtocolOptions::decode(&*options.value).unwrap();
    assert_eq!(value(&options.common_http_protocol_options.unwrap().max_requests_per_connection), Some(3));
    assert_eq!(cluster(&compiler, db), before, "no other service is limited");
    let settings = json!({"tcp": {"maxConnections": 9}, "http": {"maxRequests": 1, "maxPendingRequests": 1}});
    compiler.apply([connection_settings("shop/v", "db", &settings)]);
    let found = threshold(&compiler, db);
    assert_eq!(value(&found.max_connections), Some(9));
    let of_requests = [value(&found.max_requests), value(&found.max_pending_requests)];
    assert_eq!(of_requests, [Some(u32::MAX); 2], "limits of requests bound no connection over TCP");
}

#[test]
fn what_an_envoy_refuses_leads_to_the_objects_of_its_limits_and_retries() {
    let compiler = shop([
        a_may_call("shop/b1"),
        alice_retries(&json!({"retryOn": "5xx"})),
        connection_settings("shop/u", "b", &json!({"tcp": {"maxConnections": 1}})),
    ]);
    let view = view(&compiler, "shop/a").unwrap();
    let made_of = |kind, name: &str| {
        let objects = view.get(kind, name).unwrap().made_of.iter();
        objects.map(ToString::to_string).collect::<Vec<_>>()
    };
    let route = names::outbound_route(&"shop/b".parse().unwrap(), 80);
    assert_eq!(made_of(ResourceType::Route, &route), ["Service shop/b", "Retry shop/r"]);
    assert_eq!(
        made_of(ResourceType::Cluster, "shop/b|80"),
        ["Service shop/b", "Retry shop/r", "UpstreamTrafficSetting shop/u"]
    );
}
