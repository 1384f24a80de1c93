//! How much memory an object takes while it is held.
//!
//! Owns the estimate, which is from above and follows from the object alone: replicas have to agree. Pure.

use smc_api::object::Object;
use smc_decode::manifest::canonical;
use smc_types::problem::Problem;

use super::share::Weight;
use crate::custom_objects::Marks;

/// Bytes of what is kept of one object, as JSON: the most that an API server takes.
pub(super) const MAX_OBJECT_BYTES: usize = 3 * 1024 * 1024;

/// What an object takes beside its content: its names in the maps of the store and in the catalog.
const OBJECT_BYTES: usize = 1024;

/// What a problem takes beside its text.
const PROBLEM_BYTES: usize = 128;

/// What an object takes that can be read and is too long to be held as text: 3 MiB of text and 200,000
/// values, which are the most that are read of it.
const LONG_OBJECT_BYTES: usize = 16 * 1024 * 1024;

/// The bytes that an object takes: its own text, if that is held, what was read of it, and its problems.
pub(super) fn held_bytes(json: Option<&str>, object: Option<&Object>, problems: &[Problem]) -> usize {
    let content = match (json, object) {
        (Some(json), _) => canonical::held_bytes(json),
        (None, Some(_)) => LONG_OBJECT_BYTES,
        (None, None) => 0,
    };
    let problem = |problem: &Problem| PROBLEM_BYTES + problem.field.len() + problem.message.len();
    OBJECT_BYTES + content + problems.iter().map(problem).sum::<usize>()
}

/// What an object of so many bytes weighs, with what the API server says beside its content.
pub(super) fn weight(bytes: usize, marks: Option<&Marks>) -> Weight {
    let kibibytes = (bytes + marks.map_or(0, Marks::bytes)).div_ceil(1024);
    Weight::try_from(kibibytes).unwrap_or(Weight::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use smc_types::problem::Subject;

    use super::*;
    use crate::crds::status::{ACCEPTED, Condition, ObjectStatus};

    #[test]
    fn an_object_weighs_what_it_holds() {
        let account =
            r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a","namespace":"b"}}"#;
        assert_eq!(weight(held_bytes(Some(account), None, &[]), None), 2, "the least");
        assert_eq!(weight(held_bytes(None, None, &[]), None), 1, "what cannot be read");
        let long = "x".repeat(100 * 1024);
        let text = json!({"spec": long}).to_string();
        assert!(
            (200..210).contains(&weight(held_bytes(Some(&text), None, &[]), None)),
            "as text, and as read"
        );
        let problems = [Problem::error(Subject::Mesh, "spec", long.clone())];
        assert!((100..110).contains(&weight(held_bytes(None, None, &problems), None)));
        let condition = Condition {
            kind: ACCEPTED.to_owned(),
            status: "True".to_owned(),
            observed_generation: None,
            last_transition_time: String::new(),
            reason: String::new(),
            message: "x".repeat(50 * 1024),
        };
        let status = ObjectStatus { conditions: vec![condition], ..ObjectStatus::default() };
        assert!((50..55).contains(&weight(0, Some(&Marks::new(1, "u", status)))));
        let object = Object::ServiceAccount("a/b".parse().unwrap());
        assert_eq!(weight(held_bytes(None, Some(&object), &[]), None), 16 * 1024 + 1);
    }
}
