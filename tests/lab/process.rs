//! Owns child processes: running a command to its end, and ending process groups and namespaces.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::{LabError, config};

/// Time limit for commands that only change kernel tables, on a machine that is busy starting
/// Envoys.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A command in the node's namespace, without the host's environment.
pub(super) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", config::PATH).env("HOME", "/").env("LANG", "C.UTF-8");
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    command
}

/// A command as root in the namespaces that `pause` holds.
pub(super) fn command_in_pod(pause: u32, args: &[&str]) -> Command {
    command_as(pause, 0, 0, args)
}

/// A command as the given user in the namespaces that `pause` holds.
pub(super) fn command_as(pause: u32, uid: u32, gid: u32, args: &[&str]) -> Command {
    let mut command = command(config::LAB, &["enter"]);
    command.args(["--pid", &pause.to_string(), "--uid", &uid.to_string(), "--gid", &gid.to_string(), "--"]);
    command.args(args);
    command
}

/// Runs `command` to its end with `input` and returns its output. An exit status other than 0 is an
/// error.
pub(super) async fn run(mut command: Command, input: &str) -> Result<String, LabError> {
    let line = command_line(&command);
    let failed = |problem: String| LabError::Command { command: line.clone(), problem };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let stdin = child.stdin.take();
    let exchange = async {
        let write = async {
            if let Some(mut stdin) = stdin {
                // A program that ended early reports its own error.
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
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(format!("{}: {stderr}", output.status)))
}

fn command_line(command: &Command) -> String {
    let command = command.as_std();
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A child's process group: the child and its descendants, which may outlive it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Option<Pid>);

impl Group {
    /// Returns the group of a child of [`command`]. Call it before the child is waited for.
    pub(super) fn of(child: &Child) -> Self {
        Self(child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw))
    }

    /// Sends a signal to the whole group; an empty group is not an error.
    pub(super) fn signal(self, signal: Signal) {
        if let Some(pid) = self.0 {
            let _ = killpg(pid, signal);
        }
    }

    /// Sends SIGTERM, waits for the child, and after `grace` sends SIGKILL.
    pub(super) async fn terminate(self, child: &mut Child, grace: Duration) {
        self.signal(Signal::SIGTERM);
        if tokio::time::timeout(grace, child.wait()).await.is_err() {
            self.signal(Signal::SIGKILL);
            let _ = child.wait().await;
        }
    }
}

/// Kills every process in the network namespace of `pause` except `pause`, whatever its group or
/// session.
pub(super) fn kill_namespace(pause: u32) {
    let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let Some(own) = i32::try_from(pause).ok().and_then(namespace) else { return };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in processes.filter(|pid| u32::try_from(*pid) != Ok(pause)) {
        if namespace(pid).as_ref() == Some(&own) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
