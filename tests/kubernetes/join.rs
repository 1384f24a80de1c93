//! Owns the step between keeper and first process: joins the cluster's cgroups and executes
//! `unshare`, so that a new cgroup namespace begins there.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::ClusterError;
use crate::cgroups::Cgroups;
use crate::config::{self, Config};

/// The namespaces of every cluster. `--kill-child` ties the first process to `unshare`, and the
/// kernel ties all others to the first.
const NAMESPACES: [&str; 6] = ["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"];
/// Those of a cluster with a node.
const NODE_NAMESPACES: [&str; 3] = ["--net", "--uts", "--cgroup"];

/// Executes the first process in new namespaces. Returns only on failure.
pub fn join(config_path: &Path) -> Result<(), ClusterError> {
    let config = Config::read(config_path)?;
    if config.node {
        Cgroups::of(&config.name)?.enter()?;
    }
    let mut command = Command::new("unshare");
    command.args(&config.unshare).args(NAMESPACES);
    if config.node {
        command.args(NODE_NAMESPACES);
    }
    command.arg("--").arg(&config.program).arg("pid1").arg(config_path);
    command.env_clear().env("PATH", config::PATH).env("LANG", "C.UTF-8");
    Err(ClusterError::command("unshare")(command.exec()))
}
