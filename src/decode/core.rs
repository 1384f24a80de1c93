//! Objects of the Kubernetes core and discovery groups as domain objects.
//!
//! Owns the reading rules of the kinds that the mesh uses. Pure: every function takes one API object and
//! returns the domain object and its problems.
//!
//! An API server has validated most of what is checked here; a directory of YAML has not. Checks follow the
//! Kubernetes API conventions. The safe reading is always the narrower one: what cannot be understood is
//! left out and reported, never guessed.

mod address;
pub mod coverage;
mod endpoint_slice;
mod meta;
mod namespace;
mod pod;
mod port;
mod protocol;
mod service;

pub use endpoint_slice::read_endpoint_slice;
pub(crate) use meta::object_ref;
pub use meta::{DEFAULT_NAMESPACE, service_account};
pub use namespace::{
    IGNORE_LABEL, INJECTION_ANNOTATION, MONITORED_BY_LABEL, PERMISSIVE_ANNOTATION, read_namespace,
};
pub use pod::{PROXY_UUID_LABEL, gets_sidecar, read_pod};
pub use service::read_service;

use meta::namespaced;

#[cfg(test)]
pub(crate) mod testing {
    //! Objects for tests, written as the JSON that an API server would send.

    use serde::de::DeserializeOwned;
    use serde_json::Value;
    use smc_types::problem::{Problem, Severity};

    /// `json` as an API object.
    pub(crate) fn object<T: DeserializeOwned>(json: Value) -> T {
        serde_json::from_value(json).unwrap()
    }

    /// Severity and field of each problem, in order.
    pub(crate) fn fields(problems: &[Problem]) -> Vec<(Severity, &str)> {
        problems.iter().map(|p| (p.severity, p.field.as_str())).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use smc_mesh::catalog::{Catalog, Object, SourceEvent};

    use super::testing::object;
    use super::*;
    use crate::{Platform, Rules};

    /// The label is the namespace's; an annotation may refuse.
    #[test]
    fn a_label_puts_a_pod_into_the_mesh_and_the_pods_own_annotation_wins() {
        let annotated = |value: Option<&str>| match value {
            Some(value) => json!({INJECTION_ANNOTATION: value}),
            None => Value::Null,
        };
        let (yes, no) = (Some("enabled"), Some("disabled"));
        for (monitored, of_namespace, of_pod, host, expected) in [
            (true, None, None, false, true),
            (true, yes, None, false, true),
            (true, no, None, false, false),
            (true, no, yes, false, true),
            (true, yes, no, false, false),
            (true, None, no, false, false),
            (true, None, yes, true, false),
            (true, Some("maybe"), None, false, false),
            (false, None, None, false, false),
            (false, yes, None, false, false),
            (false, yes, yes, false, false),
        ] {
            let labels = if monitored { json!({MONITORED_BY_LABEL: "smc"}) } else { Value::Null };
            let meta = json!({"name": "shop", "labels": labels, "annotations": annotated(of_namespace)});
            let namespace =
                read_namespace(&object(json!({ "metadata": meta })), &Rules::default()).object.unwrap();
            let meta = json!({"name": "store", "namespace": "shop", "annotations": annotated(of_pod)});
            let pod = json!({"metadata": meta, "spec": {"hostNetwork": host, "containers": []}});
            let workload = read_pod(&object(pod), Platform::Files).object.unwrap();
            let mut catalog = Catalog::default();
            catalog.apply(SourceEvent::Upsert(Object::from(workload.clone())));
            assert!(!catalog.in_mesh(&workload), "the namespace is not known yet");
            catalog.apply(SourceEvent::Upsert(Object::Namespace(namespace)));
            let case = (monitored, of_namespace, of_pod, host);
            assert_eq!(catalog.in_mesh(&workload), expected, "{case:?}");
        }
    }
}
