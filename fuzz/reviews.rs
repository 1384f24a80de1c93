//! What an API server, or a stranger in its place, sends to the webhooks.
//!
//! An input is an AdmissionReview, after a byte `v`, or a ConversionReview, after any other byte.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use smc_kubernetes::webhook::{conversion, validator};
use smc_mesh::translate::Compiler;
use smc_testkit::mesh::meshes;

/// The longest answer to a question without objects, in bytes: reasons and warnings are cut.
const LONGEST: usize = 64 << 10;

/// Answers one review.
pub(crate) fn run(input: &[u8]) {
    let Some((kind, json)) = input.split_first() else { return };
    let Ok(review) = serde_json::from_slice::<Value>(json) else { return };
    if *kind == b'v' { validate(&review) } else { convert(review) }
}

fn uid(review: &Value) -> &str {
    review.pointer("/request/uid").and_then(Value::as_str).unwrap_or_default()
}

/// The mesh that objects are compared with. Compiled once, since that takes longer than all else here.
static MESH: Mutex<Option<Compiler>> = Mutex::new(None);

fn validate(review: &Value) {
    let mut mesh = MESH.lock().unwrap_or_else(PoisonError::into_inner);
    let mesh = mesh.get_or_insert_with(|| {
        let mesh = meshes::all().into_iter().find(|mesh| mesh.name == "splits_by_weight_and_by_match");
        mesh.unwrap().compile("roots", "chain", "key")
    });
    for catalog in [None, Some(mesh.catalog())] {
        let answer = validator::review(&review.to_string(), catalog);
        assert_eq!(answer["response"]["uid"].as_str(), Some(uid(review)), "the answer to another question");
        assert!(answer["response"]["allowed"].is_boolean(), "{answer}");
        assert!(answer.to_string().len() < LONGEST + 2 * uid(review).len(), "a long answer");
    }
}

fn conversion_of(review: &Value) -> Value {
    serde_json::from_slice(&conversion::review(&review.to_string())).expect("JSON")
}

fn convert(review: Value) {
    let objects = review.pointer("/request/objects").and_then(Value::as_array).cloned().unwrap_or_default();
    let question = uid(&review).to_owned();
    let version = review.pointer("/request/desiredAPIVersion").cloned().unwrap_or_default();
    let answer = conversion_of(&review);
    let response = &answer["response"];
    assert_eq!(response["uid"].as_str(), Some(&*question), "the answer to another question");
    let converted = response["convertedObjects"].as_array().expect("a list");
    match response.pointer("/result/status").and_then(Value::as_str) {
        Some("Success") => {}
        Some("Failure") => {
            assert!(converted.is_empty() && answer.to_string().len() < LONGEST + 2 * question.len());
            return;
        }
        other => panic!("neither success nor failure: {other:?}"),
    }
    assert_eq!(converted.len(), objects.len(), "each object has its answer");
    for (object, converted) in objects.iter().zip(converted) {
        assert_eq!(converted["apiVersion"], version);
        // The API server refuses a conversion that changes anything else of the metadata.
        for field in ["name", "namespace", "uid"] {
            assert_eq!(converted["metadata"][field], object["metadata"][field], "{field}");
        }
    }
    let mut again = review;
    again["request"]["objects"] = response["convertedObjects"].clone();
    let again = conversion_of(&again);
    assert_eq!(
        again["response"]["convertedObjects"], response["convertedObjects"],
        "a second one changes it"
    );
}
