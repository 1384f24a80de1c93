//! Owns copies of etcd's data, and putting one back, as an administrator who restores a backup does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::{Cluster, ClusterError, command};

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";
/// The components that decide by what they have seen.
const REMEMBERING: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];
/// Time limit of a copy: some MB, and files that etcd has reserved.
const COPY: Duration = Duration::from_mins(1);

/// A copy of etcd's data, which is gone with its cluster.
#[derive(Debug)]
pub struct EtcdCopy(PathBuf);

impl Cluster {
    /// Copies etcd's data as they are now. etcd is away for a moment; the API server goes on.
    pub async fn copy_etcd(&self) -> Result<EtcdCopy, ClusterError> {
        let copy = EtcdCopy(self.state_dir().path().join("etcd-copy"));
        self.end(ETCD).await?;
        replace(&copy.0, &self.state_dir().etcd()).await?;
        self.start_again(ETCD).await?;
        self.wait_api_server().await?;
        Ok(copy)
    }

    /// Puts a copy back: ends the API server and etcd, and starts both over the copy. Returns when the API
    /// server is ready. What remembers the state before is started again, as Kubernetes' documents have it: a
    /// scheduler that goes on may leave a pod unscheduled, which it had scheduled in what is lost.
    pub async fn put_back(&self, copy: &EtcdCopy) -> Result<(), ClusterError> {
        self.end(API_SERVER).await?;
        self.end(ETCD).await?;
        replace(&self.state_dir().etcd(), &copy.0).await?;
        self.start_again(ETCD).await?;
        self.start_api_server().await?;
        let running = self.components().await?;
        for component in REMEMBERING.into_iter().filter(|one| running.iter().any(|name| name == one)) {
            self.end(component).await?;
            self.start_again(component).await?;
        }
        Ok(())
    }

    async fn end(&self, component: &str) -> Result<(), ClusterError> {
        // What etcd has acknowledged is in the kernel's hands, whatever ends the process.
        self.signal(component, Signal::SIGKILL).await?;
        self.wait_ended(component).await
    }
}

/// Replaces a directory by a copy of another one. Files that hold next to nothing stay small.
async fn replace(directory: &Path, by: &Path) -> Result<(), ClusterError> {
    let removed = match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    removed.map_err(ClusterError::file("remove", directory))?;
    let mut copy = command::command("cp");
    copy.args(["--archive", "--sparse=always", "--no-target-directory", "--"]).arg(by).arg(directory);
    command::run(copy, "", COPY).await.map(|_| ())
}
