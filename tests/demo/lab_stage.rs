//! Implements the demo's stage by the lab: real Pods, real Envoys, and the applications' logs.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::Deserialize;
use smc_lab::{Lab, LabError, LabHandle, LabOptions};
use tokio::time::{Instant, sleep};

use super::DemoArgs;
use super::follow::Follower;
use super::manifests::APPLICATIONS;
use super::rolling;
use super::stage::{Line, Stage, StageError, Upgrade, failed};

/// Number of controller replicas: the smallest group in which one may fail.
const REPLICAS: u16 = 3;

/// Time limit for a replica to answer; sidecars reconnect to another replica within a second or
/// two.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(100);

/// A lab that runs the demo mesh.
#[derive(Debug)]
pub(super) struct LabStage {
    lab: Lab,
    lines: Follower,
}

impl LabStage {
    /// Starts the lab on a copy of a mesh directory, and waits until its Pods are ready.
    pub(super) async fn start(args: &DemoArgs, mesh: &Path) -> Result<Self, StageError> {
        let options = LabOptions {
            smc: args.smc.clone(),
            envoy: args.envoy.clone(),
            variant: args.variant,
            replicas: REPLICAS,
            keep_state: args.keep,
            ..LabOptions::new(mesh)
        };
        let lab = Lab::start(options).await.map_err(failed("start the demo mesh"))?;
        let logs = APPLICATIONS.iter().map(|(pod, container)| {
            let name = pod.parse().map_err(failed(&format!("find the log of {pod}")))?;
            Ok(((*pod).to_owned(), lab.state_dir().pod_log(&name, container)))
        });
        let logs = logs.collect::<Result<Vec<_>, StageError>>()?;
        Ok(Self { lines: Follower::new(logs), lab })
    }

    /// Ends the lab and its processes.
    pub(super) async fn stop(self) -> Result<(), StageError> {
        self.lab.stop().await.map_err(failed("end the lab"))
    }
}

impl Stage for LabStage {
    async fn next_line(&mut self) -> Result<Option<Line>, StageError> {
        tokio::select! {
            line = self.lines.next_line() => {
                line.map(Some).map_err(failed("read the applications' logs"))
            }
            () = self.lab.ended() => Ok(None),
        }
    }

    async fn apply(&mut self, file_name: &str, yaml: &str) -> Result<(), StageError> {
        self.lab.apply(file_name, yaml).await.map_err(failed(&format!("apply {file_name}")))
    }

    async fn smc(&mut self, arguments: &[&str]) -> Result<String, StageError> {
        let action = format!("run `smc {}`", arguments.join(" "));
        let deadline = Instant::now() + PATIENCE;
        // Each replica knows only the sidecars connected to it, and a sidecar may be reconnecting.
        loop {
            let mut problem = String::new();
            for replica in 0..REPLICAS {
                let output = self.lab.smc_of(replica, arguments).await.map_err(failed(&action))?;
                if output.success() {
                    return Ok(output.stdout);
                }
                problem = format!("exit status {}: {}", output.status, output.stderr.trim());
            }
            if Instant::now() >= deadline {
                return Err(StageError { action, source: LabError::Refused(problem).into() });
            }
            sleep(POLL).await;
        }
    }

    async fn kill_leader(&mut self) -> Result<u16, StageError> {
        let action = "find out who leads";
        let status = self.smc(&["cluster", "status", "-o", "json"]).await?;
        let status: ClusterStatus = serde_json::from_str(&status).map_err(failed(action))?;
        let unknown = || failed(action)(LabError::Refused("the group has no leader".to_owned()));
        let leader = status.leader.ok_or_else(unknown)?;
        self.lab.stop_replica(leader, Signal::SIGKILL).await.map_err(failed("kill the leader"))?;
        Ok(leader)
    }

    fn upgrade(&self) -> Upgrade {
        Box::pin(rolling::upgrade(LabHandle::clone(&self.lab), REPLICAS))
    }
}

/// The fields used of `smc cluster status`.
#[derive(Debug, Deserialize)]
struct ClusterStatus {
    leader: Option<u16>,
}
