//! Owns what the administrator of any cluster does: a client, kubectl, helm.

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use crate::command::{self, Output, command};
use crate::{ClusterError, Programs};

/// Time limit of one command. helm waits up to four minutes for what it installs.
const LIMIT: Duration = Duration::from_mins(5);

/// The administrator of a cluster: one of this machine, or one that a person names.
#[derive(Clone, Debug)]
pub struct Admin {
    kubeconfig: PathBuf,
    programs: Programs,
}

impl Admin {
    /// With this kubeconfig, and these kubectl and helm.
    pub fn new(kubeconfig: PathBuf, programs: Programs) -> Self {
        Self { kubeconfig, programs }
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// The programs of Kubernetes.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// A client with the rights of the administrator. It belongs to the runtime that made it.
    pub async fn client(&self) -> Result<Client, ClusterError> {
        let path = self.kubeconfig();
        let failed = |source| ClusterError::Kubeconfig { path: path.clone(), source };
        let kubeconfig = Kubeconfig::read_from(&path).map_err(failed)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.map_err(failed)?).map_err(ClusterError::api("connect to the API server"))
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl(&self, args: &[&str]) -> Result<Output, ClusterError> {
        self.kubectl_with(args, "").await
    }

    /// Runs kubectl as the administrator with standard input.
    pub async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<Output, ClusterError> {
        let mut kubectl = command(self.programs.find("kubectl")?);
        kubectl.arg("--kubeconfig").arg(self.kubeconfig()).args(args);
        command::output(kubectl, input, LIMIT).await
    }

    /// Applies YAML or JSON on the server's side, and fails if the server refuses any of it.
    pub async fn apply(&self, manifests: &str) -> Result<(), ClusterError> {
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.kubectl_with(&args, manifests).await?.require("kubectl apply")
    }

    /// Waits until the Pods among these manifests are ready, for a minute and a half at most.
    pub async fn pods_ready(&self, manifests: &str) -> Result<(), ClusterError> {
        let is_pod = |manifest: &&str| manifest.lines().any(|line| line == "kind: Pod");
        let pods: Vec<_> = manifests.split("---\n").filter(is_pod).collect();
        let wait = ["wait", "--for=condition=Ready", "--timeout=90s", "-f", "-"];
        self.kubectl_with(&wait, &pods.join("---\n")).await?.require("kubectl wait")
    }

    /// Runs helm.
    pub async fn helm(&self, args: &[&str]) -> Result<Output, ClusterError> {
        let mut helm = command(self.programs.find("helm")?);
        // helm keeps a cache in the home directory; these charts need none.
        let home = std::env::temp_dir().join("smc-cluster-helm");
        helm.env("HOME", home).arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        command::output(helm, "", LIMIT).await
    }

    /// Command-line path of kubectl, and the flags that name this cluster.
    pub fn kubectl_line(&self) -> Result<String, ClusterError> {
        let kubectl = self.programs.find("kubectl")?;
        Ok(format!("{} --kubeconfig {}", kubectl.display(), self.kubeconfig().display()))
    }
}
