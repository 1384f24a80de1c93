//! Pods that should have a sidecar and have none.
//!
//! Owns the task that finds them: pods that were made before their namespace joined the mesh, or while the
//! webhook could not be asked and its configuration let them pass. Such a pod is outside the mesh, and
//! callers in the mesh cannot reach it. Every replica counts such pods; the Raft leader writes an Event about
//! each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use smc_host::env::Env;
use smc_host::tasks::Tasks;
use smc_mesh::catalog::Catalog;
use smc_raft::Group;
use smc_server::metrics::Metrics;
use smc_server::problems::Problems;
use smc_server::publisher::MeshHandle;
use smc_sidecar::injection::PROXY_UUID_LABEL;
use smc_types::ids::WorkloadId;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::API_LIMIT;
use crate::event::Event;

/// The pause between two looks, which pass over all pods.
const PERIOD: Duration = Duration::from_secs(15);

/// Pods that are named. The metric counts all.
const MAX_NAMED: usize = 256;

/// Events that are written between two looks: a namespace that joins the mesh may have thousands of pods.
const MAX_EVENTS: usize = 16;

/// What to do about such a pod.
const ADVICE: &str = "is in the mesh and has no sidecar, since it was made without the injector; delete it, so that it \
                      is made again, or set the annotation openservicemesh.io/sidecar-injection: disabled";

/// Finds pods without a sidecar.
pub(crate) struct Uninjected {
    pub(crate) client: Client,
    pub(crate) group: Arc<Group>,
    pub(crate) env: Env,
    pub(crate) mesh: MeshHandle,
    pub(crate) problems: Problems,
    pub(crate) metrics: Metrics,
}

impl Uninjected {
    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("pods without a sidecar", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let looking = async {
            // The pods that this leader has written an Event about.
            let mut told = BTreeSet::new();
            while let Ok(found) = self.mesh.about(|mesh| without_sidecar(mesh.compiler.catalog())).await {
                self.metrics.pods_without_sidecar(found.len());
                self.problems.set_injection(found.iter().take(MAX_NAMED).map(problem).collect());
                let status = self.group.status();
                if status.leads() {
                    self.tell(&found, &mut told).await;
                } else {
                    told.clear();
                }
                sleep(PERIOD).await;
            }
            // The replica is shutting down.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = looking => {}
        }
    }

    /// Writes Events about pods that have none yet. What fails is tried again at the next look.
    async fn tell(&self, found: &[WorkloadId], told: &mut BTreeSet<WorkloadId>) {
        for pod in next(found, told) {
            let Some(uid) = self.uid(&pod).await else { continue };
            let event = Event {
                api_version: "v1",
                kind: "Pod",
                namespace: pod.namespace(),
                name: pod.name(),
                uid: &uid,
                reason: "NoSidecar",
                note: &format!("The Pod {ADVICE}."),
                action: "Injecting",
                is_warning: true,
            };
            if event.write(&self.client, self.env.now()).await {
                told.insert(pod);
            }
        }
    }

    /// The UID of a pod, by which `kubectl describe` finds its Events.
    async fn uid(&self, pod: &WorkloadId) -> Option<String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), pod.namespace());
        let named = ListParams::default().fields(&format!("metadata.name={}", pod.name()));
        let listed = timeout(API_LIMIT, api.list_metadata(&named)).await.ok()?.ok()?;
        listed.items.into_iter().next()?.metadata.uid
    }
}

/// The next pods to write about. Forgets those that are gone.
fn next(found: &[WorkloadId], told: &mut BTreeSet<WorkloadId>) -> Vec<WorkloadId> {
    let there: BTreeSet<_> = found.iter().collect();
    told.retain(|pod| there.contains(pod));
    found.iter().filter(|pod| !told.contains(*pod)).take(MAX_EVENTS).cloned().collect()
}

/// The running pods of the mesh without the label of a sidecar. A machine has no injector.
fn without_sidecar(catalog: &Catalog) -> Vec<WorkloadId> {
    let pods = catalog.workloads().filter(|workload| {
        !workload.id.is_machine()
            && !workload.ips.is_empty()
            && !workload.labels.contains_key(PROXY_UUID_LABEL)
            && catalog.in_mesh(workload)
    });
    pods.map(|workload| workload.id.clone()).collect()
}

fn problem(pod: &WorkloadId) -> Problem {
    let subject = ObjectRef::Namespaced(Kind::Pod, pod.as_name().clone());
    Problem::error(&subject, format!("metadata.labels[{PROXY_UUID_LABEL}]"), ADVICE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smc_api::object::SourceEvent;
    use smc_decode::manifest;

    #[test]
    fn events_are_bounded_and_each_pod_has_one() {
        let pod = |n: usize| format!("shop/p{n:02}").parse::<WorkloadId>().unwrap();
        let found: Vec<_> = (0..20).map(pod).collect();
        let mut told = BTreeSet::new();
        let first = next(&found, &mut told);
        assert_eq!(first.len(), MAX_EVENTS);
        told.extend(first);
        assert_eq!(next(&found, &mut told), found[MAX_EVENTS..]);
        assert_eq!(next(&found[1..], &mut told).len(), 4, "one is gone");
        assert_eq!(next(&found, &mut told)[0], pod(0), "one of its name came");
    }

    #[test]
    fn a_pod_without_the_label_is_found_and_a_machine_needs_none() {
        let text = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, \
                    labels: {openservicemesh.io/monitored-by: smc}}}\n---\n\
                    {apiVersion: v1, kind: Pod, metadata: {name: bare, namespace: shop}, \
                    spec: {containers: []}, status: {podIP: 10.0.0.1}}\n---\n\
                    {apiVersion: v1, kind: Pod, metadata: {name: whole, namespace: shop, \
                    labels: {osm-proxy-uuid: 0d2f5a52-8f0e-4f3e-9c52-0a3a1b1c2d3e}}, \
                    spec: {containers: []}, status: {podIP: 10.0.0.2}}\n---\n\
                    {apiVersion: mesh.smc.dev/v1alpha1, kind: MeshWorkload, metadata: {name: old, namespace: shop}, \
                    spec: {addresses: [192.0.2.1], serviceAccountName: old, services: [old]}}\n";
        let mut catalog = Catalog::default();
        let objects = manifest::read("a.yaml", text.as_bytes()).declarations;
        for object in objects.iter().filter_map(|declaration| declaration.object.clone()) {
            catalog.apply(SourceEvent::Upsert(object));
        }
        assert_eq!(catalog.workloads().count(), 3);
        let found: Vec<_> = without_sidecar(&catalog).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["shop/bare"]);
    }
}
