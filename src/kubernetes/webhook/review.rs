//! The wire form of admission: `AdmissionReview` of `admission.k8s.io/v1`, request and response.
//!
//! Owns the fields that SMC reads and writes. The object stays JSON, so that fields which SMC does not know
//! are neither lost nor changed.

use data_encoding::BASE64;
use serde::Serialize;

use crate::shallow::{fields, text};

/// The longest message in a refusal, in characters. A person reads it in a terminal.
const MAX_MESSAGE: usize = 1000;

/// A request of a user, which the API server asks about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Names the question; the answer repeats it.
    pub(crate) uid: String,
    /// The namespace that the object is written to. The object's own field may be empty.
    pub(crate) namespace: String,
    /// The name of the object, or the beginning of one that the API server has yet to complete.
    pub(crate) name: String,
    /// Whether nothing is going to be stored: the answer counts, and nothing may happen because of it.
    pub(crate) dry_run: bool,
    /// Group and kind of the object. The group is empty for Kubernetes' own.
    group: String,
    kind: String,
    /// The part of the object that is written; empty for the whole.
    subresource: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    operation: String,
}

impl Admission {
    /// The question of a review, without its object; `None` if it is no question.
    pub(crate) fn read(review: &str) -> Option<Self> {
        let names = ["uid", "kind", "subResource", "namespace", "operation", "dryRun", "object"];
        let [uid, kind, subresource, namespace, operation, dry_run, object] =
            fields(review, Some("request"), names);
        let [group, kind] = kind.map(|kind| fields(kind.get(), None, ["group", "kind"]).map(text))?;
        let name = |object: &str| fields(object, Some("metadata"), ["name", "generateName"]).map(text);
        let [name, generated] = object.map(|object| name(object.get())).unwrap_or_default();
        Some(Self {
            uid: text(uid)?,
            namespace: text(namespace).unwrap_or_default(),
            name: name.or(generated).unwrap_or_default(),
            dry_run: dry_run.is_some_and(|dry_run| dry_run.get() == "true"),
            group: group.unwrap_or_default(),
            kind: kind.unwrap_or_default(),
            subresource: text(subresource).unwrap_or_default(),
            operation: text(operation)?,
        })
    }

    /// The object of a review as it is to be stored; `null` for a deletion.
    pub(crate) fn object(review: &str) -> Option<&str> {
        let [object] = fields(review, Some("request"), ["object"]);
        Some(object?.get())
    }

    /// Whether it is about a Pod that is to be created.
    pub(crate) fn is_of_a_new_pod(&self) -> bool {
        let of = (&*self.group, &*self.kind, &*self.subresource, &*self.operation);
        of == ("", "Pod", "", "CREATE")
    }
}

/// The answer to one question.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReviewResponse {
    api_version: &'static str,
    kind: &'static str,
    response: Answer,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    message: String,
}

impl ReviewResponse {
    /// The object may be stored as it is.
    pub(crate) fn allowed(uid: String) -> Self {
        Self::new(uid, true)
    }

    /// The object may be stored after this JSON Patch (RFC 6902).
    pub(crate) fn patched(uid: String, patch: &json_patch::Patch) -> Self {
        let mut review = Self::new(uid, true);
        if !patch.is_empty() {
            // A patch of JSON values is JSON.
            let bytes = serde_json::to_vec(patch).unwrap_or_default();
            review.response.patch_type = Some("JSONPatch");
            review.response.patch = Some(BASE64.encode(&bytes));
        }
        review
    }

    /// The object may not be stored. `code` is the HTTP status that the user gets.
    pub(crate) fn denied(uid: String, code: u16, message: &str) -> Self {
        let mut review = Self::new(uid, false);
        let message = smc_types::text::truncated(message, MAX_MESSAGE);
        review.response.status = Some(Status { code, message });
        review
    }

    /// The same with a line that the user is shown.
    #[must_use]
    pub(crate) fn warning(mut self, warning: &str) -> Self {
        // The API server cuts longer ones.
        self.response.warnings.push(smc_types::text::truncated(warning, 250));
        self
    }

    /// As it is sent.
    pub(crate) fn json(&self) -> Vec<u8> {
        // A review of texts is JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn new(uid: String, allowed: bool) -> Self {
        let response =
            Answer { uid, allowed, status: None, patch_type: None, patch: None, warnings: Vec::new() };
        Self { api_version: "admission.k8s.io/v1", kind: "AdmissionReview", response }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn answers_have_the_form_that_the_api_server_reads() {
        let text = |review| serde_json::to_value(review).unwrap();
        let uid = || "u".to_owned();
        let head = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
        let with = |response: Value| {
            let mut whole = head.clone();
            whole["response"] = response;
            whole
        };
        assert_eq!(text(ReviewResponse::allowed(uid())), with(json!({"uid": "u", "allowed": true})));
        let denied = ReviewResponse::denied(uid(), 422, "no").warning("why");
        let expected = json!({"uid": "u", "allowed": false, "status": {"code": 422, "message": "no"},
            "warnings": ["why"]});
        assert_eq!(text(denied), with(expected));
        let patch = json_patch::diff(&json!({}), &json!({"a": 1}));
        let expected = json!({"uid": "u", "allowed": true, "patchType": "JSONPatch",
            "patch": BASE64.encode(br#"[{"op":"add","path":"/a","value":1}]"#)});
        assert_eq!(text(ReviewResponse::patched(uid(), &patch)), with(expected));
        let nothing = json_patch::diff(&json!({}), &json!({}));
        let expected = with(json!({"uid": "u", "allowed": true}));
        assert_eq!(text(ReviewResponse::patched(uid(), &nothing)), expected);
    }
}
