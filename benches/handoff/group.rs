//! The controllers: three, with room for a fourth, one mesh of files for all.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use smc_benches::Result;
use smc_benches::controller::{Controller, PATIENCE};
use smc_benches::mesh::Mesh;
use smc_host::env::Env;
use smc_proto::admin::v1::GetClusterStatusRequest;
use smc_server::admin::client::Client;
use smc_testkit::shop;
use tempfile::TempDir;
use tokio::time::{Duration, Instant, sleep};

/// The replicas that found the group.
pub(crate) const FOUNDERS: usize = 3;

/// The replicas that bootstraps name.
pub(crate) const MAXIMUM: usize = 4;

/// The controllers. Dropping it kills them.
pub(crate) struct Group {
    running: Vec<Option<Controller>>,
    raft: Vec<String>,
    /// Where proxies connect to.
    pub(crate) xds: Vec<String>,
    directory: TempDir,
    mesh: Mesh,
}

impl Group {
    /// Starts the founders.
    pub(crate) async fn start(mesh: Mesh) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mesh_dir = directory.path().join("mesh");
        fs::create_dir(&mesh_dir)?;
        fs::write(mesh_dir.join("mesh.yaml"), mesh.yaml())?;
        shop::key_file(&directory.path().join("kek"), [7; 32]);
        // A controller returns to its ports. The operating system chose them, on a random loopback address,
        // where no other process is likely to take them in the meantime.
        let [_, _, _, _, _, a, b, c] = Env::system().random_u64()?.to_be_bytes();
        let mut held = Vec::new();
        let mut address = || -> Result<String> {
            let listener = TcpListener::bind(format!("127.{}.{b}.{}:0", a | 1, c | 1))?;
            let address = listener.local_addr()?.to_string();
            held.push(listener);
            Ok(address)
        };
        let raft = (0..MAXIMUM).map(|_| address()).collect::<Result<_>>()?;
        let xds = (0..MAXIMUM).map(|_| address()).collect::<Result<_>>()?;
        drop(held);
        let mut group = Self { running: (0..MAXIMUM).map(|_| None).collect(), raft, xds, directory, mesh };
        for p in 0..mesh.proxies {
            group.write_pod(p, true)?;
        }
        for replica in 0..FOUNDERS {
            group.run(replica)?;
        }
        group.settle().await?;
        Ok(group)
    }

    /// Replaces the file of a pod.
    pub(crate) fn write_pod(&self, p: usize, ready: bool) -> Result<()> {
        let mesh_dir = self.directory.path().join("mesh");
        let (new, path) = (mesh_dir.join(format!(".pod-{p}.new")), mesh_dir.join(format!("pod-{p}.yaml")));
        fs::write(&new, self.mesh.pod_yaml(p, ready))?;
        Ok(fs::rename(&new, &path)?)
    }

    /// Starts a replica, on the disk that it had before.
    pub(crate) fn run(&mut self, replica: usize) -> Result<()> {
        let mut flags = vec![
            format!("--xds-listen={}", self.xds[replica]),
            format!("--replica-id={replica}"),
            format!("--raft-listen={}", self.raft[replica]),
        ];
        let founders = self.raft.iter().enumerate().take(FOUNDERS);
        flags.extend(founders.map(|(id, address)| format!("--initial-member={id}={address}")));
        flags
            .extend(self.xds.iter().enumerate().map(|(id, address)| format!("--xds-replica={id}={address}")));
        let at = |name: &str| -> PathBuf { self.directory.path().join(name) };
        let directory = at(&format!("replica-{replica}"));
        self.running[replica] = Some(Controller::start(&directory, &at("mesh"), &at("kek"), &flags)?);
        Ok(())
    }

    /// Sends SIGTERM to a replica. Returns it, to be waited for.
    pub(crate) fn terminate(&mut self, replica: usize) -> Result<Controller> {
        self.signal(replica, Signal::SIGTERM)?;
        Ok(self.running[replica].take().ok_or("the replica does not run")?)
    }

    /// `kill -9` of a replica.
    pub(crate) async fn kill(&mut self, replica: usize) -> Result<()> {
        self.running[replica].take().ok_or("the replica does not run")?.kill().await
    }

    /// Sends a signal to a replica.
    pub(crate) fn signal(&self, replica: usize, signal: Signal) -> Result<()> {
        self.running[replica].as_ref().ok_or("the replica does not run")?.signal(signal)
    }

    /// A client of the administration of a replica.
    pub(crate) async fn client(&self, replica: usize) -> Result<Client> {
        self.running[replica].as_ref().ok_or("the replica does not run")?.client().await
    }

    /// Waits until all that run agree on a leader and have applied the same log, and listen for proxies.
    pub(crate) async fn settle(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let mut states = Vec::new();
            let running = self.running.iter().flatten().count();
            for (replica, _) in self.running.iter().enumerate().filter(|(_, running)| running.is_some()) {
                let status = self.client(replica).await?.get_cluster_status(GetClusterStatusRequest {}).await;
                let listens = std::net::TcpStream::connect(&self.xds[replica]).is_ok();
                let state = status.ok().map(tonic::Response::into_inner);
                states.extend(state.filter(|_| listens).map(|status| (status.leader, status.applied)));
            }
            let agreed = states.first().is_some_and(|first| states.iter().all(|state| state == first));
            if states.len() == running && agreed && states.iter().all(|(leader, _)| leader.is_some()) {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Err("the controllers do not settle".into())
    }
}
