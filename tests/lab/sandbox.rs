//! Opens the namespaces: the one command that is run on the host.

use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::{LabError, config};

/// Mount, network, pid and IPC namespaces. `--kill-child` ties the first process to `unshare`, and the kernel ties
/// everything else to the first process.
const NAMESPACES: [&str; 7] =
    ["--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"];
/// For an ordinary user: be root in a user namespace that also has the users Envoy and the applications run as.
const USER_NAMESPACE: [&str; 3] = ["--user", "--map-root-user", "--map-auto"];

/// What `unshare` needs to be told to open namespaces here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Privilege(&'static [&'static str]);

/// Starts `lab pid1 CONFIG` in new namespaces. Closing the child's standard input ends the lab.
pub(super) fn spawn(privilege: Privilege, lab: &Path, config: &Path, log: Stdio) -> Result<Child, LabError> {
    let mut command = unshare(privilege.0);
    command.arg("--").arg(lab).arg("pid1").arg(config);
    command
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(Stdio::inherit())
        // Ctrl-C is for the owner, who ends the lab in order.
        .process_group(0);
    command.spawn().map_err(|error| spawn_error(&error))
}

fn unshare(flags: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(flags).args(NAMESPACES);
    // The host's environment is not the mesh's: what a test sees should not depend on who runs it.
    command.env_clear().env("PATH", config::PATH).env("HOME", "/").env("LANG", "C.UTF-8");
    command
}

/// Finds out what works here; leaves nothing.
pub(super) async fn privilege() -> Result<Privilege, LabError> {
    let mut refusals = Vec::new();
    for flags in [&[] as &[&str], &USER_NAMESPACE] {
        let output = unshare(flags).arg("true").output().await.map_err(|error| spawn_error(&error))?;
        if output.status.success() {
            return Ok(Privilege(flags));
        }
        refusals.push(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "));
    }
    Err(LabError::Unprivileged(refusals.join("; ")))
}

fn spawn_error(source: &std::io::Error) -> LabError {
    LabError::Command {
        command: "unshare".to_owned(),
        problem: format!("{source} (Debian package: util-linux)"),
    }
}
