//! The bootstraps of simulated sidecars, from a controller.

use std::time::Duration;

use smc_proto::admin::v1::BootstrapRequest;
use smc_server::admin::client::Client;
use smc_testkit::ads::Credentials;
use tokio::time::Instant;

use crate::Result;
use crate::controller::PATIENCE;
use crate::mesh::Mesh;

/// The bootstraps of these proxies, once the controller knows their pods.
pub async fn bootstraps(mut client: Client, mesh: Mesh, proxies: &[usize]) -> Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    let mut bootstraps = Vec::with_capacity(proxies.len());
    for &p in proxies {
        let request =
            BootstrapRequest { workload: mesh.workload(p)?.to_string(), ..BootstrapRequest::default() };
        let answer = loop {
            match client.bootstrap(request.clone()).await {
                Ok(answer) => break answer.into_inner(),
                Err(status) if Instant::now() > deadline => return Err(status.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        bootstraps.push(answer.bootstrap);
    }
    Ok(bootstraps)
}

/// The credentials of these proxies, from their bootstraps.
pub async fn credentials(client: Client, mesh: Mesh, proxies: &[usize]) -> Result<Vec<Credentials>> {
    let bootstraps = bootstraps(client, mesh, proxies).await?;
    bootstraps.iter().map(|bootstrap| Ok(Credentials::read(bootstrap).ok_or("not a bootstrap")?)).collect()
}
