//! The webhook `/validate`: whether an object that the mesh reads may be stored.
//!
//! Owns the wire form, `AdmissionReview` of `admission.k8s.io/v1`, and what is asked about at all: new
//! objects, and updates of what an object says. [`smc_mesh::validation`] judges. Without the catalog (this
//! replica has not read the mesh yet) an object is judged by itself, since the API server must not be blocked
//! by a restart.
//!
//! Header expressions take work, and strangers can ask. So reviews have theirs computed within the budget of
//! one group, in the turns that [`super::body`] gives, and off the runtime's threads.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use smc_api::smi::{HttpRouteGroup, MATCHES_ANNOTATION, MAX_STEPS, SplitVersion, convert_traffic_split};
use smc_decode::Rules;
use smc_decode::kinds::{Meaning, convert, meaning, reference};
use smc_mesh::catalog::{Catalog, Object};
use smc_mesh::validation::{Verdict, judge};
use smc_model::regex::Complements;
use smc_server::publisher::MeshHandle;
use smc_types::ids::MeshName;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;
use smc_types::text::truncated;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::body::{Bodies, BodyError, MAX_REVIEW, Peer};
use super::conversion::charge_matches;
use super::decoded::Budget;
use crate::shallow::{fields, text};

/// The longest reason of a refusal, in characters. A person reads it in a terminal.
const MAX_REASON: usize = 2000;

/// The longest warning, in characters: the API server may cut what is longer than 256.
const MAX_WARNING: usize = 250;

/// How long the catalog may take to answer. The publisher answers between two computations; the API server
/// waits for a webhook for ten seconds by default.
const CATALOG_LIMIT: Duration = Duration::from_secs(2);

/// The HTTP status that the author of a refused object gets, and of a review that cannot be read.
const UNPROCESSABLE: u16 = 422;
const BAD_REQUEST: u16 = 400;

/// The route of the validation.
pub(crate) fn routes(mesh: MeshHandle, bodies: Bodies) -> Router {
    let validator = Validator { mesh, bodies, complements: Arc::default() };
    Router::new().route("/validate", post(validate)).with_state(validator)
}

#[derive(Clone)]
struct Validator {
    mesh: MeshHandle,
    bodies: Bodies,
    /// What expressions that were asked about before amount to.
    complements: Arc<Mutex<Complements>>,
}

