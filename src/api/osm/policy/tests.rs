//! Each kind as OSM's documents write it, and what is wrong with objects that mean nothing.

use serde_json::json;
use smc_types::problem::Severity;

use super::*;
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

fn telemetry() -> Value {
    json!({
        "selector": {"app": "httpbin"},
        "accessLog": {"format": "[%START_TIME%]", "openTelemetry": {"attributes": {"a": "b"}}},
    })
}

#[test]
fn an_object_as_osm_takes_it_is_accepted_and_not_enforced() {
    assert_eq!(errors(read_telemetry, &telemetry()), Vec::<String>::new());
    let reading = read_telemetry(&"shop/object".parse().unwrap(), telemetry());
    assert_eq!(reading.problems.len(), 1, "{:?}", reading.problems);
}

#[test]
fn what_can_mean_nothing_is_an_error_at_its_field() {
    for (pointer, value, field) in
        [("/selector/app", json!(7), "spec.selector.app"), ("/accessLog", json!("on"), "spec.accessLog")]
    {
        let mut spec = telemetry();
        *spec.pointer_mut(pointer).unwrap() = value;
        let found = errors(read_telemetry, &spec);
        assert!(found.contains(&field.to_owned()), "{pointer}: {found:?}");
    }
}
