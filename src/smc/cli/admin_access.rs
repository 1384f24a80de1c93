//! The flags of subcommands that call a controller, and the way to it.
//!
//! Owns two ways: the administration socket on this machine, and, where none is named, a pod of the control
//! plane through the API server. For that, the program runs itself in the pod (`smc admin-pipe`), as `kubectl
//! exec` would, and speaks with the socket there over the streams. So no port is open for the administration,
//! and who may use it is decided by the right to `pods/exec` in the control plane's namespace.

use std::path::PathBuf;

use clap::Args;
use smc_kubernetes::install::controllers::{ControllerError, Controllers};
use smc_kubernetes::kubeconfig::KubeAccessError;
use smc_server::admin::client::{
    CALL_TIMEOUT, Client, ConnectError, MEMBERSHIP_TIMEOUT, connect, connect_patiently,
};
use smc_types::ids::{MeshNamespace, ReplicaId};
use thiserror::Error;

use super::kube_access::KubeArgs;

/// The flags of subcommands that call a controller.
#[derive(Debug, Clone, Args)]
pub(super) struct AdminArgs {
    /// The controller's administration socket [default: a controller of the cluster, through the API server]
    #[arg(long, value_name = "PATH", env = "SMC_ADMIN_SOCKET")]
    admin_socket: Option<PathBuf>,
    /// The control plane's namespace in the cluster
    #[arg(long, value_name = "NAMESPACE", default_value_t, value_parser = MeshNamespace::new)]
    mesh_namespace: MeshNamespace,
    /// The replica to call in the cluster [default: the first one that is ready]
    #[arg(long, value_name = "N", conflicts_with = "admin_socket")]
    replica: Option<ReplicaId>,
    #[command(flatten)]
    kube: KubeArgs,
}

/// No controller can be called.
#[derive(Debug, Error)]
pub(super) enum AdminAccessError {
    #[error(transparent)]
    Socket(#[from] ConnectError),
    #[error("no --admin-socket is given, and there is no cluster to look for a controller in")]
    Cluster(#[from] KubeAccessError),
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

impl AdminArgs {
    pub(super) async fn client(&self) -> Result<Client, AdminAccessError> {
        match &self.admin_socket {
            Some(socket) => Ok(connect(socket).await?),
            None => Ok(self.controllers().await?.client(self.replica, CALL_TIMEOUT).await?),
        }
    }

    /// For calls that may take minutes.
    pub(super) async fn patient_client(&self) -> Result<Client, AdminAccessError> {
        match &self.admin_socket {
            Some(socket) => Ok(connect_patiently(socket).await?),
            None => Ok(self.controllers().await?.client(self.replica, MEMBERSHIP_TIMEOUT).await?),
        }
    }

    /// One client for each controller that is ready, for what every controller knows only its own part of. On
    /// a socket, or where a replica is named, that is one.
    pub(super) async fn every_client(&self) -> Result<Vec<Client>, AdminAccessError> {
        if self.admin_socket.is_some() || self.replica.is_some() {
            return Ok(vec![self.client().await?]);
        }
        Ok(self.controllers().await?.clients(CALL_TIMEOUT).await?)
    }

    /// A client of the cluster that the controllers are in.
    pub(super) async fn cluster(&self) -> Result<kube::Client, AdminAccessError> {
        Ok(self.kube.client().await?)
    }

    async fn controllers(&self) -> Result<Controllers, AdminAccessError> {
        Ok(Controllers::new(self.cluster().await?, self.mesh_namespace.clone()))
    }
}
