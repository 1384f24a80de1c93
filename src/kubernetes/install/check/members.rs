//! What `smc check` looks at in the namespaces of the mesh.
//!
//! Owns the requests. Pods are read in pages, and those with a sidecar by their metadata alone.

use std::collections::{BTreeMap, BTreeSet};

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
use crate::install::apply::reason;

/// Pods of one answer of the API server.
const PAGE: u32 = 500;

/// How long a sidecar may take to its first connection, in seconds: its pod has an address, and its
/// controller is elected.
const TIME_TO_CONNECT: i64 = 60;

/// The namespaces of a mesh, and what is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Why namespaces or pods cannot be listed; then what is below is not all.
    pub unseen: Option<String>,
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// Namespaces that are said to be of a mesh that is not in the cluster.
    pub strays: Vec<Stray>,
    /// Whether the cluster has other meshes: a sidecar in a stray namespace may be one of theirs.
    pub other_meshes: bool,
    /// Namespaces that leave, and how many pods with a sidecar keep them in the mesh.
    pub leaving: Vec<(String, usize)>,
    /// Pods, NAMESPACE/NAME, that should have a sidecar and have none.
    pub without_sidecar: Vec<String>,
    /// Pods that run with a sidecar and were made a minute ago or earlier, and its UUID.
    pub with_sidecar: Vec<(String, String)>,
    /// Pods that run with a sidecar in namespaces of no mesh, and its UUID. It may be that of another mesh.
    pub left_sidecars: Vec<(String, String)>,
    /// Pods whose sidecar does not start, NAMESPACE/NAME, and why.
    pub stuck_sidecars: Vec<String>,
    /// Whether any TrafficTarget, or a permissive namespace, allows traffic, as far as the person may see.
    pub any_rule: Option<bool>,
    /// Whether any IngressBackend does.
    pub any_ingress: Option<bool>,
}

/// A namespace that is said to be of a mesh that is not in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The namespace.
    pub namespace: String,
    /// The mesh that its label names.
    pub mesh: String,
    /// How many of its pods run with a sidecar.
    pub sidecars: usize,
}

/// The phases of pods that can still call.
const CAN_CALL: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// How many names a text for a person shows.
const SHOWN: usize = 5;

/// The first names, and how many more there are.
pub fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The command that restarts the pods of a namespace.
pub fn restart(namespace: &str) -> String {
    format!("kubectl rollout restart deployment,statefulset,daemonset -n {namespace}")
}

