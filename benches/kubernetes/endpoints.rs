//! From a Pod's readiness in the API to the last affected proxy that acknowledges its endpoint.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use smc_benches::bootstraps::credentials;
use smc_benches::mesh::Mesh;
use smc_benches::proxies::{Event, Held, Proxy, next};
use smc_benches::{Result, percentile_ms};
use smc_test_kubernetes::{Programs, create_all};
use smc_testkit::held_port::HeldPort;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api;

/// Measures one controller to which all proxies of `mesh` are connected.
pub(crate) async fn measure(programs: &Programs, mesh: Mesh, changes: usize) -> Result<Value> {
    let cluster = api::api_server(programs).await?;
    let client = cluster.client().await.map_err(|error| error.chain())?;
    for objects in api::objects(mesh)? {
        create_all(&client, objects).await.map_err(|error| error.chain())?;
    }
    let directory = tempfile::tempdir()?;
    let port = HeldPort::loopback();
    let metrics = port.address;
    let controller =
        api::controller(&cluster.kubeconfig(), directory.path(), &[format!("--metrics-listen={metrics}")])?;
    api::ready(metrics).await?;
    let proxies: Vec<usize> = (0..mesh.proxies).collect();
    let credentials = credentials(controller.client().await?, mesh, &proxies).await?;
    let (events, mut received) = mpsc::channel(1024);
    let mut streams = JoinSet::new();
    for (p, credentials) in credentials.into_iter().enumerate() {
        let events = events.clone();
        streams.spawn(async move { Proxy::connect(p, credentials).await?.run(events).await });
    }
    let mut complete = 0;
    while complete < mesh.proxies {
        complete += usize::from(matches!(next(&mut received, &mut streams).await?, Event::Complete));
    }
    controller.at_rest().await?;
    let (mut taken, mut patches) = (Vec::new(), Vec::new());
    for change in 0..changes {
        let p = (change * 7) % mesh.proxies;
        let prefix = format!("{}|", mesh.service(mesh.service_of(p))?);
        let callers = mesh.callers(mesh.service_of(p));
        let watchers = (0..mesh.proxies).filter(|&other| callers.contains(&mesh.service_of(other))).count();
        for ready in [false, true] {
            let start = Instant::now();
            let patched = tokio::spawn(set_ready(client.clone(), mesh, p, ready));
            let (mut have, mut last) = (BTreeSet::new(), start);
            while have.len() < watchers {
                let event = next(&mut received, &mut streams).await?;
                let Event::Endpoints(Held { proxy, name, at, .. }) = event else { continue };
                if name.starts_with(&prefix) && have.insert(proxy) {
                    last = last.max(at);
                }
            }
            let patch = patched.await??;
            if ready {
                taken.push(last - start);
                patches.push(patch);
            }
        }
    }
    streams.shutdown().await;
    let report = json!({
        "pod_to_proxy_p50_ms": percentile_ms(&taken, 50),
        "pod_to_proxy_p99_ms": percentile_ms(&taken, 99),
        "pod_to_proxy_proxies": mesh.proxies,
        "pod_to_proxy_changes": taken.len(),
        "status_written_p50_ms": percentile_ms(&patches, 50),
        "status_written_p99_ms": percentile_ms(&patches, 99),
    });
    controller.kill().await?;
    cluster.stop().await.map_err(|error| error.chain())?;
    Ok(report)
}

/// Writes a pod's readiness as a kubelet does. Returns what the API server took to answer.
async fn set_ready(client: Client, mesh: Mesh, p: usize, ready: bool) -> Result<Duration> {
    let id = mesh.workload(p)?;
    let resource = api::resource("", "v1", "Pod");
    let pods: Api<DynamicObject> = Api::namespaced_with(client, id.namespace(), &resource);
    let status = if ready { "True" } else { "False" };
    let condition = |kind: &str| json!({"type": kind, "status": status});
    let patch = json!({"status": {"conditions": [condition("Ready"), condition("ContainersReady")]}});
    let start = Instant::now();
    pods.patch_status(id.name(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(start.elapsed())
}
