//! Each kind as OSM's documents write it, and what is wrong with objects that mean nothing.

use serde_json::json;
use smc_types::problem::Severity;

use super::*;
use crate::osm::egress::read_egress;
use crate::osm::telemetry::read_telemetry;

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

fn telemetry() -> Value {
    json!({
        "selector": {"app": "httpbin"},
        "accessLog": {"format": "[%START_TIME%]", "openTelemetry": {"attributes": {"a": "b"}}},
    })
}

fn kinds() -> [(Read, Value); 2] {
    [(read_egress as Read, egress()), (read_telemetry, telemetry())]
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
        (1, "/selector/app", json!(7), "spec.selector.app"),
        (1, "/accessLog", json!("on"), "spec.accessLog"),
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
