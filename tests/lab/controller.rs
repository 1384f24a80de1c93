//! Owns one `smc controller` process, which runs in the node's namespace.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::config;
use super::log_file::LogFile;
use super::{LabError, http, process};

/// Opening the store, unsealing the keys and reading the mesh take seconds on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// `smc` guarantees to exit within ten seconds of SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A replica, running or not.
#[derive(Debug)]
pub(super) struct Controller {
    args: Vec<String>,
    gid: u32,
    metrics: SocketAddr,
    log: PathBuf,
    process: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    _log: AbortOnDropHandle<()>,
}

impl Running {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Controller {
    /// A replica with these arguments, in this group, which serves `/readyz` at `metrics`. It is not
    /// started yet.
    pub(super) fn new(args: Vec<String>, gid: u32, metrics: SocketAddr, log: PathBuf) -> Self {
        Self { args, gid, metrics, log, process: Mutex::new(None) }
    }

    /// Starts the process. Fails if it is running.
    pub(super) async fn start(&self) -> Result<(), LabError> {
        let mut process = self.process.lock().await;
        if process.is_some() {
            return Err(LabError::Refused("the controller is running already".to_owned()));
        }
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let mut command = process::command(config::SMC, &args);
        command.gid(self.gid).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| LabError::Command {
            command: "smc controller".to_owned(),
            problem: error.to_string(),
        })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut log = LogFile::new(self.log.clone());
        let copy = tokio::spawn(async move { log.copy(stdout, stderr).await });
        *process = Some(Running { child, _log: AbortOnDropHandle::new(copy) });
        Ok(())
    }

    /// Waits until `/readyz` answers 200. Fails if the process ends first.
    pub(super) async fn ready(&self) -> Result<(), LabError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while !self.is_ready().await {
            if let Some(status) = self.ended() {
                return Err(LabError::Command {
                    command: "smc controller".to_owned(),
                    problem: format!("ended with {status} before it was ready"),
                });
            }
            if Instant::now() > deadline {
                return Err(LabError::Timeout {
                    what: "the controller to be ready".to_owned(),
                    seconds: READY_TIMEOUT.as_secs(),
                    state: "see its log".to_owned(),
                });
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Sends a signal and waits until the process ends; returns its exit status. Fails if it is not
    /// running.
    pub(super) async fn stop(&self, signal: Signal) -> Result<String, LabError> {
        let mut process = self.process.lock().await;
        let Some(running) = process.as_mut() else {
            return Err(LabError::Refused("the controller is not running".to_owned()));
        };
        running.signal(signal);
        let ended = tokio::time::timeout(STOP_TIMEOUT, running.child.wait()).await;
        let Ok(status) = ended else {
            return Err(LabError::Timeout {
                what: format!("the controller to end after {signal}"),
                seconds: STOP_TIMEOUT.as_secs(),
                state: "it still runs".to_owned(),
            });
        };
        *process = None;
        Ok(status.map_or_else(|error| error.to_string(), |status| status.to_string()))
    }

    /// Sends a signal, if the process is running.
    pub(super) async fn signal(&self, signal: Signal) {
        if let Some(running) = &*self.process.lock().await {
            running.signal(signal);
        }
    }

    /// Returns the exit status if the process ended by itself since the last call.
    pub(super) fn ended(&self) -> Option<String> {
        let mut process = self.process.try_lock().ok()?;
        let status = process.as_mut()?.child.try_wait().ok()??;
        *process = None;
        Some(status.to_string())
    }

    async fn is_ready(&self) -> bool {
        let Ok(stream) = TcpStream::connect(self.metrics).await else { return false };
        http::get(stream, "/readyz", Duration::from_secs(2)).await.is_ok_and(|reply| reply.status == 200)
    }
}
