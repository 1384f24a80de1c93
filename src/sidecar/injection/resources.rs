//! What the containers of a sidecar request, and their limits.
//!
//! Owns the annotations of a pod, which go before MeshConfig, and MeshConfig before the preset. Both
//! containers have the same, so that a pod whose containers have limits that equal their requests stays in
//! the class Guaranteed where the sidecar has such, too.

use serde_json::{Value, json};
use smc_model::quantity::is_quantity;
use smc_types::text::truncated;

use super::error::InjectionError;

/// The annotations, and where in `ResourceRequirements` each belongs.
const ANNOTATIONS: [(&str, &str, &str); 4] = [
    ("openservicemesh.io/sidecar-cpu-request", "requests", "cpu"),
    ("openservicemesh.io/sidecar-cpu-limit", "limits", "cpu"),
    ("openservicemesh.io/sidecar-memory-request", "requests", "memory"),
    ("openservicemesh.io/sidecar-memory-limit", "limits", "memory"),
];

/// The resources of a pod's sidecar. An annotation that cannot be read refuses the pod: the API server would,
/// without its name.
pub(super) fn read(pod: &Value, mesh: Option<&Value>) -> Result<Value, InjectionError> {
    let preset = || json!({ "requests": { "cpu": "10m", "memory": "64Mi" } });
    let mut resources = mesh.cloned().unwrap_or_else(preset);
    for (annotation, list, resource) in ANNOTATIONS {
        let Some(text) = pod["metadata"]["annotations"][annotation].as_str() else { continue };
        if !is_quantity(text) {
            let reason = "a quantity is a number, perhaps with a suffix, as in 500m or 64Mi".to_owned();
            return Err(InjectionError::Annotation { annotation, text: truncated(text, 60), reason });
        }
        resources[list][resource] = json!(text);
    }
    Ok(resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(annotations: &Value) -> Value {
        json!({"metadata": {"annotations": annotations}})
    }

    #[test]
    fn annotations_go_before_mesh_config_and_that_before_the_preset() {
        let mesh = json!({"limits": {"cpu": "1", "memory": "256Mi"}});
        let limit = json!({"openservicemesh.io/sidecar-cpu-limit": "100m"});
        let all = json!({
            "openservicemesh.io/sidecar-cpu-request": "20m",
            "openservicemesh.io/sidecar-cpu-limit": "20m",
            "openservicemesh.io/sidecar-memory-request": "96Mi",
            "openservicemesh.io/sidecar-memory-limit": "96Mi",
        });
        let own = json!({"cpu": "20m", "memory": "96Mi"});
        for (annotations, mesh, expected) in [
            (&json!(null), None, json!({"requests": {"cpu": "10m", "memory": "64Mi"}})),
            (&json!(null), Some(&mesh), mesh.clone()),
            (&limit, None, json!({"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "100m"}})),
            (&limit, Some(&mesh), json!({"limits": {"cpu": "100m", "memory": "256Mi"}})),
            (&all, None, json!({"requests": own, "limits": own})),
        ] {
            assert_eq!(read(&annotated(annotations), mesh), Ok(expected), "{annotations}");
        }
    }

    #[test]
    fn an_annotation_that_is_no_quantity_refuses_the_pod_and_is_named() {
        for (annotation, ..) in ANNOTATIONS {
            for text in ["", "lots", "-1", "1 Gi"] {
                let refused = read(&annotated(&json!({annotation: text})), None).unwrap_err().to_string();
                assert!(refused.contains(annotation), "{refused}");
            }
        }
    }
}
