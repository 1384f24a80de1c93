//! The bootstraps of simulated sidecars, from a controller.

use std::time::Duration;

use smc_proto::admin::v1::BootstrapRequest;
use smc_server::admin::client::Client;
use smc_testkit::ads::Credentials;
use tokio::time::{Instant, sleep, timeout};

use crate::Result;
use crate::controller::PATIENCE;
use crate::mesh::Mesh;

/// Asks for a certificate of a pod, `NAMESPACE/NAME`, until one is issued: its key, its signature, and the
/// commit of its record. Returns the bootstrap.
pub async fn issued(client: &mut Client, workload: String, patience: Duration) -> Result<String> {
    let request = BootstrapRequest { workload, ..BootstrapRequest::default() };
    let deadline = Instant::now() + patience;
    loop {
        match timeout(patience, client.bootstrap(request.clone())).await? {
            Ok(answer) => return Ok(answer.into_inner().bootstrap),
            Err(status) if Instant::now() > deadline => return Err(status.into()),
            Err(_) => sleep(Duration::from_millis(2)).await,
        }
    }
}

/// The bootstraps of these proxies, once the controller knows their pods.
pub async fn bootstraps(mut client: Client, mesh: Mesh, proxies: &[usize]) -> Result<Vec<String>> {
    let mut bootstraps = Vec::with_capacity(proxies.len());
    for &p in proxies {
        bootstraps.push(issued(&mut client, mesh.workload(p)?.to_string(), PATIENCE).await?);
    }
    Ok(bootstraps)
}

/// The credentials of these proxies, from their bootstraps.
pub async fn credentials(client: Client, mesh: Mesh, proxies: &[usize]) -> Result<Vec<Credentials>> {
    let bootstraps = bootstraps(client, mesh, proxies).await?;
    bootstraps.iter().map(|bootstrap| Ok(Credentials::read(bootstrap).ok_or("not a bootstrap")?)).collect()
}
