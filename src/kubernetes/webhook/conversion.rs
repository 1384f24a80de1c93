//! The webhook `/convert`: TrafficSplits in the version that a client of the API server asks for.
//!
//! Owns the wire form, `ConversionReview` of `apiextensions.k8s.io/v1`. Pure: a request goes in, its answer
//! comes out ([`review`]). [`smc_api::smi::convert_traffic_split`] converts. One object at a time is decoded,
//! however many a list has.

use std::fmt;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use serde::Deserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use smc_api::smi::{MATCHES_ANNOTATION, SplitVersion, convert_traffic_split};
use smc_types::text::truncated;

use super::body::{Bodies, BodyError, MAX_CONVERSION, Peer};
use super::decoded::Budget;
use crate::shallow::{fields, text};

/// The longest reason of a failure, in characters.
const MAX_REASON: usize = 1000;

/// The route of the conversion.
pub(crate) fn routes(bodies: Bodies) -> Router {
    Router::new().route("/convert", post(convert)).with_state(bodies)
}

async fn convert(State(bodies): State<Bodies>, Extension(peer): Extension<Peer>, body: Body) -> Response {
    let converted = async {
        let text = bodies.read(peer.0, body, MAX_CONVERSION).await?;
        let answer = text.compute(review).await?;
        Ok::<_, BodyError>(text.answer(answer))
    };
    converted.await.unwrap_or_else(IntoResponse::into_response)
}

/// Answers a review. Anything else gets an answer that says so; the API server takes it for a failure.
pub fn review(review: &str) -> Vec<u8> {
    let [uid, desired, objects] = fields(review, Some("request"), ["uid", "desiredAPIVersion", "objects"]);
    let uid = text(uid).unwrap_or_default();
    let (objects, result) = match converted(text(desired), objects) {
        Ok(objects) => (objects, json!({"status": "Success"})),
        Err(reason) => {
            let message = truncated(&reason, MAX_REASON);
            (Vec::new(), json!({"status": "Failure", "reason": "Invalid", "message": message}))
        }
    };
    let head = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}).to_string();
    let response = json!({"uid": uid, "result": result}).to_string();
    let mut answer = Vec::with_capacity(head.len() + response.len() + objects.len() + 64);
    answer.extend_from_slice(head.trim_end_matches('}').as_bytes());
    answer.extend_from_slice(b",\"response\":");
    // One bracket of the response, which ends with that of its result.
    answer.extend_from_slice(response.strip_suffix('}').unwrap_or_default().as_bytes());
    answer.extend_from_slice(b",\"convertedObjects\":[");
    answer.extend_from_slice(&objects);
    answer.extend_from_slice(b"]}}");
    answer
}

/// The converted objects, with commas between them.
fn converted(desired: Option<String>, objects: Option<&RawValue>) -> Result<Vec<u8>, String> {
    let desired = desired.ok_or("the request names no desiredAPIVersion")?;
    let unknown = || format!("{:?} is no version that SMC converts to", truncated(&desired, 80));
    let version = SplitVersion::of_api_version(&desired).ok_or_else(unknown)?;
    let objects = objects.ok_or("the request has no list of objects")?.get();
    let (mut out, mut failure) = (Vec::with_capacity(objects.len()), None);
    let all = Objects { version, out: &mut out, failure: &mut failure };
    let read = serde_json::Deserializer::from_str(objects).deserialize_seq(all);
    read.map_err(|error| failure.unwrap_or_else(|| error.to_string()))?;
    Ok(out)
}

/// Converts the objects of a list one by one.
struct Objects<'a> {
    version: SplitVersion,
    out: &'a mut Vec<u8>,
    /// Why an object cannot be converted.
    failure: &'a mut Option<String>,
}

impl<'de> Visitor<'de> for Objects<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<(), A::Error> {
        while let Some(object) = objects.next_element::<&RawValue>()? {
            let converted = match split(object.get(), self.version) {
                Ok(converted) => converted,
                Err(reason) => {
                    *self.failure = Some(reason);
                    return Err(A::Error::custom("an object cannot be converted"));
                }
            };
            if !self.out.is_empty() {
                self.out.push(b',');
            }
            serde_json::to_writer(&mut *self.out, &converted).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

fn split(json: &str, version: SplitVersion) -> Result<Value, String> {
    let mut budget = Budget::new();
    let object = budget.decode(json).map_err(|error| format!("an object of the list: {error}"))?;
    charge_matches(&object, &mut budget)?;
    convert_traffic_split(object, version).map_err(|error| error.to_string())
}

/// Charges for the matches that a split of an old version has as the text of an annotation.
pub(super) fn charge_matches(object: &Value, budget: &mut Budget) -> Result<(), String> {
    let matches = object.pointer("/metadata/annotations").and_then(|all| all.get(MATCHES_ANNOTATION));
    let Some(matches) = matches.and_then(Value::as_str) else { return Ok(()) };
    budget.charge(matches).map_err(|error| format!("the annotation {MATCHES_ANNOTATION}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(review: &Value) -> Value {
        serde_json::from_slice(&super::review(&review.to_string())).unwrap()
    }

    fn split(api_version: &str, weight: &Value) -> Value {
        json!({
            "apiVersion": api_version,
            "kind": "TrafficSplit",
            "metadata": {"name": "canary", "namespace": "shop"},
            "spec": {"service": "store", "backends": [{"service": "store-v1", "weight": weight}]},
        })
    }

    fn request(desired: &Value, objects: &Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {"uid": "u", "desiredAPIVersion": desired, "objects": objects},
        })
    }

    #[test]
    fn every_object_is_answered_in_its_place_and_in_the_version_asked_for() {
        let v1 = split("split.smi-spec.io/v1alpha1", &json!("500m"));
        let v2 = split("split.smi-spec.io/v1alpha2", &json!(7));
        let answer = review(&request(&json!("split.smi-spec.io/v1alpha4"), &json!([v1, v2])));
        let response = &answer["response"];
        assert_eq!(response["uid"], "u");
        assert_eq!(response["result"], json!({"status": "Success"}));
        let of_v4 = |weight: i32| split("split.smi-spec.io/v1alpha4", &json!(weight));
        assert_eq!(response["convertedObjects"], json!([of_v4(500), of_v4(7)]));
    }

    #[test]
    fn what_cannot_be_converted_fails_with_the_object_and_the_field() {
        let v1 = split("split.smi-spec.io/v1alpha1", &json!("1u"));
        let answer = review(&request(&json!("split.smi-spec.io/v1alpha4"), &json!([v1])));
        assert_eq!(answer["response"]["result"]["status"], "Failure");
        let message = answer["response"]["result"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("TrafficSplit \"canary\": spec.backends[0].weight: is \"1u\""),
            "{message}"
        );
    }

    #[test]
    fn what_is_no_review_gets_a_failure() {
        for given in [
            json!(null),
            json!({}),
            json!({"request": {"uid": "u"}}),
            request(&json!("split.smi-spec.io/v2"), &json!([])),
            request(&json!(7), &json!([])),
            request(&json!("split.smi-spec.io/v1alpha4"), &json!({})),
            request(&json!("split.smi-spec.io/v1alpha4"), &json!([null])),
        ] {
            let answer = review(&given);
            assert_eq!(answer["response"]["result"]["status"], "Failure", "{given}");
            assert_eq!(answer["kind"], "ConversionReview");
        }
    }
}
