//! What `smc check` looks at in the namespaces of the mesh.
//!
//! Owns the requests. Pods are read in pages, and those with a sidecar by their metadata alone.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DynamicObject, ListParams, ObjectMeta};
use kube::{Api, Client};
use smc_decode::core::PERMISSIVE_ANNOTATION;
use smc_model::topology;
use smc_sidecar::injection::{CONTAINERS, Decision, INJECTION_ANNOTATION, PROXY_UUID_LABEL, decide, switch};
use smc_types::ids::MeshName;
use smc_types::object_ref::Kind;

use super::facts::MONITORED_BY;
use super::stuck::stuck;
use crate::api_resource::{api_resource, next_page};

/// Pods of one answer of the API server.
const PAGE: u32 = 500;

/// How long a sidecar may take to its first connection, in seconds: its pod has an address, and its
/// controller is elected.
const TIME_TO_CONNECT: i64 = 60;

/// The kinds whose objects allow traffic.
const RULES: [Kind; 2] = [Kind::TrafficTarget, Kind::IngressBackend];

/// The namespaces of a mesh, and what is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// Pods, NAMESPACE/NAME, that should have a sidecar and have none.
    pub without_sidecar: Vec<String>,
    /// Pods that run with a sidecar and were made a minute ago or earlier, and its UUID.
    pub with_sidecar: Vec<(String, String)>,
    /// Pods that run with a sidecar in namespaces of no mesh, and its UUID. It may be that of another mesh.
    pub left_sidecars: Vec<(String, String)>,
    /// Pods whose sidecar does not start, NAMESPACE/NAME, and why.
    pub stuck_sidecars: Vec<String>,
    /// Whether any object allows traffic, or a permissive namespace, as far as the person may see.
    pub any_rule: Option<bool>,
}

/// Looks at the namespaces of `mesh`.
pub(super) async fn members(client: Client, mesh: &MeshName, now: i64) -> Members {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labelled = namespaces.list(&ListParams::default().labels(MONITORED_BY)).await;
    let labelled = labelled.map(|list| list.items).unwrap_or_default();
    let mut members = Members { any_rule: Some(false), ..Members::default() };
    let mut of_meshes = BTreeSet::new();
    for namespace in labelled {
        let Some(name) = namespace.metadata.name.clone() else { continue };
        of_meshes.insert(name.clone());
        let mesh_of = namespace.metadata.labels.as_ref().and_then(|labels| labels.get(MONITORED_BY));
        if mesh_of.map(String::as_str) != Some(mesh.as_str()) {
            continue;
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &name);
        members.without_sidecar.extend(without_sidecar(&pods, &name, &namespace.metadata).await);
        members.stuck_sidecars.extend(stuck_sidecars(&pods, &name).await);
        if is_permissive(&namespace.metadata) {
            members.any_rule = Some(true);
        }
        if members.any_rule == Some(false) {
            members.any_rule = any_rule(&client, &name).await;
        }
        members.namespaces.push(name);
    }
    for Sidecar { namespace, pod, uuid, created } in
        sidecars(&Api::all(client), "status.phase=Running").await.0
    {
        let name = format!("{namespace}/{pod}");
        if !of_meshes.contains(&namespace) {
            members.left_sidecars.push((name, uuid));
        } else if members.namespaces.contains(&namespace) && now - created >= TIME_TO_CONNECT {
            members.with_sidecar.push((name, uuid));
        }
    }
    members
}

/// Whether the namespace accepts every identity of the mesh.
fn is_permissive(metadata: &ObjectMeta) -> bool {
    let annotation = metadata.annotations.as_ref().and_then(|all| all.get(PERMISSIVE_ANNOTATION));
    annotation.and_then(|text| switch(text)).unwrap_or(false)
}

async fn without_sidecar(pods: &Api<Pod>, name: &str, metadata: &ObjectMeta) -> Vec<String> {
    let injection = metadata.annotations.as_ref().and_then(|all| all.get(INJECTION_ANNOTATION));
    let namespace = topology::Namespace {
        name: name.to_owned(),
        monitored: true,
        injection: injection.map(|text| switch(text).unwrap_or(false)),
        metrics: false,
        permissive: false,
    };
    let mut found = Vec::new();
    let mut page = ListParams::default().labels(&format!("!{PROXY_UUID_LABEL}")).limit(PAGE);
    while let Ok(list) = pods.list(&page).await {
        let missing = list.items.iter().filter(|pod| lacks_sidecar(pod, &namespace));
        found.extend(missing.map(|pod| pod_name(name, &pod.metadata)));
        match next_page(page, &list.metadata) {
            Some(next) => page = next,
            None => break,
        }
    }
    found
}

