//! What is kept of an object as it arrives: the fields that the mesh reads.
//!
//! Owns the fields of each kind. The rest (managed fields, status, volumes, environment) is skipped while the
//! object is read and never held: of a pod of 8 KiB some 500 bytes remain. Pure.

use smc_decode::core::{
    IGNORE_LABEL, INJECTION_ANNOTATION, MONITORED_BY_LABEL, PERMISSIVE_ANNOTATION, PROXY_UUID_LABEL,
};
use smc_sidecar::injection::{METRICS_ANNOTATION, MIRROR_ANNOTATION};
use smc_types::object_ref::Kind;

/// The parts of a value that are kept. A value of another shape is kept whole, so that its reader refuses it.
#[derive(Debug)]
pub(super) enum FieldFilter {
    All,
    /// Of an object, these fields.
    Fields(&'static [(&'static str, FieldFilter)]),
    /// Of every element of a list, this.
    Items(&'static FieldFilter),
}

use FieldFilter::{All, Fields, Items};

/// What names a version of an object; it is taken off before objects are compared.
const VERSION: (&str, FieldFilter) = ("resourceVersion", All);

static NAMED: FieldFilter = Fields(&[("metadata", Fields(&[("name", All), ("namespace", All), VERSION]))]);

static NAMESPACE: FieldFilter = Fields(&[(
    "metadata",
    Fields(&[
        ("name", All),
        ("labels", Fields(&[(MONITORED_BY_LABEL, All), (IGNORE_LABEL, All)])),
        (
            "annotations",
            Fields(&[(INJECTION_ANNOTATION, All), (METRICS_ANNOTATION, All), (PERMISSIVE_ANNOTATION, All)]),
        ),
        VERSION,
    ]),
)]);

static SERVICE: FieldFilter = Fields(&[
    ("metadata", Fields(&[("name", All), ("namespace", All), VERSION])),
    (
        "spec",
        Fields(&[
            ("type", All),
            ("clusterIP", All),
            ("clusterIPs", All),
            ("selector", All),
            ("ports", All),
            ("sessionAffinity", All),
            ("sessionAffinityConfig", All),
            // They have no effect, which is reported.
            ("internalTrafficPolicy", All),
            ("trafficDistribution", All),
            ("externalIPs", All),
        ]),
    ),
]);

static CONTAINER: FieldFilter = Fields(&[("name", All), ("restartPolicy", All), ("ports", All)]);
static CONDITION: FieldFilter = Fields(&[("type", All), ("status", All)]);

static POD: FieldFilter = Fields(&[
    (
        "metadata",
        Fields(&[
            ("name", All),
            ("namespace", All),
            ("labels", All),
            ("deletionTimestamp", All),
            ("annotations", Fields(&[(INJECTION_ANNOTATION, All), (MIRROR_ANNOTATION, All)])),
            VERSION,
        ]),
    ),
    (
        "spec",
        Fields(&[
            ("serviceAccountName", All),
            ("serviceAccount", All),
            ("hostNetwork", All),
            ("os", Fields(&[("name", All)])),
            ("readinessGates", All),
            ("containers", Items(&CONTAINER)),
            ("initContainers", Items(&CONTAINER)),
        ]),
    ),
    ("status", Fields(&[("phase", All), ("podIP", All), ("podIPs", All), ("conditions", Items(&CONDITION))])),
]);

static ENDPOINT: FieldFilter = Fields(&[
    ("addresses", All),
    ("conditions", All),
    ("targetRef", Fields(&[("kind", All), ("namespace", All), ("name", All)])),
]);

static ENDPOINT_SLICE: FieldFilter = Fields(&[
    ("metadata", Fields(&[("name", All), ("namespace", All), ("labels", All), VERSION])),
    ("addressType", All),
    ("ports", All),
    ("endpoints", Items(&ENDPOINT)),
]);

static MESH_WORKLOAD: FieldFilter = Fields(&[
    (
        "metadata",
        Fields(&[
            ("name", All),
            ("namespace", All),
            ("labels", Fields(&[(PROXY_UUID_LABEL, All)])),
            ("deletionTimestamp", All),
            ("generation", All),
            VERSION,
        ]),
    ),
    ("spec", All),
]);

/// Another custom resource. Its labels and annotations mean nothing to the mesh.
static CUSTOM: FieldFilter = Fields(&[
    ("metadata", Fields(&[("name", All), ("namespace", All), ("generation", All), VERSION])),
    ("spec", All),
]);

/// The kinds of which other fields are kept than of all custom resources.
const OWN_FIELDS: [(Kind, &FieldFilter); 6] = [
    (Kind::Namespace, &NAMESPACE),
    (Kind::Service, &SERVICE),
    (Kind::ServiceAccount, &NAMED),
    (Kind::Pod, &POD),
    (Kind::EndpointSlice, &ENDPOINT_SLICE),
    (Kind::MeshWorkload, &MESH_WORKLOAD),
];

/// What is kept of an object of this kind.
pub(super) fn of(kind: Kind) -> &'static FieldFilter {
    OWN_FIELDS.iter().find(|(of, _)| *of == kind).map_or(&CUSTOM, |(_, keep)| keep)
}

impl FieldFilter {
    /// The part of a field's value that is kept; `None` if the field is skipped.
    pub(super) fn field(&self, name: &[u8]) -> Option<&Self> {
        match self {
            Self::Fields(fields) => {
                fields.iter().find(|(kept, _)| kept.as_bytes() == name).map(|(_, keep)| keep)
            }
            Self::All | Self::Items(_) => Some(&All),
        }
    }

