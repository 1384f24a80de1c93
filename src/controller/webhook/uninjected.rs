//! Pods that should have a sidecar and have none.
//!
//! Owns the task that finds them: pods that were made before their namespace joined the mesh, or while the
//! webhook could not be asked and its configuration let them pass. Such a pod is outside the mesh, and
//! callers in the mesh cannot reach it.

use std::time::Duration;

use smc_mesh::catalog::Catalog;
use smc_mesh::injection::PROXY_UUID_LABEL;
use smc_types::ids::WorkloadId;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::problems::Problems;
use crate::publisher::MeshHandle;
use crate::tasks::Tasks;
use crate::telemetry::Metrics;

/// The pause between two looks, which pass over all pods.
const PERIOD: Duration = Duration::from_secs(15);

/// Pods that are named. The metric counts all.
const MAX_NAMED: usize = 256;

/// Finds pods without a sidecar.
pub(crate) struct Uninjected {
    pub(crate) mesh: MeshHandle,
    pub(crate) problems: Problems,
    pub(crate) metrics: Metrics,
}

impl Uninjected {
    /// Starts the task.
    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("pods without a sidecar", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let looking = async {
            while let Ok(found) = self.mesh.about(|mesh| without_sidecar(mesh.compiler.catalog())).await {
                self.metrics.pods_without_sidecar(found.len());
                self.problems.set_injection(found.iter().take(MAX_NAMED).map(problem).collect());
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
    let message = "is in the mesh and has no sidecar, since it was made without the injector; delete it, so that it \
                   is made again, or set the annotation openservicemesh.io/sidecar-injection: disabled";
    Problem::error(&subject, format!("metadata.labels[{PROXY_UUID_LABEL}]"), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::manifest;
    use smc_mesh::catalog::SourceEvent;

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
