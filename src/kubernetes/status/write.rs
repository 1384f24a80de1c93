//! The requests that write a status and its Event.
//!
//! Owns to which resource a status is written.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, Error};
use serde_json::json;
use smc_types::kind::{Kind, KindSpec};
use smc_types::object_ref::ObjectRef;
use smc_types::time::Timestamp;
use thiserror::Error;
use tokio::time::timeout;
use tracing::debug;

use super::plan::Write;
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

/// The resource of a kind with a status, in the version that is stored. `None` for kinds of Kubernetes
/// itself, whose status is not ours.
fn api_resource(kind: Kind) -> Option<ApiResource> {
    let spec = kind.spec();
    let KindSpec { name, group, plural, .. } = spec;
    let stored = spec.stored_version()?;
    Some(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, stored, name), plural))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use smc_types::ids::MeshNamespace;

    use super::*;
    use crate::crds::definitions;

    #[test]
    fn every_status_is_written_in_the_version_that_is_stored() {
        let resources = Kind::ALL.iter().filter_map(|kind| Some((kind, api_resource(*kind)?)));
        let written: BTreeSet<_> = resources
            .map(|(kind, resource)| {
                assert_eq!(kind.as_str(), resource.kind);
                (format!("{}.{}", resource.plural, resource.group), resource.version)
            })
            .collect();
        let stored = definitions(&MeshNamespace::default()).unwrap().into_iter().map(|definition| {
            let versions = definition.as_json()["spec"]["versions"].as_array().unwrap();
            let stored = versions.iter().find(|version| version["storage"] == true).unwrap();
            (definition.name().to_owned(), stored["name"].as_str().unwrap().to_owned())
        });
        assert_eq!(written, stored.collect::<BTreeSet<_>>());
    }
}
