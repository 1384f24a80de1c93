//! Owns the process of one container, and restarts it when it ends.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::log_file::LogFile;
use super::plan::ContainerPlan;
use super::{probe, process};

/// The wait before a restart doubles from the first to the last value.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// After this long a run counts as successful, and the wait starts from its minimum again.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Probe period until a container is ready for the first time, unless its own period is shorter.
const STARTUP_PERIOD: Duration = Duration::from_millis(200);
/// Time limit for reading what is left in the pipes of a process that has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// State of a container, as reported to its Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The process runs, but its probe has not passed.
    Running,
    /// The process runs and its probe passes.
    Ready,
    /// It has not been started.
    Waiting,
    /// The process ended, for this reason; it will be restarted.
    Ended(String),
}

/// A container to run.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) pause: u32,
    pub(super) plan: ContainerPlan,
    pub(super) log: LogFile,
    pub(super) grace: Duration,
    /// The container's number in the Pod, and the receiver of its state.
    pub(super) reports: (usize, mpsc::Sender<(usize, State)>),
}

impl Container {
    /// Runs the container, with restarts, until `cancel`; then ends it.
    pub(super) async fn run(mut self, cancel: CancellationToken) {
        let mut backoff = BACKOFF_MIN;
        // Creates the log file even if the container prints nothing.
        self.log.append(b"").await;
        loop {
            let started = Instant::now();
            let reason = match self.spawn() {
                Ok(mut child) => {
                    self.report(State::Running).await;
                    let Some(status) = self.watch(&mut child, &cancel).await else { return };
                    format!("{} ended: {status}", self.plan.name)
                }
                Err(error) => format!("{} could not be started: {error}", self.plan.name),
            };
            self.log.append_line(&reason).await;
            self.report(State::Ended(format!("{reason}{}", self.last_words()))).await;
            if started.elapsed() > STABLE_AFTER {
                backoff = BACKOFF_MIN;
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(backoff) => {}
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Runs the container once, to its end. Fails with the reason unless it exited with 0.
    pub(super) async fn run_once(&mut self, cancel: &CancellationToken) -> Result<(), String> {
        let mut child = self.spawn().map_err(|error| error.to_string())?;
        match self.watch(&mut child, cancel).await {
            Some(status) if status == "exit status: 0" => Ok(()),
            Some(status) => Err(format!("{status}{}", self.last_words())),
            None => Err("it was ended".to_owned()),
        }
    }

    /// The last line that it printed, which most programs use to say why they end.
    fn last_words(&self) -> String {
        self.log.last_line().map(|line| format!(": {line}")).unwrap_or_default()
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let argv: Vec<&str> = self.plan.argv.iter().map(String::as_str).collect();
        let mut command = process::command_as(self.pause, self.plan.uid, self.plan.gid, &argv);
        command.env_clear().envs(&self.plan.env).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn()
    }

    /// Returns the exit status as text, or `None` if `cancel` ended the process.
    async fn watch(&mut self, child: &mut Child, cancel: &CancellationToken) -> Option<String> {
        let Self { pause, plan, log, grace, reports } = self;
        let group = process::Group::of(child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let outputs = log.copy(stdout, stderr);
        let probing = watch_readiness(*pause, plan, reports);
        tokio::pin!(outputs, probing);
        let mut copied = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => break Some(status.map_or_else(|e| e.to_string(), |s| s.to_string())),
                () = &mut outputs, if !copied => copied = true,
                () = &mut probing => {}
                () = cancel.cancelled() => break None,
            }
        };
        if status.is_none() {
            // Output written during the shutdown goes to the log, too.
            let ending = group.terminate(child, *grace);
            tokio::pin!(ending);
            loop {
                tokio::select! {
                    () = &mut ending => break,
                    () = &mut outputs, if !copied => copied = true,
                }
            }
        }
        // Children that the process left behind would hold its ports.
        group.signal(Signal::SIGKILL);
        if !copied {
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, outputs).await;
        }
        status
    }

    async fn report(&self, state: State) {
        let (number, sender) = &self.reports;
        // The receiver is closed only while the Pod ends.
        let _ = sender.send((*number, state)).await;
    }
}

/// Reports every change of readiness of a running container. Does not return.
async fn watch_readiness(pause: u32, plan: &ContainerPlan, reports: &(usize, mpsc::Sender<(usize, State)>)) {
    let (number, sender) = reports;
    let Some(wanted) = &plan.probe else {
        let _ = sender.send((*number, State::Ready)).await;
        return std::future::pending().await;
    };
    tokio::time::sleep(wanted.initial_delay).await;
    let mut ready = false;
    let mut was_ready = false;
    let mut failures = 0;
    loop {
        if probe::passes(pause, plan, wanted).await {
            failures = 0;
            if !ready {
                (ready, was_ready) = (true, true);
                let _ = sender.send((*number, State::Ready)).await;
            }
        } else {
            failures += 1;
            if ready && failures >= wanted.failure_threshold {
                ready = false;
                let _ = sender.send((*number, State::Running)).await;
            }
        }
        tokio::time::sleep(if was_ready { wanted.period } else { STARTUP_PERIOD.min(wanted.period) }).await;
    }
}
