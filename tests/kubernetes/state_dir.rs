//! Owns what is where in the directory of one cluster on the host: keys, logs, etcd's data, the
//! containers' files.

use std::ops::Deref;
use std::path::PathBuf;

use smc_test_sandbox::{StateDirectory, running};

use crate::ClusterError;

/// The directories of clusters, among those of other sandboxes.
const KIND: &str = "cluster";

/// The longest name: it is part of the paths of containerd's sockets, which have room for 107 bytes.
const MAX_NAME: usize = 30;

/// The directory of one cluster.
#[derive(Clone, Debug)]
pub struct StateDir(StateDirectory);

impl Deref for StateDir {
    type Target = StateDirectory;

    fn deref(&self) -> &StateDirectory {
        &self.0
    }
}

impl StateDir {
    /// The directory of the cluster `name`, which need not exist; if it exists, it belongs to this
    /// user. Names have lower-case letters, digits and dashes, at most 30.
    pub fn of(name: &str) -> Result<Self, ClusterError> {
        if name.len() > MAX_NAME {
            let text = format!("`{name}` (at most {MAX_NAME} characters)");
            return Err(ClusterError::Invalid { what: "name of a cluster", text });
        }
        Ok(Self(StateDirectory::of(KIND, name)?))
    }

    /// The directory at a path that [`StateDir::of`] returned before, in another process.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(StateDirectory::at(path))
    }

    /// Empties the directory for a cluster. The caller holds its lock.
    pub(crate) fn prepare(&self) -> Result<(), ClusterError> {
        Ok(self.clear(&[&self.logs(), &self.keys(), &self.images()])?)
    }

    /// The kubeconfig of the administrator, as clients on the host use it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path().join("kubeconfig")
    }

    /// The log of a component, for example `kubelet`.
    pub fn log(&self, component: &str) -> PathBuf {
        self.logs().join(format!("{component}.log"))
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path().join("logs")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.path().join("keys")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.path().join("images")
    }

    /// etcd's data.
    pub(crate) fn etcd(&self) -> PathBuf {
        self.path().join("etcd")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("config.json")
    }

    /// The cgroups of the cluster, one per line.
    pub(crate) fn cgroups(&self) -> PathBuf {
        self.path().join("cgroups")
    }

    /// Written by the keeper at the end of its start: the port of the API server on the host.
    pub(crate) fn port(&self) -> PathBuf {
        self.path().join("port")
    }

    /// The process id of the keeper.
    pub(crate) fn keeper_pid(&self) -> PathBuf {
        self.path().join("keeper.pid")
    }
}

/// Lists the running clusters of this user.
pub fn running_clusters() -> Vec<String> {
    running(KIND)
}
