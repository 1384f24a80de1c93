//! Owns the configuration that the keeper and the first process read.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ClusterError;
use crate::state_dir::StateDir;

/// Name of the one node, and its host name.
pub(crate) const NODE: &str = "node";
/// Address of the node, at which the API server is advertised to pods.
pub(crate) const NODE_ADDRESS: &str = "10.111.0.1";
/// Virtual IPs of Services.
pub(crate) const SERVICE_RANGE: &str = "10.96.0.0/16";
/// Virtual IP of the API server, the first of the range.
pub(crate) const API_SERVICE: &str = "10.96.0.1";
/// Virtual IP of the name server.
pub(crate) const DNS_SERVICE: &str = "10.96.0.10";
/// Addresses of pods.
pub(crate) const POD_RANGE: &str = "10.244.0.0/16";
/// The part of it that the node gives to its pods.
pub(crate) const NODE_POD_RANGE: &str = "10.244.0.0/24";
/// Port of the API server, at an address of its own.
pub(crate) const API_PORT: u16 = 6443;
/// Ports of etcd, at an address of its own: of clients, of members.
pub(crate) const ETCD_PORTS: (u16, u16) = (2379, 2380);
/// Search path of components: the packages that they need are Debian's.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One cluster, as its processes know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The cluster's name.
    pub(crate) name: String,
    /// Its directory.
    pub(crate) state: PathBuf,
    /// The `smc-cluster` program.
    pub(crate) program: PathBuf,
    /// Has a node, and with it namespaces and cgroups of its own.
    pub(crate) node: bool,
    /// Additional flags of `unshare`, for an ordinary user.
    pub(crate) unshare: Vec<String>,
}

impl Config {
    pub(crate) fn state_dir(&self) -> StateDir {
        StateDir::at(self.state.clone())
    }

    pub(crate) fn write(&self) -> Result<(), ClusterError> {
        let path = self.state_dir().config();
        let text = serde_json::to_vec_pretty(self).map_err(ClusterError::command("write config.json"))?;
        fs::write(&path, text).map_err(ClusterError::file("write", &path))
    }

    pub(crate) fn read(path: &Path) -> Result<Self, ClusterError> {
        let text = fs::read(path).map_err(ClusterError::file("read", path))?;
        Self::parse(&text)
    }

    pub(crate) fn parse(text: &[u8]) -> Result<Self, ClusterError> {
        serde_json::from_slice(text).map_err(ClusterError::command("read the configuration"))
    }
}