/// Looks at the namespaces of `mesh`. `meshes` are all in the cluster, as far as the person may see.
pub(super) async fn members(
    client: &Client,
    mesh: &MeshName,
    meshes: &Result<BTreeSet<String>, String>,
    now: i64,
) -> Members {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labelled = namespaces.list(&ListParams::default().labels(MONITORED_BY)).await;
    let other_meshes = meshes.as_ref().is_ok_and(|meshes| meshes.iter().any(|other| other != mesh.as_str()));
    let mut members =
        Members { any_rule: Some(false), any_ingress: Some(false), other_meshes, ..Members::default() };
    let labelled = match labelled {
        Ok(list) => list.items,
        Err(error) => {
            members.unseen = Some(reason(&error));
            Vec::new()
        }
    };
    let (mut of_meshes, mut without_injection) = (BTreeSet::new(), BTreeSet::new());
    for namespace in labelled {
        let Some(name) = namespace.metadata.name.clone() else { continue };
        let mesh_of = namespace.metadata.labels.as_ref().and_then(|labels| labels.get(MONITORED_BY));
        let mesh_of = mesh_of.map(String::as_str).unwrap_or_default();
        if mesh_of != mesh.as_str() {
            match meshes {
                Ok(meshes) if !meshes.contains(mesh_of) => {
                    members.strays.push(Stray { namespace: name, mesh: mesh_of.to_owned(), sidecars: 0 });
                    continue;
                }
                Ok(_) => {}
                Err(reason) => members.unseen = Some(reason.clone()),
            }
            of_meshes.insert(name);
            continue;
        }
        of_meshes.insert(name.clone());
        if injects(&namespace.metadata) == Some(false) {
            without_injection.insert(name.clone());
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &name);
        members.without_sidecar.extend(without_sidecar(&pods, &name, &namespace.metadata).await);
        members.stuck_sidecars.extend(stuck_sidecars(&pods, &name).await);
        if is_permissive(&namespace.metadata) {
            members.any_rule = Some(true);
        }
        if members.any_rule != Some(true) {
            members.any_rule = either(members.any_rule, any(client, &name, Kind::TrafficTarget).await);
        }
        if members.any_ingress != Some(true) {
            members.any_ingress = either(members.any_ingress, any(client, &name, Kind::IngressBackend).await);
        }
        members.namespaces.push(name);
    }
    let (running, failed) = sidecars(&Api::all(client.clone()), "status.phase=Running").await;
    members.unseen = members.unseen.or_else(|| failed.map(|error| reason(&error)));
    for Sidecar { namespace, pod, uuid, created, asks } in running {
        let name = format!("{namespace}/{pod}");
        if without_injection.contains(&namespace) && !asks {
            match members.leaving.iter_mut().find(|(leaving, _)| *leaving == namespace) {
                Some((_, pods)) => *pods += 1,
                None => members.leaving.push((namespace.clone(), 1)),
            }
        }
        if let Some(stray) = members.strays.iter_mut().find(|stray| stray.namespace == namespace) {
            stray.sidecars += 1;
        } else if !of_meshes.contains(&namespace) {
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

/// What the annotation about injection says. One that cannot be read refuses.
fn injects(metadata: &ObjectMeta) -> Option<bool> {
    let annotation = metadata.annotations.as_ref().and_then(|all| all.get(INJECTION_ANNOTATION));
    annotation.map(|text| switch(text).unwrap_or(false))
}

async fn without_sidecar(pods: &Api<Pod>, name: &str, metadata: &ObjectMeta) -> Vec<String> {
    let namespace = topology::Namespace {
        name: name.to_owned(),
        monitored: true,
        injection: injects(metadata),
        metrics: false,
        permissive: false,
        access_log: None,
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
    /// Whether the pod itself asks for a sidecar, whatever its namespace says.
    asks: bool,
}

/// The pods with a sidecar that run, or are about to, in the order of the API server. One that ends needs its
/// sidecar for moments only.
pub async fn pods_with_sidecar(client: &Client, namespace: &str) -> Result<Vec<String>, kube::Error> {
    let pods = Api::namespaced(client.clone(), namespace);
    let (found, failed) = sidecars(&pods, CAN_CALL).await;
    failed.map_or_else(|| Ok(found.into_iter().map(|sidecar| sidecar.pod).collect()), Err)
}

/// How many pods have a sidecar, by namespace, of those that can still call.
pub async fn sidecars_by_namespace(client: &Client) -> Result<BTreeMap<String, usize>, kube::Error> {
    let (found, failed) = sidecars(&Api::all(client.clone()), CAN_CALL).await;
    let mut counts = BTreeMap::new();
    for sidecar in found {
        *counts.entry(sidecar.namespace).or_default() += 1;
    }
    failed.map_or(Ok(counts), Err)
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
        asks: injects(&metadata) == Some(true),
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

/// Whether there is an object of this kind; `None` if the person may not see them.
async fn any(client: &Client, namespace: &str, kind: Kind) -> Option<bool> {
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &api_resource(kind)?);
    let first = objects.list_metadata(&ListParams::default().limit(1)).await.ok()?;
    Some(!first.items.is_empty())
}

/// Whether one of two is so, as far as they are known.
pub(super) fn either(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
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
                access_log: None,
            };
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(lacks_sidecar(&pod, &namespace), expected, "{when}");
        }
    }
}
