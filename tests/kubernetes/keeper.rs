//! Owns the process that outlives the cluster's owner by a moment: holds the lock, starts the first
//! process in its namespaces, forwards to the API server, and removes everything at the end.
//!
//! It speaks with the owner over its standard input and output, a word per line: `locked` (the
//! directory is empty and ready to be filled), then from the owner `go`, then `up PORT`. The end of
//! its input ends the cluster, unless the owner has said `detach`.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::state_dir::StateDir;
use crate::{ClusterError, control, forward};

/// Poll interval of the first process.
const POLL: Duration = Duration::from_millis(100);
/// Time limit for the first process to mount, to set up its network and to listen, on a machine that is busy.
const START: Duration = Duration::from_mins(2);

/// Time limit for the end of all processes, which the kernel has killed.
const END: Duration = Duration::from_secs(10);

/// Runs until the cluster ends, which the end of standard input, SIGTERM or SIGINT asks for.
pub async fn keep(config: &str) -> Result<(), ClusterError> {
    let config = Config::parse(config.as_bytes())?;
    let state = config.state_dir();
    let mut words = words();
    let mut terminate = signal(SignalKind::terminate()).map_err(ClusterError::command("SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ClusterError::command("SIGINT"))?;
    let Some(_lock) = state.lock()? else {
        let text =
            format!("a cluster named `{0}` runs already; `smc-cluster down --name {0}` ends it", config.name);
        return Err(ClusterError::AlreadyRunning(text));
    };
    let cgroups = if config.node { Some(Cgroups::of(&config.name)?) } else { None };
    if let Some(cgroups) = &cgroups {
        // Those of a cluster that was killed together with its keeper.
        Cgroups::recorded(&state.cgroups()).remove().await?;
        cgroups.remove().await?;
        cgroups.create()?;
    }
    state.prepare()?;
    if let Some(cgroups) = &cgroups {
        cgroups.record(&state.cgroups())?;
    }
    let pid = state.keeper_pid();
    fs::write(&pid, std::process::id().to_string()).map_err(ClusterError::file("write", &pid))?;
    let result = run(&config, &state, &mut words, &mut terminate, &mut interrupt).await;
    if let Some(cgroups) = &cgroups {
        cgroups.remove().await?;
    }
    if !state.is_kept() {
        state.remove()?;
    }
    result
}

type Signals = tokio::signal::unix::Signal;

async fn run(
    config: &Config,
    state: &StateDir,
    words: &mut mpsc::Receiver<String>,
    terminate: &mut Signals,
    interrupt: &mut Signals,
) -> Result<(), ClusterError> {
    say("locked")?;
    match words.recv().await.as_deref() {
        Some("go") => {}
        _ => return Ok(()),
    }
    config.write()?;
    let mut child = spawn(config, state)?;
    // Taken out of `child`, because `Child::wait` closes the child's standard input.
    let _lifeline = child.stdin.take();
    let started = start(config, state, &mut child).await;
    let mut result = match &started {
        Ok((_, port)) => say(&format!("up {port}")),
        Err(_) => Ok(()),
    };
    let mut detached = false;
    while started.is_ok() && result.is_ok() {
        tokio::select! {
            word = words.recv(), if !detached => match word.as_deref() {
                Some("detach") => detached = true,
                Some(_) => {}
                None => break,
            },
            status = child.wait() => {
                let problem = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                result = Err(ClusterError::Command { command: "the first process".to_owned(), problem });
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    // `--kill-child` takes the first process along, and the kernel all others.
    let _ = child.start_kill();
    let _ = child.wait().await;
    if let Ok((pid, _)) = &started {
        ended(*pid).await;
    }
    started.and(result)
}

/// Waits for the end of the first process. It ends after all others of its namespace (pid_namespaces(7)),
/// and some moments after `join`: a cluster whose files are removed before still has an etcd that runs.
async fn ended(first_process: i32) {
    let stat = format!("/proc/{first_process}/stat");
    let deadline = Instant::now() + END;
    while fs::read_to_string(&stat).is_ok_and(|stat| runs(&stat)) && Instant::now() < deadline {
        tokio::time::sleep(POLL / 5).await;
    }
}

/// Whether a line of `/proc/PID/stat` is of a process of which any thread runs. Its command line would not
/// say so: that is empty as soon as the memory is gone, which is before the namespace is. Nor does the state
/// alone: it is that of the first thread, which may be a zombie while another one, as the last of the
/// process, still waits for the end of the namespace.
fn runs(stat: &str) -> bool {
    // The name of the program, in parentheses, may hold any character. After it come the state, which
    // proc_pid_stat(5) numbers 3, and in field 20 the number of threads.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let first_ended = fields.first().is_none_or(|state| ["Z", "X"].contains(state));
    let threads = fields.get(17).and_then(|threads| threads.parse().ok()).unwrap_or(0_u32);
    !first_ended || threads > 1
}

/// Reads words from the owner; the channel closes with standard input.
fn words() -> mpsc::Receiver<String> {
    // The owner says two words.
    let (sender, words) = mpsc::channel(4);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    words
}

fn say(word: &str) -> Result<(), ClusterError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word}")
        .and_then(|()| out.flush())
        .map_err(ClusterError::file("write", Path::new("stdout")))
}

fn spawn(config: &Config, state: &StateDir) -> Result<Child, ClusterError> {
    let path = state.log("pid1");
    let log = fs::File::create(&path).map_err(ClusterError::file("create", &path))?;
    let errors = log.try_clone().map_err(ClusterError::file("open", &path))?;
    Command::new(&config.program)
        .arg("join")
        .arg(state.config())
        // The lifeline: it closes with this process, however that ends.
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(ClusterError::command("join"))
}

/// Waits for the first process, and forwards to it. Returns its process id and the port of the API server
/// on the host; 0 if the cluster has no network of its own.
async fn start(config: &Config, state: &StateDir, child: &mut Child) -> Result<(i32, u16), ClusterError> {
    let deadline = Instant::now() + START;
    let pid = loop {
        match control::first_process(state).await {
            Ok(pid) => break pid,
            Err(_) if Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) => {
                tokio::time::sleep(POLL / 5).await;
            }
            Err(error) => {
                let log = fs::read_to_string(state.log("pid1")).unwrap_or_default();
                let problem = format!("{}: {}", error.chain(), log.trim());
                return Err(ClusterError::Command { command: "the first process".to_owned(), problem });
            }
        }
    };
    let port = if config.node { forward::start(pid)? } else { 0 };
    let path = state.port();
    fs::write(&path, port.to_string()).map_err(ClusterError::file("write", &path))?;
    Ok((pid, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_until_its_last_thread_has_ended() {
        for (stat, expected) in [
            ("7 (pid1) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 4 0", true),
            ("7 (a) Z (b) D 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0", true),
            ("7 (pid1) Z 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0", true),
            ("7 (pid1) Z 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0", false),
            ("7 (pid1) X 0 0 0 0 -1 4 0 0 0 0 0 0 0 0 20 0 0 0", false),
            ("", false),
        ] {
            assert_eq!(runs(stat), expected, "{stat}");
        }
    }
}