/// Answers a review with what the catalog of this replica says.
async fn validate(
    State(Validator { mesh, bodies, complements }): State<Validator>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Response {
    let validated = async {
        let text = bodies.read(peer.0, body, MAX_REVIEW).await?;
        let read = move |text: &str| {
            let mut question = Question::read(text)?;
            question.complete(&mut complements.blocking_lock());
            Ok(question)
        };
        let mut question = match text.compute(read).await? {
            Ok(question) => question,
            Err(answer) => return Ok(text.answer(Value::to_string(&answer).into_bytes())),
        };
        let (new, old) =
            (question.new.object.take(), question.old.as_mut().and_then(|old| old.object.take()));
        if new.is_some() {
            let ask = move |mesh: &smc_server::publisher::Mesh| {
                let catalog = mesh.compiler.catalog();
                let object = |object: Option<Object>| object.map(|object| catalog.objections(&object));
                (object(new).unwrap_or_default(), object(old).unwrap_or_default())
            };
            // Without an answer the object is judged by itself.
            let asked = text.hold(0, timeout(CATALOG_LIMIT, mesh.about(ask))).await?;
            if let Ok(Ok((new, old))) = asked {
                question.add(new, old);
            }
        }
        let answer = text.compute(move |_| question.answer().to_string().into_bytes()).await?;
        Ok::<_, BodyError>(text.answer(answer))
    };
    validated.await.unwrap_or_else(IntoResponse::into_response)
}

/// Answers a review with what this catalog says.
pub fn review(review: &str, catalog: Option<&Catalog>) -> Value {
    let mut question = match Question::read(review) {
        Ok(question) => question,
        Err(answer) => return answer,
    };
    question.complete(&mut Complements::default());
    if let Some(catalog) = catalog {
        let objections = |read: &Read| read.object.as_ref().map(|object| catalog.objections(object));
        let new = objections(&question.new).unwrap_or_default();
        let old = question.old.as_ref().and_then(objections).unwrap_or_default();
        question.add(new, old);
    }
    question.answer()
}

/// What the API server asks, with the object and its version before the update as they were read.
struct Question {
    uid: String,
    new: Read,
    old: Option<Read>,
}

/// An object as it was read.
struct Read {
    object: Option<Object>,
    problems: Vec<Problem>,
}

impl Read {
    /// The group with header expressions that it is.
    fn group(&self) -> Option<&HttpRouteGroup> {
        match &self.object {
            Some(Object::HttpRouteGroup(group)) if group.has_headers() => Some(group),
            _ => None,
        }
    }
}

/// What completing a group finds.
fn problems(complements: &mut Complements, group: Option<&HttpRouteGroup>) -> Vec<Problem> {
    group.map(|group| group.complete(complements, MAX_STEPS).problems).unwrap_or_default()
}

impl Question {
    /// Adds what completing the two versions finds.
    fn complete(&mut self, complements: &mut Complements) {
        let new = problems(complements, self.new.group());
        let old = problems(complements, self.old.as_ref().and_then(Read::group));
        self.add(new, old);
    }

    /// Reads a review; `Err` is the answer, where there is nothing to judge.
    fn read(review: &str) -> Result<Self, Value> {
        let names = ["uid", "operation", "subResource", "namespace", "object", "oldObject"];
        let [uid, operation, subresource, namespace, object, old] = fields(review, Some("request"), names);
        let text = |field| text(field).unwrap_or_default();
        let (uid, operation) = (text(uid), text(operation));
        if uid.is_empty() || operation.is_empty() {
            return Err(refused(&uid, BAD_REQUEST, "this is no AdmissionReview with a request"));
        }
        if !text(subresource).is_empty() || !matches!(&*operation, "CREATE" | "UPDATE") {
            return Err(allowed(&uid, &[]));
        }
        let is_object = |json: &&RawValue| json.get().starts_with('{');
        let Some(object) = object.filter(is_object) else {
            return Err(refused(&uid, BAD_REQUEST, "the request has no object"));
        };
        let [api_version, kind] = fields(object.get(), None, ["apiVersion", "kind"]).map(text);
        // The installation asks about too much; it is not for this webhook to forbid it.
        if !smc_api::kinds().any(|known| known.kind.as_str() == kind) {
            return Err(allowed(&uid, &[]));
        }
        if let Meaning::OtherVersion(versions) = meaning(&api_version, &kind) {
            let reason = format!("apiVersion: it is read as {versions} only");
            return Err(refused(&uid, UNPROCESSABLE, &reason));
        }
        let mut budget = Budget::new();
        let mut decode = |json: &RawValue| budget.decode(json.get());
        let object = decode(object).map_err(|error| refused(&uid, UNPROCESSABLE, &error.to_string()))?;
        // An older version that cannot be read excuses nothing.
        let old = old.filter(|old| operation == "UPDATE" && is_object(old)).and_then(|old| decode(old).ok());
        if old.as_ref().is_some_and(|old| says_the_same(old, &object)) {
            return Err(allowed(&uid, &[]));
        }
        let namespace = text(namespace);
        let mut read_it = |object: Value| read(object, &namespace, &mut budget);
        let new = match read_it(object) {
            Ok(Some(new)) => new,
            Ok(None) => return Err(allowed(&uid, &[])),
            Err(reason) => return Err(refused(&uid, UNPROCESSABLE, &reason)),
        };
        let old = old.and_then(|old| read_it(old).ok().flatten());
        Ok(Self { uid, new, old })
    }

    /// Adds what speaks against the two versions beside other objects.
    fn add(&mut self, new: Vec<Problem>, old: Vec<Problem>) {
        self.new.problems.extend(new);
        if let Some(read) = &mut self.old {
            read.problems.extend(old);
        }
    }

    fn answer(self) -> Value {
        let before = self.old.as_ref().map(|old| old.problems.as_slice());
        match judge(&self.new.problems, before) {
            Verdict::Accepted(warnings) => allowed(&self.uid, &warnings),
            Verdict::Refused(reason) => refused(&self.uid, UNPROCESSABLE, &reason),
        }
    }
}

/// Whether an update changes nothing that the mesh reads: only the status, or metadata such as finalizers.
fn says_the_same(old: &Value, new: &Value) -> bool {
    let matches = |object: &Value| {
        let annotations = object.pointer("/metadata/annotations");
        annotations.and_then(|annotations| annotations.get(MATCHES_ANNOTATION)).cloned()
    };
    old.get("apiVersion") == new.get("apiVersion")
        && old.get("spec") == new.get("spec")
        && matches(old) == matches(new)
}

/// Reads an object; `None` if it is of a kind that the mesh does not read, `Err` if it is no object of its
/// kind.
fn read(mut object: Value, namespace: &str, budget: &mut Budget) -> Result<Option<Read>, String> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let mut reader = match meaning(api_version, kind) {
        Meaning::Object(reader) => reader,
        Meaning::OtherVersion(versions) => return Err(format!("apiVersion: it is read as {versions} only")),
        Meaning::List(_) | Meaning::Foreign => return Ok(None),
    };
    // A version that cannot carry matches has them in an annotation.
    if kind == "TrafficSplit" && SplitVersion::of_api_version(api_version).is_some() {
        if let Meaning::Object(latest) = meaning(SplitVersion::V1Alpha4.api_version(), kind) {
            reader = latest;
        }
        charge_matches(&object, budget)?;
        object = convert_traffic_split(object, SplitVersion::V1Alpha4).map_err(|error| error.to_string())?;
    }
    name(&mut object, namespace);
    let reference: ObjectRef =
        reference(reader, &object).map_err(|unnamed| format!("{}: {unnamed}", unnamed.field()))?;
    // Custom resources read the same in every mesh.
    let rules = Rules::api_server(MeshName::default());
    let (object, problems) = convert(reader, &reference, &object, &rules);
    Ok(Some(Read { object, problems }))
}

/// Gives an object the namespace of the request, and a name if it is to get a generated one.
fn name(object: &mut Value, namespace: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if !namespace.is_empty() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    let generated = metadata.get("generateName").and_then(Value::as_str).map(|prefix| format!("{prefix}x"));
    if metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty()
        && let Some(generated) = generated
    {
        metadata.insert("name".to_owned(), generated.into());
    }
}

fn allowed(uid: &str, warnings: &[String]) -> Value {
    let warnings: Vec<_> = warnings.iter().map(|warning| truncated(warning, MAX_WARNING)).collect();
    response(json!({"uid": uid, "allowed": true, "warnings": warnings}))
}

fn refused(uid: &str, code: u16, reason: &str) -> Value {
    let status = json!({"code": code, "message": truncated(reason, MAX_REASON)});
    response(json!({"uid": uid, "allowed": false, "status": status}))
}

fn response(response: Value) -> Value {
    let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
    review["response"] = response;
    review
}

#[cfg(test)]
mod tests;
