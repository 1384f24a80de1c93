//! What the process inside the namespaces is told, and where it finds things there.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::LabError;

// Inside the lab, `/run` is a private tmpfs, and everything the lab needs is mounted below one directory there. So
// other users' processes (Envoy, the applications) reach it even if the way there on the host is closed to them, as a
// home directory is.

/// The state directory.
pub(super) const STATE: &str = "/run/smc-lab/state";
/// The mesh directory as its owner edits it.
pub(super) const SOURCE: &str = "/run/smc-lab/mesh";
/// The directory of the running `smc-lab`, which has its sister programs; first in every container's PATH.
pub(super) const BIN: &str = "/run/smc-lab/bin";
/// This program.
pub(super) const LAB: &str = "/run/smc-lab/smc-lab";
/// The program under test.
pub(super) const SMC: &str = "/run/smc-lab/smc";
/// The proxy.
pub(super) const ENVOY: &str = "/run/smc-lab/envoy";

/// `smc` talks to a replica of the controller through this socket.
pub(super) fn admin_socket(replica: u16) -> String {
    format!("{STATE}/{}.sock", numbered("admin", replica))
}

/// A replica's file or directory; the first one's has no number.
pub(super) fn numbered(name: &str, replica: u16) -> String {
    match replica {
        0 => name.to_owned(),
        _ => format!("{name}-{replica}"),
    }
}

/// PATH of everything inside; Debian's ordinary users have no `sbin`, where `ip` and `iptables` are.
pub(super) const PATH: &str = "/run/smc-lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Which xDS variant the proxies speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// Incremental xDS.
    #[default]
    Delta,
    /// State of the world.
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

/// Everything the inside needs to know, written to the state directory before it starts.
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
    /// Replicas of the controller; none, and there are no Envoys either.
    pub(super) replicas: u16,
    pub(super) controller_args: Vec<String>,
    pub(super) envoy_args: Vec<String>,
    pub(super) keep_state: bool,
}

impl Config {
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
