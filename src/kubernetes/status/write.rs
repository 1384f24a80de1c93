//! The requests that write a status and its Event.
//!
//! Owns their time limit, and which failures say that the object is gone.

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::json;
use smc_types::object_ref::ObjectRef;
use smc_types::time::Timestamp;
use thiserror::Error;
use tokio::time::timeout;
use tracing::debug;

use super::plan::Write;
use crate::api_resource::api_resource;
use crate::event::Event;
use crate::names::FIELD_MANAGER;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(5);

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
    if let Some((reason, note)) = &write.event {
        let event = Event {
            api_version: &resource.api_version,
            kind: &resource.kind,
            namespace: name.namespace(),
            name: name.name(),
            uid: &write.uid,
            reason,
            note,
            action: "Reading",
            is_warning: reason != "NotImplemented",
        };
        event.write(client, now).await;
    }
    Ok(())
}
