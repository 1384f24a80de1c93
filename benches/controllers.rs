//! Real `smc controller` processes: one group of three, or more, with one mesh of files.

use std::fs;
use std::net::{TcpListener, TcpStream};
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

/// The replicas that found the group.
pub const REPLICAS: usize = 3;

/// The controllers. Dropping it kills them.
pub struct Controllers {
    running: Vec<Option<Controller>>,
    raft: Vec<String>,
    /// Where proxies connect to, by replica, if all bootstraps name it.
    pub xds: Vec<String>,
    directory: TempDir,
}

impl Controllers {
    /// Starts three with a mesh of `pods` pods ([`shop::manifest`]). A bootstrap names the replica alone that
    /// has issued it.
    pub fn start(pods: usize) -> Result<Self> {
        let mut controllers = Self::prepare(0)?;
        controllers.write("mesh.yaml", &shop::manifest(u64::try_from(pods)?))?;
        controllers.found()?;
        Ok(controllers)
    }

    /// A group of which none runs yet, with an empty mesh. All bootstraps name the first `named` replicas.
    pub fn prepare(named: usize) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join("mesh"))?;
        shop::key_file(&directory.path().join("kek"), [7; 32]);
        // A controller returns to its ports. The operating system chose them, on a random loopback address,
        // where no other process is likely to take them in the meantime.
        let [_, _, _, _, _, a, b, c] = Env::system().random_u64()?.to_be_bytes();
        let mut held = Vec::new();
        let mut address = |_| -> Result<String> {
            let listener = TcpListener::bind(format!("127.{}.{b}.{}:0", a | 1, c | 1))?;
            let address = listener.local_addr()?.to_string();
            held.push(listener);
            Ok(address)
        };
        let raft = (0..named.max(REPLICAS)).map(&mut address).collect::<Result<Vec<_>>>()?;
        let xds = (0..named).map(&mut address).collect::<Result<_>>()?;
        Ok(Self { running: raft.iter().map(|_| None).collect(), raft, xds, directory })
    }

    /// Replaces a file of the mesh.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let directory = self.directory.path().join("mesh");
        let new = directory.join(format!(".{name}.new"));
        fs::write(&new, text)?;
        Ok(fs::rename(&new, directory.join(name))?)
    }

    /// Starts the founders.
    pub fn found(&mut self) -> Result<()> {
        (0..REPLICAS).try_for_each(|replica| self.run(replica))
    }

    /// Starts a replica, on the disk that it had before.
    pub fn run(&mut self, replica: usize) -> Result<()> {
        let mut flags = vec![
            format!("--xds-listen={}", self.xds.get(replica).map_or("127.0.0.1:0", String::as_str)),
            format!("--replica-id={replica}"),
            format!("--raft-listen={}", self.raft[replica]),
        ];
        let founders = self.raft.iter().enumerate().take(REPLICAS);
        flags.extend(founders.map(|(id, address)| format!("--initial-member={id}={address}")));
        let named = self.xds.iter().enumerate();
        flags.extend(named.map(|(id, address)| format!("--xds-replica={id}={address}")));
        let at = |name: &str| -> PathBuf { self.directory.path().join(name) };
        let directory = at(&format!("replica-{replica}"));
        let controller = Controller::start(&directory, &at("mesh"), &at("kek"), &flags)?;
        self.running[replica] = Some(controller);
        Ok(())
    }

    /// The process of a replica.
    pub fn of(&self, replica: usize) -> Result<&Controller> {
        Ok(self.running[replica].as_ref().ok_or("the replica does not run")?)
    }

    /// The process of a replica, which is to end.
    pub fn take(&mut self, replica: usize) -> Result<Controller> {
        Ok(self.running[replica].take().ok_or("the replica does not run")?)
    }

    /// A client of a replica's administration.
    pub async fn client(&self, replica: usize) -> Result<Client> {
        self.of(replica)?.client().await
    }

    /// The leader, once all that run respond, agree on it, have applied the same log, and listen for proxies.
    pub async fn leader(&self) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        let running: Vec<_> = (0..self.running.len()).filter(|&replica| self.of(replica).is_ok()).collect();
        while Instant::now() < deadline {
            let mut states = Vec::new();
            for &replica in &running {
                let status = self.client(replica).await?.get_cluster_status(GetClusterStatusRequest {}).await;
                let listens = self.xds.get(replica).is_none_or(|address| TcpStream::connect(address).is_ok());
                let status = status.ok().filter(|_| listens).map(Response::into_inner);
                states.extend(status.map(|status| (status.leader, status.applied)));
            }
            if states.len() == running.len()
                && let Some(first @ &(Some(leader), _)) = states.first()
                && states.iter().all(|state| state == first)
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
