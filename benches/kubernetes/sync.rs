//! The first look of a controller at a large cluster: how long it takes, and the memory that stays.

use serde_json::{Value, json};
use smc_benches::Result;
use smc_benches::controller::PATIENCE;
use smc_benches::mesh::Mesh;
use smc_test_kubernetes::{Cluster, Programs, create_all};
use smc_testkit::held_port::HeldPort;
use tokio::time::Instant;

use crate::api;

/// Measures one controller that starts with nothing, over an API server that has everything: pods, services
/// with their slices, and one TrafficTarget for each service.
pub(crate) async fn measure(programs: &Programs, mesh: Mesh) -> Result<Value> {
    let cluster = api::api_server(programs).await?;
    let client = cluster.client().await.map_err(|error| error.chain())?;
    let start = Instant::now();
    for objects in api::objects(mesh)? {
        create_all(&client, objects).await.map_err(|error| error.chain())?;
    }
    let created = start.elapsed();
    slices(&cluster, mesh.services).await?;
    let directory = tempfile::tempdir()?;
    let port = HeldPort::loopback();
    let metrics = port.address;
    let start = Instant::now();
    let controller =
        api::controller(&cluster.kubeconfig(), directory.path(), &[format!("--metrics-listen={metrics}")])?;
    api::ready(metrics).await?;
    let synced = start.elapsed();
    let after_sync = controller.memory_kib("VmRSS")?;
    let cpu = controller.cpu()?;
    // With the service certificates of all identities, which are issued meanwhile.
    controller.at_rest().await?;
    let report = json!({
        "sync_10k_s": synced.as_secs_f64(),
        "sync_pods": mesh.proxies,
        "sync_services": mesh.services,
        "sync_cpu_s": cpu.as_secs_f64(),
        "sync_create_s": created.as_secs_f64(),
        "rss_synced_mib": after_sync / 1024,
        "rss_mib": controller.memory_kib("VmRSS")? / 1024,
        "rss_peak_mib": controller.memory_kib("VmHWM")? / 1024,
    });
    controller.kill().await?;
    cluster.stop().await.map_err(|error| error.chain())?;
    Ok(report)
}

/// Waits until the controller manager has made the slices of all services; it makes some twenty a second.
pub(crate) async fn slices(cluster: &Cluster, services: usize) -> Result<()> {
    let made = || async {
        let names = ["get", "endpointslices", "-A", "-o", "name"];
        let count = cluster.kubectl(&names).await.map_err(|error| error.chain())?.stdout.lines().count();
        if count >= services { Ok(()) } else { Err(format!("{count} of {services} slices")) }
    };
    cluster.wait("the slices", 3 * PATIENCE, made).await.map_err(|error| error.chain().into())
}
