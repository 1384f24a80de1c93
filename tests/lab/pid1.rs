//! Owns the first process of the lab: mounts the file system view, starts the supervisor, reaps
//! orphans, and ends everything when the owner is gone or the supervisor has ended.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use smc_test_sandbox::lifeline;
use tokio::signal::unix::{SignalKind, signal};

use super::LabError;
use super::config::{self, Config};
use super::state_dir::StateDir;

/// Time limit for the supervisor to shut the controller down.
const GRACE: Duration = Duration::from_secs(8);

/// Runs as pid 1 of the lab's pid namespace and returns the exit code of the lab. Closing standard
/// input ends the lab. Fails in any other process: it would cover the machine's `/run`, and kill
/// every process of the machine.
pub async fn run(config_path: &Path) -> Result<u8, LabError> {
    if std::process::id() != 1 {
        return Err(LabError::Refused(
            "`pid1` is for the lab itself, as the first process of its namespace".to_owned(),
        ));
    }
    let config = Config::read(config_path)?;
    let state = StateDir::at(&config.state);
    let Some(lock) = state.relock()? else { return Err(LabError::AlreadyRunning(config.name)) };
    mount_view(&config)?;
    let code = supervise().await;
    // Kills all processes but this one: the state directory can be removed only after the last
    // write to it.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while waitpid(None, None).is_ok() {}
    drop(lock);
    if !config.keep_state && !state.is_kept() {
        state.remove()?;
    }
    code
}

async fn supervise() -> Result<u8, LabError> {
    let mut children = signal(SignalKind::child()).map_err(|error| internal("SIGCHLD", &error))?;
    let supervisor = Command::new(config::LAB)
        .arg("supervise")
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| internal("supervise", &error))?;
    let supervisor = Pid::from_raw(i32::try_from(supervisor.id()).unwrap_or(i32::MAX));

    let mut owner_gone = lifeline::closed();
    let mut deadline = None;
    loop {
        tokio::select! {
            _ = children.recv() => {
                if let Some(code) = reap(supervisor) {
                    return Ok(code);
                }
            }
            _ = &mut owner_gone, if deadline.is_none() => {
                let _ = kill(supervisor, Signal::SIGTERM);
                deadline = Some(tokio::time::Instant::now() + GRACE);
            }
            () = sleep_until(deadline) => return Ok(1),
        }
    }
}

async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Reaps every process that ended, child or orphan. Returns the supervisor's exit code once it has
/// ended.
fn reap(supervisor: Pid) -> Option<u8> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == supervisor => {
                return Some(u8::try_from(code).unwrap_or(1));
            }
            Ok(WaitStatus::Signaled(pid, ..)) if pid == supervisor => return Some(1),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return None,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Replaces `/run` by a private tmpfs with everything the lab uses.
fn mount_view(config: &Config) -> Result<(), LabError> {
    // Built elsewhere and moved over `/run` at the end, since its sources may be below `/run`
    // themselves.
    let view = StateDir::at(&config.state).view();
    do_mount(Some("tmpfs"), &view, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV)?;
    fs::set_permissions(&view, fs::Permissions::from_mode(0o755))
        .map_err(LabError::file("set the mode of", &view))?;
    let inside = |path: &str| view.join(path.trim_start_matches("/run/"));
    let bin = config.lab.parent().map(Path::to_owned).unwrap_or_default();
    let sources: [(&str, Option<&PathBuf>); 6] = [
        (config::STATE, Some(&config.state)),
        (config::SOURCE, Some(&config.source)),
        (config::BIN, Some(&bin)),
        (config::LAB, Some(&config.lab)),
        (config::SMC, config.smc.as_ref()),
        (config::ENVOY, config.envoy.as_ref()),
    ];
    for (path, source) in sources {
        let Some(source) = source else { continue };
        let target = inside(path);
        if source.is_dir() {
            fs::create_dir_all(&target).map_err(LabError::file("create", &target))?;
        } else {
            fs::write(&target, "").map_err(LabError::file("create", &target))?;
        }
        do_mount(Some(source), &target, None, MsFlags::MS_BIND)?;
    }
    do_mount(Some(&view), Path::new("/run"), None, MsFlags::MS_MOVE)
}

fn do_mount<P: AsRef<Path> + ?Sized>(
    source: Option<&P>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
) -> Result<(), LabError> {
    mount(source.map(AsRef::as_ref), target, kind, flags, None::<&str>)
        .map_err(|errno| LabError::file("mount", target)(errno.into()))
}

fn internal(what: &str, error: &std::io::Error) -> LabError {
    LabError::Command { command: what.to_owned(), problem: error.to_string() }
}
