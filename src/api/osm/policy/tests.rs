//! Each kind as OSM's documents write it, and what is wrong with objects that mean nothing.

use serde_json::json;
use smc_types::problem::Severity;

use super::*;
use crate::osm::egress::read_egress;
use crate::osm::retry::read_retry;
use crate::osm::telemetry::read_telemetry;
use crate::osm::upstream_traffic_setting::read_upstream_traffic_setting;

type Read = fn(&NamespacedName, Value) -> Reading<()>;

/// The fields with an error.
fn errors(read: Read, spec: &Value) -> Vec<String> {
    let reading = read(&"shop/object".parse().unwrap(), spec.clone());
    let first = reading.problems.first().unwrap();
    assert_eq!((first.severity, first.message.as_str()), (Severity::Warning, NOT_ENFORCED));
    let errors = reading.problems.into_iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| problem.field).collect()
}

fn egress() -> Value {
    json!({
        "sources": [{"kind": "ServiceAccount", "name": "curl", "namespace": "curl"}],
        "hosts": ["httpbin.org"],
        "ipAddresses": ["10.0.0.0/8"],
        "ports": [{"number": 80, "protocol": "http"}],
        "matches": [{"apiGroup": "specs.smi-spec.io/v1alpha4", "kind": "HTTPRouteGroup", "name": "get"}],
    })
}

fn retry() -> Value {
    json!({
        "source": {"kind": "ServiceAccount", "name": "curl", "namespace": "shop"},
        "destinations": [{"kind": "Service", "name": "httpbin", "namespace": "httpbin"}],
        "retryPolicy": {
            "retryOn": "5xx", "perTryTimeout": "1s", "numRetries": 5, "retryBackoffBaseInterval": "1s",
        },
    })
}

fn upstream() -> Value {
    json!({
        "host": "httpbin.shop.svc.cluster.local",
        "connectionSettings": {
            "tcp": {"maxConnections": 1, "connectTimeout": "5s"},
            "http": {"maxRequests": 1, "maxRequestsPerConnection": 1, "maxPendingRequests": 1, "maxRetries": 1},
        },
        "rateLimit": {"local": {
            "tcp": {"connections": 1, "unit": "minute", "burst": 2},
            "http": {"requests": 3, "unit": "minute", "responseStatusCode": 509,
                "responseHeadersToAdd": [{"name": "hello", "value": "world"}]},
        }},
        "httpRoutes": [{"path": "/status/200", "rateLimit": {"local": {"requests": 3, "unit": "minute"}}}],
    })
}

fn telemetry() -> Value {
    json!({
        "selector": {"app": "httpbin"},
        "accessLog": {"format": "[%START_TIME%]", "openTelemetry": {"attributes": {"a": "b"}}},
    })
}

fn kinds() -> [(Read, Value); 4] {
    [
        (read_egress as Read, egress()),
        (read_retry, retry()),
        (read_telemetry, telemetry()),
        (read_upstream_traffic_setting, upstream()),
    ]
}

#[test]
fn an_object_as_osm_takes_it_is_accepted_and_not_enforced() {
    for (read, spec) in kinds() {
        assert_eq!(errors(read, &spec), Vec::<String>::new(), "{spec}");
        let reading = read(&"shop/object".parse().unwrap(), spec);
        assert_eq!(reading.problems.len(), 1, "{:?}", reading.problems);
    }
}

#[test]
fn what_can_mean_nothing_is_an_error_at_its_field() {
    for (index, pointer, value, field) in [
        (0, "/sources", json!([]), "spec.sources"),
        (0, "/sources/0/kind", json!("Pod"), "spec.sources[0].kind"),
        (0, "/sources/0/namespace", json!("A"), "spec.sources[0]"),
        (0, "/ipAddresses/0", json!("10.0.0.0/33"), "spec.ipAddresses[0]"),
        (0, "/ports/0/number", json!(0), "spec.ports[0].number"),
        (0, "/ports/0/protocol", json!("udp"), "spec.ports[0].protocol"),
        (0, "/matches/0/kind", json!("TCPRoute"), "spec.matches[0].kind"),
        (1, "/source/namespace", json!("other"), "spec.source.namespace"),
        (1, "/destinations/0/kind", json!("Pod"), "spec.destinations[0].kind"),
        (1, "/retryPolicy/perTryTimeout", json!("soon"), "spec.retryPolicy.perTryTimeout"),
        (1, "/retryPolicy/numRetries", json!(-1), "spec.retryPolicy.numRetries"),
        (2, "/selector/app", json!(7), "spec.selector.app"),
        (2, "/accessLog", json!("on"), "spec.accessLog"),
        (3, "/host", json!("httpbin"), "spec.host"),
        (3, "/host", json!("httpbin..svc.cluster.local"), "spec.host"),
        (3, "/host", json!("http://httpbin.shop"), "spec.host"),
        (
            3,
            "/connectionSettings/tcp/connectTimeout",
            json!("5"),
            "spec.connectionSettings.tcp.connectTimeout",
        ),
        (3, "/rateLimit/local/http/unit", json!("day"), "spec.rateLimit.local.http.unit"),
        (3, "/httpRoutes/0/path", json!("("), "spec.httpRoutes[0].path"),
    ] {
        let (read, mut spec) = kinds()[index].clone();
        *spec.pointer_mut(pointer).unwrap() = value;
        assert!(errors(read, &spec).contains(&field.to_owned()), "{pointer}: {:?}", errors(read, &spec));
    }
}

#[test]
fn an_egress_has_one_upstream_setting_at_most() {
    let mut spec = egress();
    let setting = json!({"kind": "UpstreamTrafficSetting", "name": "a"});
    spec["matches"] = json!([setting, setting]);
    assert_eq!(errors(read_egress, &spec), ["spec.matches"]);
}

/// For an Egress, as OSM's guide on circuit breaking has it.
#[test]
fn an_upstream_setting_may_be_for_a_host_outside_of_the_mesh() {
    for host in ["httpbin.other.svc.cluster.local", "httpbin.org"] {
        let mut spec = upstream();
        spec["host"] = json!(host);
        assert_eq!(errors(read_upstream_traffic_setting, &spec), Vec::<String>::new(), "{host}");
    }
}
