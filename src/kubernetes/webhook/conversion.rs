//! The webhook `/convert`: TrafficSplits in the version that a client of the API server asks for.
//!
//! Owns the wire form, `ConversionReview` of `apiextensions.k8s.io/v1`. Pure: a request goes in, its answer
//! comes out ([`review`]). [`smc_api::smi::convert_traffic_split`] converts.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use smc_api::smi::{SplitVersion, convert_traffic_split};
use smc_types::text::truncated;

use super::body::{Bodies, MAX_REVIEW};

/// The longest reason of a failure, in characters.
const MAX_REASON: usize = 1000;

/// The most bytes of one review. The API server sends all objects of a list together, also where etcd has
/// thousands of them.
const MAX_BODY: usize = 4 * MAX_REVIEW;

/// The route of the conversion.
pub(crate) fn routes(bodies: Bodies) -> Router {
    Router::new().route("/convert", post(convert)).with_state(bodies)
}

async fn convert(State(bodies): State<Bodies>, body: Body) -> Response {
    match bodies.read::<Value>(body, MAX_BODY).await {
        Ok(read) => Json(review(read.value)).into_response(),
        Err(error) => error.into_response(),
    }
}

/// Answers a review. Anything else gets an answer that says so; the API server takes it for a failure.
pub fn review(mut review: Value) -> Value {
    let uid = review.pointer("/request/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let result = match converted(&mut review) {
        Ok(objects) => json!({
            "uid": uid,
            "convertedObjects": objects,
            "result": {"status": "Success"},
        }),
        Err(reason) => json!({
            "uid": uid,
            "convertedObjects": [],
            "result": {"status": "Failure", "reason": "Invalid", "message": truncated(&reason, MAX_REASON)},
        }),
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": result})
}

fn converted(review: &mut Value) -> Result<Vec<Value>, String> {
    let desired = review.pointer("/request/desiredAPIVersion").and_then(Value::as_str);
    let desired = desired.ok_or("the request names no desiredAPIVersion")?;
    let unknown = || format!("{:?} is no version that SMC converts to", truncated(desired, 80));
    let version = SplitVersion::of_api_version(desired).ok_or_else(unknown)?;
    let objects = review.pointer_mut("/request/objects").and_then(Value::as_array_mut);
    let objects = std::mem::take(objects.ok_or("the request has no list of objects")?);
    let converted = objects.into_iter().map(|object| convert_traffic_split(object, version));
    converted.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let answer = review(request(&json!("split.smi-spec.io/v1alpha4"), &json!([v1, v2])));
        let response = &answer["response"];
        assert_eq!(response["uid"], "u");
        assert_eq!(response["result"], json!({"status": "Success"}));
        let of_v4 = |weight: i32| split("split.smi-spec.io/v1alpha4", &json!(weight));
        assert_eq!(response["convertedObjects"], json!([of_v4(500), of_v4(7)]));
    }

    #[test]
    fn what_cannot_be_converted_fails_with_the_object_and_the_field() {
        let v1 = split("split.smi-spec.io/v1alpha1", &json!("1u"));
        let answer = review(request(&json!("split.smi-spec.io/v1alpha4"), &json!([v1])));
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
            let answer = review(given.clone());
            assert_eq!(answer["response"]["result"]["status"], "Failure", "{given}");
            assert_eq!(answer["kind"], "ConversionReview");
        }
    }
}
