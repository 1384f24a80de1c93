//! Which pods get a sidecar.
//!
//! Owns the one rule, for the catalog and for those who start pods. Reading the labels and annotations is
//! the source's task.

use crate::api::core::Namespace;

/// Whether a pod in `namespace` gets a sidecar. The namespace must be monitored; then the pod's own
/// annotation decides (`pod`), then the namespace's, and without either the answer is yes.
pub fn applies(namespace: &Namespace, pod: Option<bool>) -> bool {
    namespace.monitored && pod.or(namespace.injection).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_of_the_pod_decides_before_that_of_a_monitored_namespace() {
        let (yes, no) = (Some(true), Some(false));
        for (sentence, monitored, namespace, pod, expected) in [
            ("a monitored namespace injects by default", true, None, None, true),
            ("a namespace that asks for sidecars gets them", true, yes, None, true),
            ("a namespace that refuses sidecars gets none", true, no, None, false),
            ("a pod that asks gets one", true, None, yes, true),
            ("a pod that refuses gets none", true, None, no, false),
            ("a pod that asks overrides its namespace", true, no, yes, true),
            ("a pod that refuses overrides its namespace", true, yes, no, false),
            ("outside the mesh silence means no", false, None, None, false),
            ("outside the mesh the namespace's wish does not count", false, yes, None, false),
            ("outside the mesh the pod's wish does not count", false, yes, yes, false),
        ] {
            let namespace = Namespace { name: "shop".to_owned(), monitored, injection: namespace };
            assert_eq!(applies(&namespace, pod), expected, "{sentence}");
        }
    }
}
