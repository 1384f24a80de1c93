//! The flags by which a person names a cluster.

use std::path::PathBuf;

use clap::Args;
use kube::Client;
use smc_kubernetes::kubeconfig::{KubeAccessError, client};

/// How the cluster is reached.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct KubeArgs {
    /// The kubeconfig [default: as kubectl, $KUBECONFIG or ~/.kube/config; in a pod, its service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl KubeArgs {
    /// A client of the cluster. Does not connect yet.
    pub(super) async fn client(&self) -> Result<Client, KubeAccessError> {
        client(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }
}
