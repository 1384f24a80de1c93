//! The objects whose status is written, as the API has them.
//!
//! Owns which resources these are, and the watch of one. What is kept of an object is its generation, its
//! status and what the mesh reads in it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use serde_json::Value;
use smc_host::log_limit::LogLimit;
use smc_mesh::catalog::Object;
use smc_types::ids::{MeshName, MeshNamespace};
use smc_types::kind::{Extent, Kind, KindSpec};
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;
use smc_types::time::Timestamp;
use tokio::sync::mpsc;

use super::cannot_watch;
use super::plan::{Tracked, is_ours};
use crate::crds::status::ObjectStatus;
use crate::decode::Rules;
use crate::decode::kinds::{Meaning, convert, meaning, reference};

/// A resource whose objects have a status.
pub(super) struct Resource {
    pub(super) kind: Kind,
    api: ApiResource,
}

/// All of them.
pub(super) fn resources() -> Vec<Resource> {
    let with_status = |&kind: &Kind| Some(Resource { kind, api: api_resource(kind)? });
    Kind::ALL.iter().filter_map(with_status).collect()
}

/// The resource of a kind with a status, in the version that is stored. `None` for kinds of Kubernetes
/// itself, whose status is not ours.
pub(super) fn api_resource(kind: Kind) -> Option<ApiResource> {
    let KindSpec { custom, name, group, versions, plural, .. } = kind.spec();
    let stored = versions.first().filter(|_| *custom)?;
    Some(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, stored, name), plural))
}

/// What a watch says.
pub(super) enum Change {
    /// An object is there, in this state.
    Seen(ObjectRef, Box<Tracked>),
    /// An object is gone.
    Gone(ObjectRef),
    /// The kind was listed: these objects are there, and no others.
    Listed(Kind, BTreeSet<ObjectRef>),
}

/// Watches a resource, until the receiver is dropped: MeshConfig in the control plane's namespace `own`,
/// others in all. Failures are tried again, later each time (up to half a minute): a definition may be
/// installed after the control plane.
pub(super) async fn watch(
    client: Client,
    resource: Resource,
    own: MeshNamespace,
    changes: mpsc::Sender<Change>,
) {
    let api = match resource.kind.spec().extent {
        Extent::Own => Api::<DynamicObject>::namespaced_with(client, own.as_str(), &resource.api),
        Extent::Mesh | Extent::Cluster => Api::all_with(client, &resource.api),
    };
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let failures = LogLimit::default();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                let seen = seen(&resource, object);
                if let Some(Change::Seen(reference, _)) = &seen {
                    listed.insert(reference.clone());
                }
                seen
            }
            Ok(watcher::Event::InitDone) => Some(Change::Listed(resource.kind, std::mem::take(&mut listed))),
            Ok(watcher::Event::Apply(object)) => seen(&resource, object),
            Ok(watcher::Event::Delete(object)) => seen(&resource, object).and_then(|change| match change {
                Change::Seen(reference, _) => Some(Change::Gone(reference)),
                _ => None,
            }),
            Err(error) => {
                if let Some(count) = failures.note() {
                    cannot_watch(&resource, &error, count);
                }
                continue;
            }
        };
        let Some(change) = change else { continue };
        if changes.send(change).await.is_err() {
            return;
        }
    }
}

/// Reads an object as the source of the mesh does; `None` if it has no usable name.
fn seen(resource: &Resource, object: DynamicObject) -> Option<Change> {
    let generation = object.metadata.generation.unwrap_or_default();
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = resource.api.api_version.clone().into();
    value["kind"] = resource.api.kind.clone().into();
    let written = written(value.get("status"));
    let (reference, object, problems) = read(&value)?;
    let tracked = Tracked {
        generation,
        uid,
        json: json(value),
        object: object.map(Arc::new),
        problems,
        written,
        since: Timestamp(0),
        sent: None,
    };
    Some(Change::Seen(reference, Box::new(tracked)))
}

/// Reads an object as the source of the mesh does; `None` if it has no usable name.
pub(super) fn read(value: &Value) -> Option<(ObjectRef, Option<Object>, Vec<Problem>)> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let Meaning::Object(reader) = meaning(text("apiVersion"), text("kind")) else { return None };
    let reference = reference(reader, value).ok()?;
    // Custom resources read the same in every mesh.
    let (object, problems) = convert(reader, &reference, value, &Rules::api_server(MeshName::default()));
    Some((reference, object, problems))
}

/// The object as other replicas are asked about it: without what only the API server cares for.
fn json(mut value: Value) -> Arc<str> {
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    value.to_string().into()
}

/// The part of a status that SMC writes. A status that cannot be read counts as none.
fn written(status: Option<&Value>) -> ObjectStatus {
    let status = status.and_then(|status| serde_json::from_value::<ObjectStatus>(status.clone()).ok());
    let mut status = status.unwrap_or_default();
    status.conditions.retain(is_ours);
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crds::definitions;

    #[test]
    fn every_definition_is_watched_in_the_version_that_is_stored() {
        let watched: BTreeSet<_> = resources()
            .into_iter()
            .map(|resource| {
                assert_eq!(resource.kind.as_str(), resource.api.kind);
                (format!("{}.{}", resource.api.plural, resource.api.group), resource.api.version)
            })
            .collect();
        let stored = definitions(&MeshNamespace::default()).unwrap().into_iter().map(|definition| {
            let versions = definition.as_json()["spec"]["versions"].as_array().unwrap();
            let stored = versions.iter().find(|version| version["storage"] == true).unwrap();
            (definition.name().to_owned(), stored["name"].as_str().unwrap().to_owned())
        });
        assert_eq!(watched, stored.collect::<BTreeSet<_>>());
    }

    #[test]
    fn an_object_is_kept_with_its_generation_and_its_status() {
        let resource = resources().into_iter().find(|resource| resource.kind == Kind::TcpRoute).unwrap();
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "specs.smi-spec.io/v1alpha4",
            "kind": "TCPRoute",
            "metadata": {"name": "tcp", "namespace": "shop", "generation": 7, "uid": "u"},
            "spec": {"matches": {"ports": [0]}},
            "status": {"observedGeneration": 6, "conditions": [
                {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                    "lastTransitionTime": "2026-11-22T20:00:00Z"},
                {"type": "Healthy", "status": "True", "reason": "Fine", "message": "",
                    "lastTransitionTime": "2026-11-22T20:00:00Z"},
            ]},
        }))
        .unwrap();
        let Some(Change::Seen(reference, tracked)) = seen(&resource, object) else { panic!("it has a name") };
        assert_eq!(reference.to_string(), "TCPRoute shop/tcp");
        assert_eq!((tracked.generation, tracked.uid.as_str()), (7, "u"));
        assert!(tracked.object.is_none() && !tracked.problems.is_empty());
        assert_eq!(tracked.written.observed_generation, Some(6));
        assert_eq!(tracked.written.conditions.len(), 1);
    }

    #[test]
    fn a_status_that_cannot_be_read_counts_as_none() {
        for status in
            [json!(null), json!(7), json!({"conditions": "none"}), json!({"observedGeneration": "x"})]
        {
            assert_eq!(written(Some(&status)), ObjectStatus::default(), "{status}");
        }
        assert_eq!(written(None), ObjectStatus::default());
    }
}
