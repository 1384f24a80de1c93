//! What holds whatever is read.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::mesh_workload::{MeshWorkloadMeta, read_mesh_workload};
use crate::osm::{
    read_egress, read_ingress_backend, read_mesh_config, read_retry, read_telemetry,
    read_upstream_traffic_setting,
};
use crate::smi::{
    SplitVersion, read_http_route_group, read_tcp_route, read_traffic_split, read_traffic_target,
    read_udp_route,
};
use smc_types::ids::NamespacedName;
use smc_types::problem::{Reading, Severity};

/// JSON made of the words that the readers look for, in the wrong places as often as in the right ones.
fn garbage() -> impl Strategy<Value = Value> {
    let word = proptest::sample::select(vec![
        "kind",
        "name",
        "namespace",
        "matches",
        "rules",
        "sources",
        "destination",
        "ports",
        "service",
        "backends",
        "weight",
        "pathRegex",
        "methods",
        "headers",
        "traffic",
        "certificate",
        "serviceCertValidityDuration",
        "enableEgress",
        "addresses",
        "serviceAccountName",
        "services",
        "number",
        "drained",
        "192.0.2.1",
        "HTTPRouteGroup",
        "TCPRoute",
        "ServiceAccount",
        "GET",
        "*",
        "shop",
        "500m",
        "1h",
        "/a(b",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let field = (word.clone(), inner.clone()).prop_map(|(name, value)| (name.to_owned(), value));
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            proptest::collection::vec(field, 0..6).prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

/// An object without effect says why, in a bounded number of words that name it.
fn accounted<T>(reading: &Reading<T>) -> Result<(), TestCaseError> {
    let errors = reading.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    prop_assert!(reading.object.is_some() || errors > 0);
    prop_assert!(reading.problems.len() <= 33);
    prop_assert!(reading.problems.iter().all(|problem| problem.subject.to_string().ends_with("shop/x")));
    prop_assert!(reading.problems.iter().all(|problem| problem.message.len() < 500));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_read_is_taken_or_accounted_for(value in garbage()) {
        let id: NamespacedName = "shop/x".parse().unwrap();
        for spec in [value.clone(), json!({"matches": value}), json!({"rules": value}), json!({"backends": value})] {
            accounted(&read_traffic_target(id.clone(), spec.clone()))?;
            accounted(&read_http_route_group(id.clone(), spec.clone()))?;
            accounted(&read_tcp_route(id.clone(), spec.clone()))?;
            accounted(&read_udp_route(id.clone(), spec.clone()))?;
            for version in [SplitVersion::V1Alpha1, SplitVersion::V1Alpha4] {
                accounted(&read_traffic_split(id.clone(), version, spec.clone()))?;
            }
            accounted(&read_mesh_workload(id.clone(), MeshWorkloadMeta::default(), spec.clone()))?;
            for read in [
                read_egress,
                read_ingress_backend,
                read_retry,
                read_telemetry,
                read_upstream_traffic_setting,
            ] {
                accounted(&read(id.clone(), spec.clone()))?;
            }
            accounted(&read_mesh_config(id.clone(), spec))?;
        }
    }

    #[test]
    fn a_route_group_never_matches_more_for_having_a_part_that_cannot_be_read(
        part in prop_oneof![Just("pathRegex"), Just("methods"), Just("headers")],
        value in garbage(),
    ) {
        let mut route = json!({"name": "m"});
        route[part] = value.clone();
        let reading = read_http_route_group("shop/x".parse().unwrap(), json!({"matches": [route]}));
        let everything = read_http_route_group("shop/x".parse().unwrap(), json!({"matches": [{"name": "m"}]}));
        let (group, everything) = (reading.object.unwrap(), everything.object.unwrap());
        if group == everything {
            // It matches everything only where the part says so in as many words.
            let star = value.as_array().is_some_and(|methods| methods.contains(&json!("*")));
            let empty = value == json!("") || value == json!([]) || value == json!({})
                || value.as_array().is_some_and(|maps| maps.iter().all(|map| *map == json!({})));
            prop_assert!(star || empty, "{}", value);
        }
    }
}
