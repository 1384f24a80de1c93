//! Owns the one command that runs on the host: `unshare`, which creates the lab's namespaces, or those of
//! a test.

use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::{LabError, config};

/// Mount, network, pid and IPC namespaces. `--kill-child` ties the first process to `unshare`, and
/// the kernel ties all other processes to the first.
const NAMESPACES: [&str; 7] =
    ["--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"];
/// For an ordinary user: root in a user namespace that also maps the users of Envoy and the
/// applications.
const USER_NAMESPACE: [&str; 3] = ["--user", "--map-root-user", "--map-auto"];

/// The flags with which `unshare` works on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Privilege(&'static [&'static str]);

/// Starts `lab pid1 CONFIG` in new namespaces. Closing the child's standard input ends the lab.
pub(super) fn spawn(privilege: Privilege, lab: &Path, config: &Path, log: Stdio) -> Result<Child, LabError> {
    let mut command = privilege.unshare();
    command.arg("--").arg(lab).arg("pid1").arg(config);
    command
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(Stdio::inherit())
        // Ctrl-C must not reach the lab: the owner ends it in order.
        .process_group(0);
    command.spawn().map_err(|error| spawn_error(&error))
}

impl Privilege {
    /// Finds the flags that work on this machine. Leaves nothing behind.
    ///
    /// # Errors
    ///
    /// `unshare` is missing, or this user may make no namespaces.
    pub async fn find() -> Result<Self, LabError> {
        let mut refusals = Vec::new();
        for flags in [&[] as &[&str], &USER_NAMESPACE] {
            let output =
                Self(flags).unshare().arg("true").output().await.map_err(|error| spawn_error(&error))?;
            if output.status.success() {
                return Ok(Self(flags));
            }
            refusals.push(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "));
        }
        Err(LabError::Unprivileged(refusals.join("; ")))
    }

    /// `unshare`, to which a program is added: the first process of new namespaces, as root. They end
    /// with it.
    pub fn unshare(self) -> Command {
        let mut command = Command::new("unshare");
        command.args(self.0).args(NAMESPACES);
        // Without the host's environment, so that a test does not depend on the user who runs it.
        command.env_clear().env("PATH", config::PATH).env("HOME", "/").env("LANG", "C.UTF-8");
        command
    }
}

fn spawn_error(source: &std::io::Error) -> LabError {
    LabError::Command {
        command: "unshare".to_owned(),
        problem: format!("{source} (Debian package: util-linux)"),
    }
}
