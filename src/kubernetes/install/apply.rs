//! Applying objects to a cluster, and waiting until they work.
//!
//! Owns the requests: server-side apply with a field manager of its own, so that what others set (the
//! controllers' `caBundle`, a number of replicas) is theirs.

use std::fmt;
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PropagationPolicy};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;
use smc_types::causes::causes;
use thiserror::Error;

/// The field manager of `smc install`.
pub const FIELD_MANAGER: &str = "smc-install";

/// How long one request may take. An apply waits for no pod.
const REQUEST: Duration = Duration::from_secs(30);

/// An object that cannot be applied, read or deleted.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The object has no kind or name, which is a bug.
    #[error("an object has no kind or no name")]
    Unnamed,
    /// The API server refused, or could not be reached.
    #[error("cannot {action} {object}")]
    Failed {
        /// The operation.
        action: &'static str,
        /// The object.
        object: ObjectName,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer.
    #[error("cannot {action} {object}: no answer within {} s", REQUEST.as_secs())]
    Timeout {
        /// The operation.
        action: &'static str,
        /// The object.
        object: ObjectName,
    },
}

impl ApplyError {
    /// Whether the API server knows no such object, or no such kind.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if is_not_found(source))
    }
}

/// What names an object in messages: `kind/name`, with its namespace where it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace, for what has one.
    pub namespace: Option<String>,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)?;
        self.namespace.as_ref().map_or(Ok(()), |namespace| write!(f, " in {namespace}"))
    }
}

/// What an apply did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The object was not there.
    Created,
    /// It was there, and differed.
    Changed,
    /// It was there as it should be.
    Unchanged,
}

/// A cluster, for objects of any kind.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    /// A cluster that this client reaches.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Applies one object, which then is as `object` says, also where another manager set those fields
    /// before.
    pub async fn apply(&self, object: &Value) -> Result<Applied, ApplyError> {
        let (name, api) = self.api_of(object)?;
        let before = bounded("read", &name, api.get_metadata_opt(&name.name)).await?;
        let how = PatchParams::apply(FIELD_MANAGER).force();
        let after = bounded("apply", &name, api.patch(&name.name, &how, &Patch::Apply(object))).await?;
        Ok(match before.map(|before| before.metadata.resource_version) {
            None => Applied::Created,
            Some(version) if version == after.metadata.resource_version => Applied::Unchanged,
            Some(_) => Applied::Changed,
        })
    }

    /// The object of the kind and name of `object`, if there is one.
    pub async fn find(&self, object: &Value) -> Result<Option<Value>, ApplyError> {
        let (name, api) = self.api_of(object)?;
        let found = bounded("read", &name, api.get_opt(&name.name)).await?;
        Ok(found.and_then(|found| serde_json::to_value(found).ok()))
    }

    /// Deletes the object of the kind and name of `object`, and returns whether there was one.
    pub async fn delete(&self, object: &Value) -> Result<bool, ApplyError> {
        let (name, api) = self.api_of(object)?;
        let how = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        match bounded("delete", &name, api.delete(&name.name, &how)).await {
            Ok(_) => Ok(true),
            Err(ApplyError::Failed { source, .. }) if is_not_found(&source) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn api_of(&self, object: &Value) -> Result<(ObjectName, Api<DynamicObject>), ApplyError> {
        let name = object_name(object).ok_or(ApplyError::Unnamed)?;
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &name.kind));
        let api = match &name.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        Ok((name, api))
    }
}

/// The name of an object in messages.
pub fn object_name(object: &Value) -> Option<ObjectName> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some(ObjectName {
        kind: text("/kind")?,
        name: text("/metadata/name")?,
        namespace: text("/metadata/namespace"),
    })
}

/// Whether the API server knows no such object, or no such kind.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Why a request failed: what the API server says of it, or what hindered it.
pub(crate) fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => causes(error),
    }
}

async fn bounded<T>(
    action: &'static str,
    object: &ObjectName,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApplyError> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => {
            Err(ApplyError::Failed { action, object: object.clone(), source: Box::new(source) })
        }
        Err(_) => Err(ApplyError::Timeout { action, object: object.clone() }),
    }
}

/// How many controllers a StatefulSet asks for; Kubernetes takes one where it does not say.
pub fn replicas(set: &Value) -> u64 {
    set.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1)
}

/// How far the controllers of a StatefulSet are: `None` when all run as the object says.
pub fn rollout(set: &Value) -> Option<String> {
    let number = |pointer| set.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let wanted = number("/spec/replicas");
    if number("/status/observedGeneration") < number("/metadata/generation") {
        return Some("the change was not taken up yet".to_owned());
    }
    let (updated, ready) = (number("/status/updatedReplicas"), number("/status/readyReplicas"));
    // A pod counts as updated when it was made, whether it starts or not.
    let changes = set.pointer("/status/currentRevision") != set.pointer("/status/updateRevision");
    if updated < wanted && (changes || ready >= wanted) {
        return Some(format!(
            "the change has reached {updated} of {wanted} controllers, and {ready} of all are ready"
        ));
    }
    (updated < wanted || ready < wanted).then(|| format!("{ready} of {wanted} controllers are ready"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_is_over_when_every_controller_runs_this_version_and_is_ready() {
        let set = |generation: u64, updated: u64, ready: u64| {
            json!({
                "metadata": { "generation": 2 },
                "spec": { "replicas": 3 },
                "status": {
                    "observedGeneration": generation, "updatedReplicas": updated, "readyReplicas": ready,
                    "currentRevision": "a", "updateRevision": "b",
                },
            })
        };
        for (sentence, set, expected) in [
            ("not taken up", set(1, 3, 3), Some("the change was not taken up yet")),
            (
                "one is old",
                set(2, 2, 3),
                Some("the change has reached 2 of 3 controllers, and 3 of all are ready"),
            ),
            (
                "the first that was made cannot start",
                set(2, 1, 2),
                Some("the change has reached 1 of 3 controllers, and 2 of all are ready"),
            ),
            (
                "all were deleted, and nothing changes",
                json!({ "spec": { "replicas": 3 }, "status": { "currentRevision": "a", "updateRevision": "a" } }),
                Some("0 of 3 controllers are ready"),
            ),
            ("one is not ready", set(2, 3, 2), Some("2 of 3 controllers are ready")),
            ("done", set(2, 3, 3), None),
            ("nothing runs yet", json!({ "spec": { "replicas": 1 } }), Some("0 of 1 controllers are ready")),
            ("none is wanted", json!({ "spec": { "replicas": 0 } }), None),
        ] {
            assert_eq!(rollout(&set).as_deref(), expected, "{sentence}");
        }
    }

    #[test]
    fn an_object_is_named_with_its_namespace() {
        let object = json!({ "kind": "Role", "metadata": { "name": "a", "namespace": "b" } });
        assert_eq!(object_name(&object).unwrap().to_string(), "Role a in b");
        assert_eq!(object_name(&json!({ "kind": "Role" })), None);
    }
}
