//! What the API server says of a custom object beside its content, taken from the text that it came in.
//!
//! Owns of which objects that is read, and what of a status. It is read beside what is kept of the object
//! ([`super::field_filter`]): the status of an object can neither change its content nor make it
//! unreadable. Pure.

use smc_types::kind::Kind;

use crate::custom_objects::Marks;
use crate::shallow::{fields, text};

/// Bytes of a uid. API servers make them of 36.
const MAX_UID_BYTES: usize = 128;

/// Whether objects of this kind that are read in this version have a status that SMC writes: custom ones, in
/// the version that their definition stores. An older definition has no such status.
pub(super) fn are_of(kind: Kind, api_version: &str) -> bool {
    let spec = kind.spec();
    spec.stored_version().is_some_and(|stored| api_version.split_once('/') == Some((spec.group, stored)))
}

/// What is said of the object that `json` is; `None` without a uid, which a status is written with: another
/// object may have taken its name.
pub(super) fn read(json: &str) -> Option<Marks> {
    let [metadata, status] = fields(json, None, ["metadata", "status"]);
    let [uid, generation] = fields(metadata?.get(), None, ["uid", "generation"]);
    let uid = text(uid).filter(|uid| !uid.is_empty() && uid.len() <= MAX_UID_BYTES)?;
    let generation = generation.and_then(|generation| serde_json::from_str(generation.get()).ok());
    // A status of another shape counts as none. How long it is does not count: what others write beside must
    // not hide what SMC wrote, or the leader would write it for ever.
    let status = status.and_then(|json| serde_json::from_str(json.get()).ok());
    Some(Marks::new(generation.unwrap_or_default(), &uid, status.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::crds::status::ObjectStatus;
    use crate::custom_objects::MAX_WRITTEN_BYTES;

    fn condition(kind: &str, message: &str) -> Value {
        json!({"type": kind, "status": "True", "reason": "Fine", "message": message,
            "lastTransitionTime": "2026-11-22T20:00:00Z"})
    }

    fn of(metadata: &Value, status: &Value) -> Option<Marks> {
        read(&json!({"metadata": metadata, "spec": {}, "status": status}).to_string())
    }

    #[test]
    fn generation_uid_and_the_conditions_of_smc_are_read() {
        let conditions = [condition("Accepted", ""), condition("Healthy", ""), condition("Programmed", "")];
        let status = json!({"observedGeneration": 6, "currentStatus": "committed", "conditions": conditions});
        let marks = of(&json!({"name": "a", "generation": 7, "uid": "u"}), &status).unwrap();
        assert_eq!((marks.generation, &*marks.uid), (7, "u"));
        let written = marks.written();
        assert_eq!(written.observed_generation, Some(6));
        let kinds: Vec<_> = written.conditions.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["Accepted", "Programmed"], "those of others are not held");
        assert_eq!(written.current_status.as_deref(), Some("committed"), "SMC writes it as well");
        let strange = json!({"currentStatus": "lost", "reason": "x", "conditions": []});
        assert_eq!(of(&json!({"uid": "u"}), &strange).unwrap().written(), ObjectStatus::default());
    }

    #[test]
    fn what_others_write_hides_nothing() {
        let long = condition("Healthy", &"x".repeat(MAX_WRITTEN_BYTES));
        let conditions = [long.clone(), condition("Accepted", ""), long];
        let status = json!({"observedGeneration": 6, "conditions": conditions});
        let written = of(&json!({"uid": "u"}), &status).unwrap().written();
        assert_eq!((written.observed_generation, written.conditions.len()), (Some(6), 1));
    }

    #[test]
    fn a_status_that_cannot_be_read_counts_as_none() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let long = condition("Accepted", &"x".repeat(MAX_WRITTEN_BYTES));
        for status in [
            "null".to_owned(),
            "7".to_owned(),
            r#"{"conditions": "none"}"#.to_owned(),
            r#"{"observedGeneration": "x"}"#.to_owned(),
            r#"{"observedGeneration": 1, "observedGeneration": 2}"#.to_owned(),
            r#"{"conditions": [{"type": "Accepted"}]}"#.to_owned(),
            json!({"observedGeneration": 1, "conditions": [long]}).to_string(),
            format!(r#"{{"observedGeneration": 1, "conditions": {deep}}}"#),
        ] {
            let marks =
                read(&format!(r#"{{"metadata": {{"uid": "u", "generation": 2}}, "status": {status}}}"#));
            let expected = Marks::new(2, "u", ObjectStatus::default());
            assert_eq!(marks, Some(expected), "{status:.60}");
        }
        assert_eq!(read(r#"{"metadata": {"uid": "u"}}"#).unwrap().written(), ObjectStatus::default());
    }

    #[test]
    fn without_a_uid_nothing_is_known_of_an_object() {
        for metadata in [
            json!({"name": "a", "generation": 1}),
            json!({"uid": ""}),
            json!({"uid": 7}),
            json!({"uid": "x".repeat(MAX_UID_BYTES + 1)}),
            json!("none"),
        ] {
            assert_eq!(of(&metadata, &json!({})), None, "{metadata:.60}");
        }
        for text in ["", "[]", "7", "{}", r#"{"status": {"observedGeneration": 1}}"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn only_custom_objects_in_the_version_that_is_stored_have_a_status() {
        for (kind, api_version, expected) in [
            (Kind::TrafficSplit, "split.smi-spec.io/v1alpha4", true),
            (Kind::TrafficSplit, "split.smi-spec.io/v1alpha2", false),
            (Kind::MeshConfig, "config.openservicemesh.io/v1alpha2", true),
            (Kind::Retry, "policy.openservicemesh.io/v1alpha1", true),
            (Kind::Pod, "v1", false),
            (Kind::EndpointSlice, "discovery.k8s.io/v1", false),
        ] {
            assert_eq!(are_of(kind, api_version), expected, "{kind} {api_version}");
        }
    }
}
