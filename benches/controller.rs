//! A real `smc controller` process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use smc_server::admin::client::{self, Client};
use smc_testkit::memory::memory_kib;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::{Result, processor_time};

/// How long any step may take before the run fails.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// How much of the log of a controller that does not start is shown, in characters.
const LOGGED: usize = 2000;

/// The program that a bench measures: `SMC_PROGRAM`, for example one that `make dist` built, or the `smc` of
/// the bench's own profile.
#[expect(
    clippy::disallowed_methods,
    reason = "a bench has its program from the environment, for all of its parts"
)]
fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("SMC_PROGRAM") {
        return Ok(program.into());
    }
    // Cargo puts benches into `deps`, below the directory of programs.
    let own = std::env::current_exe()?;
    Ok(own.ancestors().nth(2).ok_or("no directory of programs")?.join("smc"))
}

/// The process. Dropping it kills it.
pub struct Controller {
    child: Child,
    log: PathBuf,
    /// Its administration socket.
    pub socket: PathBuf,
}

impl Controller {
    /// Starts a controller with all its files but the mesh in `directory`, and with additional `flags`.
    pub fn start(directory: &Path, mesh_dir: &Path, kek: &Path, flags: &[String]) -> Result<Self> {
        let mut all = vec![format!("--mesh-dir={}", mesh_dir.display())];
        all.extend_from_slice(flags);
        Self::launch(directory, kek, &all)
    }

    /// Starts a controller with all its files in `directory`; `flags` name the source of its mesh.
    pub fn launch(directory: &Path, kek: &Path, flags: &[String]) -> Result<Self> {
        let smc = program()?;
        fs::create_dir_all(directory)?;
        let socket = directory.join("admin.sock");
        let log_file = directory.join("controller.log");
        let log = fs::File::options().create(true).append(true).open(&log_file)?;
        let child = Command::new(&smc)
            // As in the chart.
            .env("MALLOC_TRIM_THRESHOLD_", "131072")
            .arg("controller")
            .arg("--data-dir")
            .arg(directory.join("data"))
            .arg("--kek-file")
            .arg(kek)
            .arg("--create-kek")
            .args(["--log-level", "warn"])
            .arg("--admin-socket")
            .arg(&socket)
            .args(flags)
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}; build it first", smc.display()))?;
        Ok(Self { child, log: log_file, socket })
    }

    /// Connects to its administration socket once it listens.
    pub async fn client(&self) -> Result<Client> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match client::connect(&self.socket).await {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() > deadline => {
                    let log = fs::read_to_string(&self.log).unwrap_or_default();
                    let end = log.char_indices().rev().nth(LOGGED).map_or(0, |(at, _)| at);
                    return Err(format!("{error}; the controller says: {}", &log[end..]).into());
                }
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// The value of `field` in `/proc/PID/status`, in KiB.
    pub fn memory_kib(&self, field: &str) -> Result<u64> {
        let id = self.child.id().ok_or("the controller has ended")?;
        Ok(memory_kib(id, field)?)
    }

    /// The processor time that it has used, of all threads, in steps of 10 ms.
    pub fn cpu(&self) -> Result<Duration> {
        let id = self.child.id().ok_or("the controller has ended")?;
        Ok(processor_time::of(id)?.total())
    }

    /// The processor time of the threads that it has now, to the nanosecond.
    pub fn thread_time(&self) -> Result<Duration> {
        let id = self.child.id().ok_or("the controller has ended")?;
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{id}/task"))? {
            // A thread may have ended meanwhile.
            let Ok(stat) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            nanos += stat.split_whitespace().next().ok_or("no such field")?.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Waits until it does next to nothing: it has done what a start brings, such as certificates.
    pub async fn at_rest(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let (step, mut quiet) = (Duration::from_millis(500), 0);
        while quiet < 6 {
            if Instant::now() > deadline {
                return Err("the controller does not come to rest".into());
            }
            let before = self.cpu()?;
            sleep(step).await;
            let used = self.cpu()?.saturating_sub(before);
            quiet = if used < step / 20 { quiet + 1 } else { 0 };
        }
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().ok_or("the controller has ended")?;
        Ok(kill(Pid::from_raw(i32::try_from(id)?), signal)?)
    }

    /// Waits until it has ended.
    pub async fn ended(mut self) -> Result<()> {
        timeout(PATIENCE, self.child.wait()).await??;
        Ok(())
    }

    /// `kill -9`. Unsynced writes survive, unlike in a loss of power.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}
