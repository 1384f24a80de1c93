//! The requests that write a status and its Event.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use smc_types::object_ref::ObjectRef;
use smc_types::text::truncated;
use smc_types::time::Timestamp;
use thiserror::Error;
use tokio::time::timeout;
use tracing::debug;

use super::plan::{Write, rfc3339};
use super::watch::api_resource;
use crate::webhook::FIELD_MANAGER;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The longest note of an Event, in characters; the API allows 1024 bytes.
const MAX_NOTE: usize = 250;

/// A status was not written.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    /// The object is gone.
    #[error("the object is gone")]
    Gone,
    /// The API server refused it, or cannot be reached.
    #[error("the API server does not take it")]
    Refused(#[source] Box<Error>),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", LIMIT.as_secs())]
    Slow,
}

/// Writes the status, by server-side apply, and then the Event. An Event that cannot be written is left out:
/// the status says the same.
pub(super) async fn write(client: &Client, write: &Write, now: Timestamp) -> Result<(), WriteError> {
    let ObjectRef::Namespaced(kind, name) = &write.reference else { return Ok(()) };
    let Some(resource) = api_resource(*kind) else { return Ok(()) };
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), name.namespace(), &resource);
    let status = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        // Of an object that was replaced meanwhile, the API server refuses the status.
        "metadata": {"name": name.name(), "namespace": name.namespace(), "uid": write.uid},
        "status": write.status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let patched = timeout(LIMIT, api.patch_status(name.name(), &parameters, &Patch::Apply(&status))).await;
    match patched {
        Err(_) => return Err(WriteError::Slow),
        Ok(Err(Error::Api(status))) if matches!(status.code, 404 | 409) => return Err(WriteError::Gone),
        Ok(Err(error)) => return Err(WriteError::Refused(error.into())),
        Ok(Ok(_)) => debug!(object = %write.reference, "status written"),
    }
    if let Some(event) = event(write, &resource, now) {
        let events = ApiResource::erase::<k8s_openapi::api::events::v1::Event>(&());
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), name.namespace(), &events);
        match serde_json::from_value::<DynamicObject>(event) {
            Err(error) => debug!(error = &error as &dyn std::error::Error, "an Event has no JSON form"),
            Ok(event) => {
                // One of this name, thus of the same content, may be there already.
                if let Ok(Err(error)) = timeout(LIMIT, api.create(&PostParams::default(), &event)).await {
                    debug!(error = &error as &dyn std::error::Error, "an Event was not written");
                }
            }
        }
    }
    Ok(())
}

/// The Event of a write, if it has one. Its name is made of its content, so the same is written once.
fn event(write: &Write, resource: &ApiResource, now: Timestamp) -> Option<Value> {
    let (reason, message) = write.event.as_ref()?;
    let ObjectRef::Namespaced(_, name) = &write.reference else { return None };
    let content = format!("{}\n{}\n{reason}\n{message}", write.uid, resource.kind);
    let name_suffix = data_encoding::HEXLOWER.encode(&digest(&SHA256, content.as_bytes()).as_ref()[..8]);
    let severity = if reason == "NotImplemented" { "Normal" } else { "Warning" };
    Some(json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{}.{name_suffix}", truncated(name.name(), 200)),
            "namespace": name.namespace(),
        },
        "eventTime": rfc3339(now).replace('Z', ".000000Z"),
        "reportingController": FIELD_MANAGER,
        "reportingInstance": FIELD_MANAGER,
        "action": "Reading",
        "reason": reason,
        "type": severity,
        "note": truncated(message, MAX_NOTE),
        "regarding": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": name.name(),
            "namespace": name.namespace(),
            "uid": write.uid,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crds::status::ObjectStatus;
    use smc_types::object_ref::Kind;

    fn of(message: &str) -> Value {
        let write = Write {
            reference: ObjectRef::Namespaced(Kind::TrafficSplit, "shop/canary".parse().unwrap()),
            uid: "u".to_owned(),
            status: ObjectStatus::default(),
            event: Some(("Invalid".to_owned(), message.to_owned())),
        };
        event(&write, &api_resource(Kind::TrafficSplit).unwrap(), Timestamp(0)).unwrap()
    }

    #[test]
    fn an_event_is_named_by_what_it_says() {
        let event = of("spec.service: is missing");
        assert_eq!(event["eventTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(event["regarding"]["apiVersion"], "split.smi-spec.io/v1alpha4");
        assert_eq!(event["type"], "Warning");
        assert_eq!(event, of("spec.service: is missing"));
        assert_ne!(event["metadata"]["name"], of("spec.service: is odd")["metadata"]["name"]);
        assert_eq!(of(&"x".repeat(5000))["note"].as_str().unwrap().chars().count(), 250);
    }
}
