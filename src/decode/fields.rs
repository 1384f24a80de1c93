//! A JSON value as a typed API object, with a warning for every unknown field.

use serde::de::DeserializeOwned;
use serde_json::Value;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;
use smc_types::text::truncated;

/// Unknown fields reported of one object; further ones are counted.
const MAX_UNKNOWN_FIELDS: usize = 20;

/// What is done about fields that are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// Each is a warning.
    Reported,
    /// Nothing.
    Ignored,
}

/// Decodes `value`. A field of the wrong type refuses the whole object, as in the Kubernetes API; an unknown
/// field is ignored, and reported if `report` says so.
pub(super) fn decode<T: DeserializeOwned>(
    object: &ObjectRef,
    value: &Value,
    report: Unknown,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let mut unknown = Vec::new();
    let mut more = 0_usize;
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
    let decoded = serde_ignored::deserialize(deserializer, |path| match report {
        Unknown::Reported if unknown.len() < MAX_UNKNOWN_FIELDS => unknown.push(path_text(&path)),
        Unknown::Reported => more += 1,
        Unknown::Ignored => {}
    });
    for field in unknown {
        problems.push(Problem::warning(object, field, "not a field that is known; ignored"));
    }
    if more > 0 {
        problems.push(Problem::warning(object, "", format!("{more} more fields are not known and ignored")));
    }
    match decoded {
        Ok(decoded) => Some(decoded),
        Err(error) => {
            let path = track.path().to_string();
            let field = if path == "." { String::new() } else { path };
            let message = truncated(&error.to_string(), 300);
            problems.push(Problem::error(object, field, format!("{message}; the object has no effect")));
            None
        }
    }
}

/// A path in the form of problems: `spec.ports[0].name`.
fn path_text(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", path_text(parent)),
        Path::Map { parent, key } => {
            let parent = path_text(parent);
            // A key is untrusted text.
            let key = truncated(key, 100);
            if parent.is_empty() { key } else { format!("{parent}.{key}") }
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            path_text(parent)
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;
    use smc_types::object_ref::Kind;
    use smc_types::problem::Severity;

    use super::*;

    fn object() -> ObjectRef {
        ObjectRef::Namespaced(Kind::Service, "a/b".parse().unwrap())
    }

    fn decode_service(value: &Value) -> (Option<Service>, Vec<(Severity, String)>) {
        let mut problems = Vec::new();
        let service = decode(&object(), value, Unknown::Reported, &mut problems);
        (service, problems.into_iter().map(|p| (p.severity, p.field)).collect())
    }

    #[test]
    fn an_unknown_field_is_a_warning_with_its_path() {
        let (service, problems) = decode_service(&json!({
            "metadata": {"name": "b", "nmae": "c"},
            "spec": {"ports": [{"port": 80}, {"port": 81, "targetPorts": 8080}], "selectors": {"app": "b"}},
        }));
        assert!(service.is_some());
        let fields: Vec<&str> = problems.iter().map(|(_, field)| field.as_str()).collect();
        assert_eq!(fields, ["metadata.nmae", "spec.ports[1].targetPorts", "spec.selectors"]);
        assert!(problems.iter().all(|(severity, _)| *severity == Severity::Warning));
        let mut problems = Vec::new();
        let newer = json!({"metadata": {"name": "b"}, "spec": {"fromTheFuture": 1}});
        assert!(decode::<Service>(&object(), &newer, Unknown::Ignored, &mut problems).is_some());
        assert_eq!(problems, []);
    }

    #[test]
    fn a_value_of_the_wrong_type_refuses_the_object_and_names_the_field() {
        for (value, field) in [
            (json!({"spec": {"ports": [{"port": "http"}]}}), "spec.ports[0].port"),
            (json!({"spec": {"ports": {"port": 80}}}), "spec.ports"),
            (json!({"spec": {"selector": {"app": true}}}), "spec.selector.app"),
            (json!({"metadata": {"labels": ["a"]}}), "metadata.labels"),
            (json!({"spec": 1}), "spec"),
        ] {
            let (service, problems) = decode_service(&value);
            assert_eq!(service, None, "{value}");
            assert_eq!(problems, [(Severity::Error, field.to_owned())]);
        }
    }

    #[test]
    fn a_flood_of_unknown_fields_is_summed_up() {
        let mut spec = serde_json::Map::new();
        for n in 0..100 {
            spec.insert(format!("x{n}"), json!(n));
        }
        let (service, problems) = decode_service(&json!({ "spec": spec }));
        assert!(service.is_some());
        assert_eq!(problems.len(), MAX_UNKNOWN_FIELDS + 1);
    }
}
