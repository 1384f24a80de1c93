//! Three real `smc controller` processes, one group.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use smc_host::env::Env;
use smc_proto::admin::v1::GetClusterStatusRequest;
use smc_server::admin::client::Client;
use smc_testkit::shop;
use tempfile::TempDir;
use tokio::time::{Duration, Instant, sleep};
use tonic::Response;

use crate::Result;
use crate::controller::{Controller, PATIENCE};

/// The replicas of the group.
pub const REPLICAS: usize = 3;

/// The controllers; a killed one is `None`.
pub struct Controllers {
    /// The processes.
    pub running: Vec<Option<Controller>>,
    addresses: Vec<String>,
    directory: TempDir,
}

impl Controllers {
    /// Starts them with a mesh of `pods` pods ([`shop::manifest`]).
    pub fn start(pods: usize) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join("mesh"))?;
        fs::write(directory.path().join("mesh/mesh.yaml"), shop::manifest(u64::try_from(pods)?))?;
        shop::key_file(&directory.path().join("kek"), [7; 32]);
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

    /// Starts a replica, on the disk that it had before.
    pub fn run(&mut self, replica: usize) -> Result<()> {
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

    /// A client of a replica's administration.
    pub async fn client(&self, replica: usize) -> Result<Client> {
        self.running[replica].as_ref().ok_or("the replica does not run")?.client().await
    }

    /// The leader, once all replicas respond, agree on it, and have applied the same log.
    pub async fn leader(&self) -> Result<usize> {
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

    /// The term that a replica knows: it grows with every election.
    pub async fn term(&self, replica: usize) -> Result<u64> {
        let status = self.client(replica).await?.get_cluster_status(GetClusterStatusRequest {}).await?;
        Ok(status.into_inner().term)
    }
}
