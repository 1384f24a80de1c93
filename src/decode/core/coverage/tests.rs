//! The table against the schemas, and what it reports.

use k8s_openapi::api::core::v1::{PodSpec, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::json;
use smc_testkit::schema;
use smc_types::problem::Severity::Warning;

use super::super::read_service;
use super::super::testing::{fields, object};
use super::*;

/// The fields of a kind that no row stands for, and the rows that stand for none.
fn differences<T: JsonSchema>(rows: &'static [Row]) -> (Vec<String>, Vec<&'static str>) {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let root = serde_json::to_value(&schema).unwrap();
    schema::differences(&root, &root, rows.iter().map(|(field, _)| *field))
}

/// The schemas are those of the newest Kubernetes whose types are compiled in, and hold those of older ones.
#[test]
fn every_field_of_kubernetes_own_kinds_has_a_row() {
    let none = (Vec::new(), Vec::new());
    assert_eq!(differences::<Service>(SERVICE), none);
    assert_eq!(differences::<EndpointSlice>(ENDPOINT_SLICE), none);
    assert_eq!(differences::<PodSpec>(POD_SPEC), none);
}

#[test]
fn a_field_without_a_row_and_a_row_without_a_field_are_found() {
    let (lacking, unknown) = differences::<Service>(&[("spec.ports", Obeyed), ("spec.port", Obeyed)]);
    assert!(
        lacking.contains(&"spec.sessionAffinityConfig.clientIP.timeoutSeconds".to_owned()),
        "{lacking:?}"
    );
    assert_eq!(unknown, ["spec.port"]);
}

#[test]
fn each_reason_for_passing_a_field_by_is_a_sentence_of_its_own() {
    for (field, treatment) in [SERVICE, ENDPOINT_SLICE, POD_SPEC].into_iter().flatten() {
        if let Meaningless(reason) = treatment {
            assert!(reason.len() > 20 && !reason.ends_with('.'), "{field}: {reason}");
        }
    }
}

#[test]
fn a_field_that_is_not_obeyed_is_a_problem_unless_it_has_its_default() {
    let timeout = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    let after = |seconds: i32| json!({"clientIP": {"timeoutSeconds": seconds}});
    let by = |affinity: &str, seconds| json!({"sessionAffinity": affinity, "sessionAffinityConfig": after(seconds)});
    for (sentence, spec, field) in [
        ("nothing is set", json!({}), None),
        (
            "an API server has filled in the defaults",
            json!({"type": "LoadBalancer", "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
                "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "allocateLoadBalancerNodePorts": true, "publishNotReadyAddresses": false}),
            None,
        ),
        (
            "pods of the caller's node alone",
            json!({"internalTrafficPolicy": "Local"}),
            Some("spec.internalTrafficPolicy"),
        ),
        (
            "pods of the caller's zone first",
            json!({"trafficDistribution": "PreferClose"}),
            Some("spec.trafficDistribution"),
        ),
        ("another address of the service", json!({"externalIPs": ["192.0.2.1"]}), Some("spec.externalIPs")),
        ("an empty list of them", json!({"externalIPs": []}), None),
        ("empty text is no value", json!({"internalTrafficPolicy": "", "trafficDistribution": ""}), None),
        (
            "what comes from outside",
            json!({"type": "NodePort", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30_000, "loadBalancerSourceRanges": ["192.0.2.0/24"]}),
            None,
        ),
        ("the default timeout", by("ClientIP", 10_800), None),
        ("another timeout", by("ClientIP", 60), Some(timeout)),
        ("a timeout without affinity", by("None", 60), None),
    ] {
        let service = json!({"metadata": {"name": "store", "namespace": "shop"}, "spec": spec});
        let reading = read_service(&object(service));
        let expected: Vec<_> = field.into_iter().map(|field| (Warning, field)).collect();
        assert_eq!(fields(&reading.problems), expected, "{sentence}");
        assert!(reading.object.is_some(), "{sentence}: the service has its effect");
    }
}
