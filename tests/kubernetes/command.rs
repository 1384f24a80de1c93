//! Owns commands that run to their end.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::{ClusterError, config};

/// The output of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit status; -1 after a signal.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Returns true if the command succeeded.
    pub fn success(&self) -> bool {
        self.status == 0
    }

    /// The failure of `command`, if this is the output of one that failed, with what it said about it.
    pub(crate) fn require(&self, command: impl Into<String>) -> Result<(), ClusterError> {
        if self.success() {
            return Ok(());
        }
        Err(ClusterError::Command { command: command.into(), problem: self.stderr.trim().to_owned() })
    }
}

/// A command without the environment of the host.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", config::PATH).env("HOME", "/root").env("LANG", "C.UTF-8");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command to its end, at most for `limit`, with `input`.
pub(crate) async fn output(
    mut command: Command,
    input: &str,
    limit: Duration,
) -> Result<Output, ClusterError> {
    let line = line(&command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(ClusterError::command(&line))?;
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
    let problem = format!("did not end within {} s", limit.as_secs());
    let output = tokio::time::timeout(limit, exchange)
        .await
        .map_err(|_| ClusterError::Command { command: line.clone(), problem })?
        .map_err(ClusterError::command(&line))?;
    Ok(Output {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// As [`output`]; an exit status other than 0 is an error.
pub(crate) async fn run(command: Command, input: &str, limit: Duration) -> Result<String, ClusterError> {
    let line = line(&command);
    let output = output(command, input, limit).await?;
    if output.success() {
        return Ok(output.stdout);
    }
    let problem = format!("exit status {}: {}", output.status, output.stderr.trim());
    Err(ClusterError::Command { command: line, problem })
}

fn line(command: &Command) -> String {
    let command = command.as_std();
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