/// Whether a pod runs without the sidecar that the injector would give it.
fn lacks_sidecar(pod: &Pod, namespace: &topology::Namespace) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ends = matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some();
    let pod = serde_json::to_value(pod).unwrap_or_default();
    !ends && decide(namespace, &pod) == Decision::Inject
}

/// A pod that runs with a sidecar.
struct Sidecar {
    namespace: String,
    pod: String,
    uuid: String,
    /// In seconds since 1970.
    created: i64,
}

/// The pods with a sidecar that run, or are about to, in the order of the API server. One that ends needs its
/// sidecar for moments only.
pub async fn pods_with_sidecar(client: &Client, namespace: &str) -> Result<Vec<String>, kube::Error> {
    let pods = Api::namespaced(client.clone(), namespace);
    let (found, failed) = sidecars(&pods, "status.phase!=Succeeded,status.phase!=Failed").await;
    failed.map_or_else(|| Ok(found.into_iter().map(|sidecar| sidecar.pod).collect()), Err)
}

/// The pods with a sidecar in these phases, as far as they can be listed, and why not all.
async fn sidecars(pods: &Api<Pod>, phases: &str) -> (Vec<Sidecar>, Option<kube::Error>) {
    let mut found = Vec::new();
    let mut page = ListParams::default().labels(PROXY_UUID_LABEL).fields(phases).limit(PAGE);
    loop {
        let list = match pods.list_metadata(&page).await {
            Ok(list) => list,
            Err(error) => return (found, Some(error)),
        };
        found.extend(list.items.into_iter().filter_map(|pod| sidecar(pod.metadata)));
        match next_page(page, &list.metadata) {
            Some(next) => page = next,
            None => return (found, None),
        }
    }
}

fn sidecar(metadata: ObjectMeta) -> Option<Sidecar> {
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(Sidecar {
        namespace: metadata.namespace?,
        pod: metadata.name?,
        uuid: metadata.labels?.remove(PROXY_UUID_LABEL)?,
        created: metadata.creation_timestamp?.0.as_second(),
    })
}

/// The pods of which a container of the sidecar does not start.
async fn stuck_sidecars(pods: &Api<Pod>, name: &str) -> Vec<String> {
    let pending = ListParams::default().labels(PROXY_UUID_LABEL).fields("status.phase=Pending").limit(PAGE);
    // Of more than a page, the first are enough.
    let listed = pods.list(&pending).await.map(|list| list.items).unwrap_or_default();
    let sidecar = |container: &str| CONTAINERS.contains(&container);
    let values = listed.iter().filter_map(|pod| serde_json::to_value(pod).ok());
    values.filter_map(|pod| stuck(&pod, sidecar)).map(|problem| format!("{name}/{problem}")).collect()
}

fn pod_name(namespace: &str, metadata: &ObjectMeta) -> String {
    format!("{namespace}/{}", metadata.name.as_deref().unwrap_or_default())
}

/// Whether there is an object that allows traffic; `None` if the person may not see them.
async fn any_rule(client: &Client, namespace: &str) -> Option<bool> {
    for kind in RULES {
        let resource = api_resource(kind)?;
        let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        if !objects.list_metadata(&ListParams::default().limit(1)).await.ok()?.items.is_empty() {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_counts_as_without_sidecar_where_the_injector_would_give_it_one() {
        let pod = |metadata: Value, more: Value| {
            let (spec, phase) = (&more["spec"], &more["phase"]);
            json!({"metadata": metadata, "spec": {"containers": [], "hostNetwork": spec["hostNetwork"]},
                "status": {"phase": phase}})
        };
        let annotated = |text: &str| json!({"annotations": {INJECTION_ANNOTATION: text}});
        let running = json!({"phase": "Running"});
        for (when, injection, pod, expected) in [
            ("it runs", None, pod(json!({}), running.clone()), true),
            ("it waits", None, pod(json!({}), json!({"phase": "Pending"})), true),
            ("it has ended", None, pod(json!({}), json!({"phase": "Succeeded"})), false),
            (
                "it ends",
                None,
                pod(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), running.clone()),
                false,
            ),
            ("it refuses", None, pod(annotated("disabled"), running.clone()), false),
            ("its namespace refuses", Some(false), pod(json!({}), running.clone()), false),
            ("it asks against its namespace", Some(false), pod(annotated("yes"), running), true),
            (
                "it has the host's network",
                None,
                pod(json!({}), json!({"spec": {"hostNetwork": true}})),
                false,
            ),
        ] {
            let namespace = topology::Namespace {
                name: "shop".to_owned(),
                monitored: true,
                injection,
                metrics: false,
                permissive: false,
            };
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(lacks_sidecar(&pod, &namespace), expected, "{when}");
        }
    }
}
