//! Processes: the ones that run to their end, and the ways to end others.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::{LabError, config};

/// For commands that only change a few kernel tables, on a machine that is busy starting Envoys.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A command of the lab's, in the node's namespace, with nothing of the host's environment.
pub(super) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", config::PATH).env("HOME", "/").env("LANG", "C.UTF-8");
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    command
}

/// A command as root in the namespaces of the Pod that `pause` holds.
pub(super) fn command_in_pod(pause: u32, args: &[&str]) -> Command {
    command_as(pause, 0, 0, args)
}

/// A command as some user in the namespaces of the Pod that `pause` holds.
pub(super) fn command_as(pause: u32, uid: u32, gid: u32, args: &[&str]) -> Command {
    let mut command = command(config::LAB, &["enter"]);
    command.args(["--pid", &pause.to_string(), "--uid", &uid.to_string(), "--gid", &gid.to_string(), "--"]);
    command.args(args);
    command
}

/// Runs `command` with `input` to its end and returns what it printed; failing is an error.
pub(super) async fn run(mut command: Command, input: &str) -> Result<String, LabError> {
    let line = command_line(&command);
    let failed = |problem: String| LabError::Command { command: line.clone(), problem };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let stdin = child.stdin.take();
    let exchange = async {
        let write = async {
            if let Some(mut stdin) = stdin {
                // A program that ended early says why itself.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        output
    };
    let output = tokio::time::timeout(TIMEOUT, exchange)
        .await
        .map_err(|_| failed(format!("did not end within {} s", TIMEOUT.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(format!("{}: {said}", output.status)))
}

fn command_line(command: &Command) -> String {
    let command = command.as_std();
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A child's process group: the child and what it started, which may outlive it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Option<Pid>);

impl Group {
    /// The group of a child that [`command`] made. Must be asked before the child was waited for.
    pub(super) fn of(child: &Child) -> Self {
        Self(child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw))
    }

    /// Sends a signal to everybody in the group; nobody there is fine.
    pub(super) fn signal(self, signal: Signal) {
        if let Some(pid) = self.0 {
            let _ = killpg(pid, signal);
        }
    }

    /// Asks the group to end, waits for the child, and after `grace` does not ask any more.
    pub(super) async fn terminate(self, child: &mut Child, grace: Duration) {
        self.signal(Signal::SIGTERM);
        if tokio::time::timeout(grace, child.wait()).await.is_err() {
            self.signal(Signal::SIGKILL);
            let _ = child.wait().await;
        }
    }
}

/// Ends every process in the network namespace of `pause`, whatever group or session it made itself, except `pause`.
pub(super) fn kill_namespace(pause: u32) {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let Some(own) = namespace(&pause.to_string()) else { return };
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.parse::<u32>().is_ok_and(|pid| pid != pause)) else {
            continue;
        };
        if namespace(pid).as_ref() == Some(&own) {
            let _ = nix::sys::signal::kill(Pid::from_raw(pid.parse().unwrap_or(i32::MAX)), Signal::SIGKILL);
        }
    }
}
