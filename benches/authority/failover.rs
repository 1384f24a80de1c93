//! `kill -9` of the leader: the time until another replica has issued a certificate.
//!
//! Three real controllers. Right after the kill, one caller at each survivor requests a certificate, as
//! `smc proxy bootstrap` does, and the first response counts. So the request is sent after the leader has
//! died, and its record is committed without it.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use smc::admin::client::Client;
use smc_benches::controller::{Controller, PATIENCE};
use smc_benches::{Result, percentile_ms};
use smc_host::env::Env;
use smc_proto::admin::v1::{BootstrapRequest, GetClusterStatusRequest};
use smc_testkit::shop;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::Response;

const REPLICAS: usize = 3;

/// Pods that certificates are issued for.
const PODS: usize = 200;

/// How long all replicas run before the next leader is killed.
const CALM: Duration = Duration::from_millis(500);

/// The controllers; a killed one is `None`.
struct Controllers {
    running: Vec<Option<Controller>>,
    addresses: Vec<String>,
    directory: TempDir,
}

pub(crate) async fn measure(kills: usize) -> Result<Value> {
    let mut controllers = Controllers::start()?;
    let mut latencies = Vec::new();
    for kill in 0..kills {
        let leader = controllers.leader().await?;
        sleep(CALM).await;
        let mut clients = Vec::new();
        for survivor in (0..REPLICAS).filter(|replica| *replica != leader) {
            clients.push(controllers.client(survivor).await?);
        }
        let killed = controllers.running[leader].take().ok_or("the leader does not run")?;
        let start = Instant::now();
        killed.kill().await?;
        let mut issuing = JoinSet::new();
        for (n, client) in clients.into_iter().enumerate() {
            issuing.spawn(issue(client, (2 * kill + n) % PODS));
        }
        timeout(PATIENCE, issuing.join_next()).await?.ok_or("no replica issues")???;
        latencies.push(start.elapsed());
        // The other request as well, so that it does not overlap with the next kill.
        timeout(PATIENCE, issuing.join_next()).await?.ok_or("no replica issues")???;
        controllers.run(leader)?;
    }
    Ok(json!({
        "kills": kills,
        "failover_p50_ms": percentile_ms(&latencies, 50),
        "failover_p99_ms": percentile_ms(&latencies, 99),
        "failover_max_ms": percentile_ms(&latencies, 100),
    }))
}

/// Requests a certificate until one is issued.
async fn issue(mut client: Client, pod: usize) -> Result<()> {
    let request = BootstrapRequest { workload: format!("shop/pod-{pod}"), ..BootstrapRequest::default() };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.bootstrap(request.clone()).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(2)).await,
        }
    }
}

impl Controllers {
    fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join("mesh"))?;
        fs::write(directory.path().join("mesh/mesh.yaml"), shop::manifest(u64::try_from(PODS)?))?;
        crate::trio::key(directory.path())?;
        // A killed controller returns to its port. The operating system chose the port, on a random loopback
        // address, where no other process is likely to take it in the meantime.
        let [_, _, _, _, _, a, b, c] = Env::system().random_u64()?.to_be_bytes();
        let mut addresses = Vec::new();
        let mut held = Vec::new();
        for _ in 0..REPLICAS {
            let listener = TcpListener::bind(format!("127.{}.{b}.{}:0", a | 1, c | 1))?;
            addresses.push(listener.local_addr()?.to_string());
            held.push(listener);
        }
        drop(held);
        let running = (0..REPLICAS).map(|_| None).collect();
        let mut controllers = Self { running, addresses, directory };
        for replica in 0..REPLICAS {
            controllers.run(replica)?;
        }
        Ok(controllers)
    }

    fn run(&mut self, replica: usize) -> Result<()> {
        let mut flags = vec![
            "--xds-listen=127.0.0.1:0".to_owned(),
            format!("--replica-id={replica}"),
            format!("--raft-listen={}", self.addresses[replica]),
        ];
        flags.extend(
            self.addresses.iter().enumerate().map(|(id, address)| format!("--initial-member={id}={address}")),
        );
        let at = |name: &str| -> PathBuf { self.directory.path().join(name) };
        let directory = at(&format!("replica-{replica}"));
        let controller = Controller::start(&directory, &at("mesh"), &at("kek"), &flags)?;
        self.running[replica] = Some(controller);
        Ok(())
    }

    async fn client(&self, replica: usize) -> Result<Client> {
        self.running[replica].as_ref().ok_or("the replica does not run")?.client().await
    }

    /// The leader, once all replicas respond, agree on it, and have applied the same log.
    async fn leader(&self) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let mut states = Vec::new();
            for replica in 0..REPLICAS {
                let status = self.client(replica).await?.get_cluster_status(GetClusterStatusRequest {}).await;
                states.extend(
                    status.ok().map(Response::into_inner).map(|status| (status.leader, status.applied)),
                );
            }
            if states.len() == REPLICAS
                && states.iter().all(|state| *state == states[0])
                && let (Some(leader), _) = states[0]
            {
                return Ok(usize::try_from(leader)?);
            }
            sleep(Duration::from_millis(20)).await;
        }
        Err("the controllers agree on no leader".into())
    }
}
