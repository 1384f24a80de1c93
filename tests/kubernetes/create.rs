//! Owns the creation of many objects at once, as a test or a bench fills a cluster.

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::ClusterError;

/// Requests at once while objects are created. The API server takes 200 writes at once by default.
const TOGETHER: usize = 48;

/// Creates all objects, many at once, in any order. Of an object with a status, the status is written as
/// well.
pub async fn create_all(client: &Client, objects: Vec<Value>) -> Result<(), ClusterError> {
    let mut objects = objects.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < TOGETHER
            && let Some(object) = objects.next()
        {
            running.spawn(create(client.clone(), object));
        }
        match running.join_next().await {
            Some(created) => created.map_err(ClusterError::command("create an object"))??,
            None => return Ok(()),
        }
    }
}

/// Creates one object, and writes its status if it has one.
pub async fn create(client: Client, mut object: Value) -> Result<(), ClusterError> {
    let status = object.as_object_mut().and_then(|object| object.remove("status"));
    let action = format!("create {} {}", object["kind"], object["metadata"]["name"]);
    let object: DynamicObject = serde_json::from_value(object).map_err(ClusterError::command(&action))?;
    let api = api(&client, &object)?;
    let created = api.create(&PostParams::default(), &object).await.map_err(ClusterError::api(&action))?;
    if let Some(status) = status {
        let patch = Patch::Merge(json!({ "status": status }));
        let name = created.metadata.name.unwrap_or_default();
        let patched = api.patch_status(&name, &PatchParams::default(), &patch).await;
        patched.map_err(ClusterError::api(action))?;
    }
    Ok(())
}

/// The objects of the kind and the namespace of this one.
fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>, ClusterError> {
    let missing = || ClusterError::Invalid { what: "object", text: "it has no kind".to_owned() };
    let types = object.types.clone().ok_or_else(missing)?;
    let kind = GroupVersionKind::try_from(&types).map_err(|_| missing())?;
    let resource = ApiResource::from_gvk(&kind);
    Ok(match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}
