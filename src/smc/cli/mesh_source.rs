//! Where `smc controller` reads the mesh from: a directory of YAML, or a Kubernetes API server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use kube::Client;
use smc_directory::DirectorySource;
use smc_host::env::Env;
use smc_kubernetes::KubernetesSource;
use smc_kubernetes::client::{self, ConnectError};
use smc_types::ids::{MeshName, MeshNamespace};

/// Flags that say which mesh is read, and from where.
#[derive(Debug, Args)]
pub(super) struct MeshArgs {
    /// The directory of Kubernetes YAML that declares the mesh; watched for changes
    #[arg(long, value_name = "DIR", required_unless_present = "kubernetes", conflicts_with = "kubernetes")]
    mesh_dir: Option<PathBuf>,
    /// Read the mesh from the Kubernetes API: with the service account of this pod, or as --kubeconfig says
    #[arg(long)]
    kubernetes: bool,
    /// The kubeconfig of the API server, instead of the service account of this pod
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", hide_env_values = true)]
    kubeconfig: Option<OsString>,
    /// The mesh's name: its namespaces carry the label openservicemesh.io/monitored-by with this value
    #[arg(long = "mesh-name", value_name = "NAME", default_value_t, value_parser = MeshName::new)]
    pub(super) name: MeshName,
    /// The control plane's own namespace, the only one whose MeshConfig takes effect
    #[arg(long = "mesh-namespace", value_name = "NAMESPACE", default_value_t, value_parser = MeshNamespace::new)]
    pub(super) namespace: MeshNamespace,
}

impl MeshArgs {
    /// The client of the API server, for all parts that use it; `None` where the mesh is read from a
    /// directory.
    pub(super) async fn client(&self) -> Result<Option<Client>, ConnectError> {
        if !self.kubernetes {
            return Ok(None);
        }
        client::connect(self.kubeconfig.as_ref()).await.map(Some)
    }

    /// The source of the mesh, the directory, which keeps what a restart needs in `data_dir`.
    pub(super) fn directory(&self, data_dir: &Path) -> DirectorySource {
        let directory = self.mesh_dir.clone().unwrap_or_default();
        DirectorySource::new(directory, data_dir.join("last-good"), self.name.clone())
    }

    /// The source of the mesh, the API server of `client`. It keeps what a restart needs in `data_dir`.
    pub(super) fn kubernetes(&self, client: &Client, data_dir: &Path, env: &Env) -> KubernetesSource {
        let (api, last_known) = (Arc::new(client.clone()), last_known_mesh(data_dir));
        let (name, namespace) = (self.name.clone(), self.namespace.clone());
        KubernetesSource::new(api, name, namespace, last_known, env.clone())
    }
}

/// Where a replica keeps the mesh that the API server confirmed the last time.
pub(super) fn last_known_mesh(data_dir: &Path) -> PathBuf {
    data_dir.join("last-known-mesh")
}