    /// The part of an element's value that is kept.
    pub(super) fn item(&self) -> &Self {
        match self {
            Self::Items(item) => item,
            Self::All | Self::Fields(_) => &All,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use smc_decode::core::coverage::{self, Treatment};

    use super::super::kept::read;
    use super::*;

    fn kept(kind: Kind, object: &Value) -> Value {
        read(object.to_string().as_bytes(), of(kind)).unwrap()
    }

    #[test]
    fn of_an_object_the_fields_that_the_mesh_reads_are_kept() {
        let pod = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "a", "namespace": "b", "resourceVersion": "7", "uid": "x",
                "managedFields": [{"fieldsV1": {"f:spec": {}}}], "labels": {"app": "a"},
                "annotations": {INJECTION_ANNOTATION: "enabled", MIRROR_ANNOTATION: "1", "last-applied": "{}"}},
            "spec": {"nodeName": "n", "os": {"name": "linux"}, "volumes": [{}], "serviceAccountName": "s",
                "readinessGates": [{"conditionType": "g"}],
                "containers": [{"name": "c", "env": [{}], "ports": [{"containerPort": 80}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "qosClass": "Burstable",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        assert_eq!(
            kept(Kind::Pod, &pod),
            json!({
                "metadata": {"name": "a", "namespace": "b", "resourceVersion": "7", "labels": {"app": "a"},
                    "annotations": {INJECTION_ANNOTATION: "enabled", MIRROR_ANNOTATION: "1"}},
                "spec": {"os": {"name": "linux"}, "serviceAccountName": "s", "readinessGates": [{"conditionType": "g"}],
                    "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
                "status": {"phase": "Running", "podIP": "10.0.0.1",
                    "conditions": [{"type": "Ready", "status": "True"}]},
            })
        );
        let spec = json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "selector": {"app": "a"}, "ports": [{"port": 80}], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}, "internalTrafficPolicy": "Local",
            "trafficDistribution": "PreferClose", "externalIPs": ["192.0.2.1"]});
        let mut service = json!({"metadata": {"name": "a"}, "spec": spec});
        let expected = service.clone();
        service["status"] = json!({"loadBalancer": {}});
        assert_eq!(kept(Kind::Service, &service), expected);
        let target = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"any": [1, 2.5, null, true]},
            "status": {"conditions": []}});
        let expected = json!({"metadata": {"name": "a"}, "spec": {"any": [1, 2.5, null, true]}});
        assert_eq!(kept(Kind::TrafficTarget, &target), expected);
        let namespace =
            json!({"metadata": {"name": "a", "annotations": {METRICS_ANNOTATION: "enabled", "x": "y"}}});
        let expected = json!({"metadata": {"name": "a", "annotations": {METRICS_ANNOTATION: "enabled"}}});
        assert_eq!(kept(Kind::Namespace, &namespace), expected, "pods of the namespace are scraped by it");
        // What the identity and the readiness of a machine depend on is not only its spec.
        let machine = json!({"metadata": {"name": "a", "namespace": "b", "generation": 3,
            "labels": {PROXY_UUID_LABEL: "u", "app": "a"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"services": ["s"]}, "status": {"conditions": []}});
        let mut expected = machine.clone();
        expected.as_object_mut().unwrap().remove("status");
        expected["metadata"]["labels"].as_object_mut().unwrap().remove("app");
        assert_eq!(kept(Kind::MeshWorkload, &machine), expected);
    }

    /// Whether a field's value passes, whole.
    fn passes(keep: &FieldFilter, path: &str) -> bool {
        let mut steps = path.split('.').flat_map(|step| {
            let name = step.trim_end_matches("[]");
            [Some(name), (name != step).then_some("")].into_iter().flatten()
        });
        let last = steps.try_fold(keep, |keep, step| {
            if step.is_empty() { Some(keep.item()) } else { keep.field(step.as_bytes()) }
        });
        last.is_some()
    }

    #[test]
    fn every_field_that_has_an_effect_or_is_reported_is_kept() {
        for (kind, rows) in
            [(Kind::Service, coverage::SERVICE), (Kind::EndpointSlice, coverage::ENDPOINT_SLICE)]
        {
            for (path, treatment) in rows {
                // The list that an object came in says what it is.
                let wanted =
                    !matches!(treatment, Treatment::Meaningless(_)) && !["apiVersion", "kind"].contains(path);
                assert!(!wanted || passes(of(kind), path), "{kind:?} {path}");
            }
        }
        for (path, treatment) in coverage::POD_SPEC {
            let wanted = !matches!(treatment, Treatment::Meaningless(_));
            assert!(!wanted || passes(of(Kind::Pod), &format!("spec.{path}")), "{path}");
        }
        assert!(!passes(of(Kind::Service), "spec.externalName"));
    }

    #[test]
    fn a_value_of_another_shape_is_kept_for_its_reader_to_refuse() {
        for object in [
            json!({"metadata": {"name": "a"}, "spec": 7}),
            json!({"metadata": {"name": "a"}, "spec": {"containers": {"name": "x"}}}),
            json!({"metadata": {"name": "a"}, "spec": ["x", {"y": "z"}]}),
            json!([{"metadata": 1}]),
            json!("text"),
        ] {
            assert_eq!(kept(Kind::Pod, &object), object);
        }
    }
}
