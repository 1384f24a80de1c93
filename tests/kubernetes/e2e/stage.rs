//! Implements the demo's stage by the cluster: real pods' logs, the API, and `smc` in the controllers'
//! pods. So the demo's own verdict judges the mesh in Kubernetes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use smc_demo::follow::Follower;
use smc_demo::manifests::APPLICATIONS;
use smc_demo::stage::{Line, Stage, StageError, Upgrade, failed};
use smc_test_kubernetes::{
    BOOKSTORE_IMAGE, Cluster, ClusterError, ClusterHandle, MESH_NAMESPACE, in_cluster,
};
use tokio::time::{Instant, sleep};

use crate::mesh::{REPLICAS, smc};

/// Time limit for a replica to answer; sidecars reconnect to another replica within a second or two.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);

/// The bookstore in the cluster.
pub(crate) struct ClusterStage<'a> {
    cluster: &'a Cluster,
    lines: Follower,
}

impl<'a> ClusterStage<'a> {
    /// Follows the applications, whose pods exist.
    pub(crate) async fn new(cluster: &'a Cluster) -> Self {
        let mut logs = Vec::new();
        for (pod, container) in APPLICATIONS {
            logs.push((pod.to_owned(), log(cluster, pod, container).await));
        }
        Self { cluster, lines: Follower::new(logs) }
    }
}

/// The file in which the node keeps a container's output.
pub(crate) async fn log(cluster: &Cluster, pod: &str, container: &str) -> PathBuf {
    let (namespace, name) = pod.split_once('/').unwrap();
    let get = ["get", "pod", "-n", namespace, name, "-o", "jsonpath={.metadata.uid}"];
    let uid = cluster.kubectl(&get).await.unwrap();
    assert!(uid.success(), "{uid:?}");
    let pods = cluster.state_dir().path().join("pods");
    pods.join(format!("{namespace}_{name}_{}", uid.stdout.trim())).join(container).join("0.log")
}

/// The complete lines of a container's log so far.
pub(crate) fn complete_lines(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    complete.lines().map(str::to_owned).collect()
}

/// When the node received a line of a container, and the line as the container wrote it: before it are that
/// time, a stream, and a letter.
pub(crate) fn received(line: &str) -> (&str, &str) {
    let mut parts = line.splitn(4, ' ');
    (parts.next().unwrap_or_default(), parts.nth(2).unwrap_or_default())
}

impl Stage for ClusterStage<'_> {
    async fn next_line(&mut self) -> Result<Option<Line>, StageError> {
        let line = self.lines.next_line().await.map_err(failed("read the applications' logs"))?;
        Ok(Some(Line { text: received(&line.text).1.to_owned(), ..line }))
    }

    async fn apply(&mut self, file_name: &str, yaml: &str) -> Result<(), StageError> {
        self.cluster
            .apply(&in_cluster(yaml, BOOKSTORE_IMAGE))
            .await
            .map_err(failed(&format!("apply {file_name}")))
    }

    async fn smc(&mut self, arguments: &[&str]) -> Result<String, StageError> {
        let deadline = Instant::now() + PATIENCE;
        // Each replica knows only the sidecars connected to it, and a sidecar may be reconnecting.
        loop {
            let mut problem = String::new();
            for replica in 0..REPLICAS {
                match smc(self.cluster, replica, arguments).await {
                    Ok(output) => return Ok(output),
                    Err(error) => problem = error,
                }
            }
            if Instant::now() >= deadline {
                let action = format!("run `smc {}`", arguments.join(" "));
                return Err(StageError { action, source: problem.into() });
            }
            sleep(POLL).await;
        }
    }

    async fn kill_leader(&mut self) -> Result<u16, StageError> {
        let status = self.smc(&["cluster", "status", "-o", "json"]).await?;
        let action = "find out who leads";
        let status: serde_json::Value = serde_json::from_str(&status).map_err(failed(action))?;
        let leader = status["leader"].as_u64().and_then(|leader| u16::try_from(leader).ok());
        let leader = leader
            .ok_or_else(|| StageError { action: action.to_owned(), source: status.to_string().into() })?;
        let pod = format!("smc-controller-{leader}");
        let delete =
            ["delete", "pod", "-n", MESH_NAMESPACE, &pod, "--grace-period=0", "--force", "--wait=false"];
        let killed = self.cluster.kubectl(&delete).await.map_err(failed("kill the leader"))?;
        if !killed.success() {
            let problem =
                ClusterError::Command { command: "kubectl delete".to_owned(), problem: killed.stderr };
            return Err(failed("kill the leader")(problem));
        }
        Ok(leader)
    }

    /// Restarts the pods of the StatefulSet as an update does. The calls say what that does to the mesh: a
    /// sidecar's admin interface is reached from its pod alone.
    fn upgrade(&self) -> Upgrade {
        let cluster = ClusterHandle::clone(self.cluster);
        Box::pin(async move {
            for what in [&["restart"] as &[&str], &["status", "--timeout=200s"]] {
                let set = ["-n", MESH_NAMESPACE, "statefulset/smc-controller"];
                let rollout = [&["rollout"], what, &set].concat();
                let output = cluster.kubectl(&rollout).await.map_err(failed("restart the controllers"))?;
                if !output.success() {
                    let command = format!("kubectl rollout {}", what[0]);
                    let problem = ClusterError::Command { command, problem: output.stderr };
                    return Err(failed("restart the controllers")(problem));
                }
            }
            Ok(Vec::new())
        })
    }
}
