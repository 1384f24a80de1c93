//! Owns the configuration that the lab's first process reads, and the paths inside its namespaces.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use smc_types::ids::MeshNamespace;

use super::LabError;

// Inside the lab, `/run` is a private tmpfs, and everything the lab needs is mounted below one
// directory in it. Processes of other users (Envoy, the applications) can read it there even if the
// host's path leads through a private home directory.

/// The state directory.
pub(super) const STATE: &str = "/run/smc-lab/state";
/// The mesh directory that the user edits.
pub(super) const SOURCE: &str = "/run/smc-lab/mesh";
/// The directory of `smc-lab` and the other programs of this workspace; first in the PATH of every
/// container.
pub(super) const BIN: &str = "/run/smc-lab/bin";
/// `smc-lab` itself.
pub(super) const LAB: &str = "/run/smc-lab/smc-lab";
/// The program under test.
pub(super) const SMC: &str = "/run/smc-lab/smc";
/// Envoy, in every process of a lab.
pub const ENVOY: &str = "/run/smc-lab/envoy";

/// The admin socket of a replica, for `smc`.
pub(super) fn admin_socket(replica: u16) -> String {
    format!("{STATE}/{}.sock", numbered("admin", replica))
}

/// The group of a replica's process, by which the node's rules tell its packets from those of others.
pub(super) fn controller_gid(replica: u16) -> u32 {
    2000 + u32::from(replica)
}

/// The name of a replica's file or directory. The first replica's has no number.
pub(super) fn numbered(name: &str, replica: u16) -> String {
    match replica {
        0 => name.to_owned(),
        _ => format!("{name}-{replica}"),
    }
}

/// PATH of every process inside. The default PATH of ordinary users in Debian has no `sbin`, where
/// `ip` and `iptables` are.
pub(super) const PATH: &str = "/run/smc-lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The xDS variant the proxies use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// Incremental xDS.
    #[default]
    Delta,
    /// State of the World.
    Sotw,
}

impl Variant {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::Sotw => "sotw",
        }
    }
}

/// The lab's configuration, written to the state directory before the first process starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Config {
    pub(super) name: String,
    /// Paths on the host.
    pub(super) state: PathBuf,
    pub(super) source: PathBuf,
    pub(super) lab: PathBuf,
    pub(super) smc: Option<PathBuf>,
    pub(super) envoy: Option<PathBuf>,
    pub(super) variant: Variant,
    pub(super) dual_stack: bool,
    /// Number of controller replicas. With 0 there are no Envoys either.
    pub(super) replicas: u16,
    /// Further replicas, which run only once they are started.
    pub(super) absent_replicas: u16,
    /// The kubeconfig of the API server that the controllers read, instead of the published directory.
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) controller_args: Vec<String>,
    pub(super) envoy_args: Vec<String>,
    pub(super) keep_state: bool,
}

impl Config {
    /// The mesh's own namespace: the one in the controller's arguments, or the default.
    pub(super) fn mesh_namespace(&self) -> MeshNamespace {
        const FLAG: &str = "--mesh-namespace";
        let mut args = self.controller_args.iter();
        let mut stated = None;
        while let Some(arg) = args.next() {
            let value = arg.strip_prefix(FLAG).and_then(|rest| rest.strip_prefix('=')).map(str::to_owned);
            stated = value.or_else(|| if arg == FLAG { args.next().cloned() } else { None }).or(stated);
        }
        // The controller refuses an invalid one, and the lab ends.
        stated.and_then(|text| MeshNamespace::new(&text).ok()).unwrap_or_default()
    }

    pub(super) fn read(path: &Path) -> Result<Self, LabError> {
        let bytes = std::fs::read(path).map_err(LabError::file("read", path))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| LabError::Invalid { what: "lab configuration", text: error.to_string() })
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), LabError> {
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| LabError::Invalid { what: "lab configuration", text: error.to_string() })?;
        std::fs::write(path, bytes).map_err(LabError::file("write", path))
    }
}
