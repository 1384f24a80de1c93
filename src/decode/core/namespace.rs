//! `v1` Namespace: whether its pods are in the mesh.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use smc_model::access_log::Logged;
use smc_model::topology::Namespace;
use smc_sidecar::injection::{self, METRICS_ANNOTATION};
use smc_types::ids::check_label;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Reading, Subject};
use smc_types::text::truncated;

use crate::{Platform, Rules};

/// A namespace with this label belongs to the mesh that the label's value names (OSM's `osm namespace add`).
pub const MONITORED_BY_LABEL: &str = "openservicemesh.io/monitored-by";

/// A namespace with this label is never part of the mesh, whatever else it carries (OSM's opt-out, used
/// for the control plane's own namespace).
pub const IGNORE_LABEL: &str = "openservicemesh.io/ignore";

/// A namespace whose workloads every identity of the mesh may reach has this annotation with the value
/// `true`.
pub const PERMISSIVE_ANNOTATION: &str = "mesh.smc.dev/permissive";

/// What the sidecars of a namespace log: `failures`, `all` or `none`.
pub(super) const ACCESS_LOG_ANNOTATION: &str = "mesh.smc.dev/access-log";

pub use smc_sidecar::injection::INJECTION_ANNOTATION;

/// Reads a Namespace. Files declare one mesh, so a file that names another one is reported.
pub fn read_namespace(namespace: &core::Namespace, rules: &Rules) -> Reading<Namespace> {
    let meta = &namespace.metadata;
    let name = meta.name.clone().unwrap_or_default();
    if let Err(error) = check_label("namespace", &name) {
        let subject = Subject::Misnamed { kind: Kind::Namespace, name };
        let problem = Problem::error(subject, "metadata.name", error.to_string());
        return Reading { object: None, problems: vec![problem] };
    }
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key));
    let ours = label(MONITORED_BY_LABEL).map(|mesh| mesh == rules.mesh.as_str());
    let (injection, refused) = read_injection(meta.annotations.as_ref());
    let metrics = meta.annotations.as_ref().and_then(|all| injection::switch(all.get(METRICS_ANNOTATION)?));
    let metrics = metrics.unwrap_or(false);
    let subject = ObjectRef::Namespace(name.clone());
    let mut problems = Vec::new();
    problems.extend(refused.map(|message| injection_problem(&subject, message)));
    let permissive = read_permissive(meta.annotations.as_ref());
    let permissive = or_problem(permissive, PERMISSIVE_ANNOTATION, &subject, &mut problems);
    let access_log = read_access_log(meta.annotations.as_ref());
    let access_log = or_problem(access_log, ACCESS_LOG_ANNOTATION, &subject, &mut problems);
    if ours == Some(false) && rules.platform == Platform::Files {
        let message = format!(
            "names another mesh than {}, so no pod of the namespace is in this one; see --mesh-name",
            rules.mesh
        );
        problems.push(Problem::warning(subject, format!("metadata.labels[{MONITORED_BY_LABEL}]"), message));
    }
    let monitored = ours == Some(true) && label(IGNORE_LABEL).is_none();
    let namespace = Namespace { name, monitored, injection, metrics, permissive, access_log };
    Reading { object: Some(namespace), problems }
}

/// What an annotation says; its default with a problem, if that cannot be read.
fn or_problem<T: Default>(
    read: Result<T, String>,
    annotation: &str,
    subject: &ObjectRef,
    problems: &mut Vec<Problem>,
) -> T {
    read.unwrap_or_else(|message| {
        problems.push(Problem::error(subject, format!("metadata.annotations[{annotation}]"), message));
        T::default()
    })
}

/// Reads the annotation that opens a namespace. Any other text than the known ones opens nothing.
fn read_permissive(annotations: Option<&BTreeMap<String, String>>) -> Result<bool, String> {
    let Some(value) = annotations.and_then(|all| all.get(PERMISSIVE_ANNOTATION)) else { return Ok(false) };
    injection::switch(value).ok_or_else(|| {
        let shown = truncated(value, 40);
        format!("{shown:?} is none of enabled, yes, true, disabled, no, false; it opens nothing")
    })
}

/// Reads what the sidecars log. Any other text than the known ones leaves it to the mesh.
fn read_access_log(annotations: Option<&BTreeMap<String, String>>) -> Result<Option<Logged>, String> {
    let Some(value) = annotations.and_then(|all| all.get(ACCESS_LOG_ANNOTATION)) else { return Ok(None) };
    Logged::parse(value).map(Some).ok_or_else(|| {
        let (shown, words) = (truncated(value, 40), Logged::words());
        format!("{shown:?} is none of {words}; the mesh's holds")
    })
}

/// Reads the sidecar annotation: what it asks for, and what is wrong with it. Any other value than the known
/// ones is a refusal: the author wanted something, and without a sidecar no request gets in.
pub(super) fn read_injection(
    annotations: Option<&BTreeMap<String, String>>,
) -> (Option<bool>, Option<String>) {
    let Some(value) = annotations.and_then(|all| all.get(INJECTION_ANNOTATION)) else { return (None, None) };
    if let Some(wanted) = injection::switch(value) {
        (Some(wanted), None)
    } else {
        let shown = truncated(value, 40);
        let message = format!(
            "{shown:?} is none of enabled, yes, true, disabled, no, false; read as disabled, so without sidecar"
        );
        (Some(false), Some(message))
    }
}

