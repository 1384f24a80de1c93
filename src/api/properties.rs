//! What holds whatever is read.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use smc_types::ids::NamespacedName;
use smc_types::problem::{Problem, Severity};

use crate::kind::{CustomKind, Declared};
use crate::kinds;
use crate::smi::read_http_route_group;

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
fn accounted(
    kind: &CustomKind,
    version: &'static str,
    id: &NamespacedName,
    spec: &Value,
) -> Result<(), TestCaseError> {
    let declared =
        Declared { id: id.clone(), version, proxy_uuid: None, terminating: false, spec: spec.clone() };
    let reading = (kind.read)(declared);
    let is_error = |problem: &Problem| problem.severity == Severity::Error;
    prop_assert!(reading.object.is_some() || reading.problems.iter().any(is_error));
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
            for kind in kinds() {
                for version in kind.kind.spec().versions {
                    accounted(kind, version, &id, &spec)?;
                }
            }
        }
    }

    #[test]
    fn the_example_of_a_kind_is_without_a_mistake(namespace in "[a-z]{1,8}") {
        for kind in kinds() {
            let name = kind.only_name.unwrap_or("x");
            let id = format!("{namespace}/{name}").parse().unwrap();
            let version = kind.kind.spec().versions[0];
            let spec = (kind.example)(&namespace);
            let reading = (kind.read)(Declared { id, version, proxy_uuid: None, terminating: false, spec });
            prop_assert!(reading.object.is_some(), "{}", kind.kind);
            prop_assert!(reading.problems.iter().all(|one| one.severity == Severity::Warning), "{:?}", reading);
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
            let empty = value == json!("") || value == json!([])
                || value.as_array().is_some_and(|maps| maps.iter().all(|map| *map == json!({})));
            prop_assert!(star || empty, "{}", value);
        }
    }
}