/// The problem of an object's sidecar annotation.
pub(super) fn injection_problem(subject: &ObjectRef, message: String) -> Problem {
    Problem::error(subject, format!("metadata.annotations[{INJECTION_ANNOTATION}]"), message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use smc_types::ids::MeshName;
    use smc_types::problem::Severity;

    use super::super::testing::{fields, object};
    use super::*;

    #[test]
    fn what_sidecars_log_is_one_of_three_words() {
        for (text, expected, reported) in [
            (None, None, false),
            (Some("failures"), Some(Logged::Failures), false),
            (Some("all"), Some(Logged::All), false),
            (Some("none"), Some(Logged::Off), false),
            (Some("off"), None, true),
            (Some("All"), None, true),
            (Some("true"), None, true),
        ] {
            let annotations = text.map(|text| json!({ACCESS_LOG_ANNOTATION: text}));
            let namespace = object(json!({"metadata": {"name": "shop", "annotations": annotations}}));
            let reading = read_namespace(&namespace, &Rules::files(MeshName::default()));
            assert_eq!(reading.object.unwrap().access_log, expected, "{text:?}");
            assert_eq!(!reading.problems.is_empty(), reported, "{text:?}");
        }
    }

    #[test]
    fn a_namespace_is_monitored_by_its_label_unless_it_is_to_be_ignored() {
        for (labels, monitored, of_another) in [
            (json!(null), false, false),
            (json!({}), false, false),
            (json!({"openservicemesh.io/monitored-by": "osm"}), true, false),
            (json!({"openservicemesh.io/monitored-by": ""}), false, true),
            (json!({"openservicemesh.io/monitored-by": "other"}), false, true),
            (json!({"monitored-by": "osm"}), false, false),
            (
                json!({"openservicemesh.io/monitored-by": "osm", "openservicemesh.io/ignore": "true"}),
                false,
                false,
            ),
        ] {
            let mesh = || MeshName::new("osm").unwrap();
            let namespace = object(json!({"metadata": {"name": "shop", "labels": labels}}));
            let reading = read_namespace(&namespace, &Rules::files(mesh()));
            let problems: &[_] = if of_another {
                &[(Severity::Warning, "metadata.labels[openservicemesh.io/monitored-by]")]
            } else {
                &[]
            };
            assert_eq!(fields(&reading.problems), problems, "{labels}");
            assert_eq!(read_namespace(&namespace, &Rules::api_server(mesh())).problems, [], "{labels}");
            let namespace = reading.object.unwrap();
            assert_eq!((namespace.name.as_str(), namespace.monitored), ("shop", monitored), "{labels}");
        }
    }

    #[test]
    fn a_mistake_in_the_permissive_annotation_opens_nothing() {
        for (annotations, permissive, problems) in [
            (json!(null), false, 0),
            (json!({"mesh.smc.dev/permissive": "true"}), true, 0),
            (json!({"mesh.smc.dev/permissive": "Enabled"}), true, 0),
            (json!({"mesh.smc.dev/permissive": "false"}), false, 0),
            (json!({"mesh.smc.dev/permissive": "treu"}), false, 1),
            (json!({"mesh.smc.dev/permissive": ""}), false, 1),
        ] {
            let namespace = object(json!({"metadata": {"name": "shop", "annotations": annotations}}));
            let reading = read_namespace(&namespace, &Rules::default());
            assert_eq!(reading.problems.len(), problems, "{annotations}");
            assert_eq!(reading.object.unwrap().permissive, permissive, "{annotations}");
        }
    }

    #[test]
    fn the_injection_annotation_has_six_values_and_any_other_disables() {
        for (value, injection, problems) in [
            ("enabled", true, 0),
            ("Yes", true, 0),
            ("TRUE", true, 0),
            ("disabled", false, 0),
            ("no", false, 0),
            ("false", false, 0),
            ("enable", false, 1),
            ("", false, 1),
        ] {
            let meta =
                json!({"name": "shop", "annotations": {"openservicemesh.io/sidecar-injection": value}});
            let reading = read_namespace(&object(json!({ "metadata": meta })), &Rules::default());
            assert_eq!(reading.object.unwrap().injection, Some(injection), "{value:?}");
            assert_eq!(reading.problems.len(), problems, "{value:?}");
        }
        let silent = read_namespace(&object(json!({"metadata": {"name": "shop"}})), &Rules::default());
        assert_eq!(silent.object.unwrap().injection, None);
    }

    #[test]
    fn a_namespace_with_an_impossible_name_is_no_namespace() {
        for name in [json!(null), json!(""), json!("a.b"), json!("A"), json!("x".repeat(64))] {
            let reading = read_namespace(&object(json!({"metadata": {"name": name}})), &Rules::default());
            assert_eq!(reading.object, None, "{name}");
            assert_eq!(fields(&reading.problems), [(Severity::Error, "metadata.name")]);
        }
    }
}
