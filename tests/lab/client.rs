//! Owns the process of a lab: starts it, waits for it, ends it.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::process::{Child, ChildStdin};

use super::handle::LabHandle;
use super::options::LabOptions;
use super::state_dir::StateDir;
use super::{LabError, config, sandbox};

/// Longer than the 8 seconds in which the first process lets the controller shut down.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

static LABS: AtomicU64 = AtomicU64::new(0);

/// A running lab. Dropping it ends the lab a moment later; [`Lab::stop`] waits for the end.
#[derive(Debug)]
pub struct Lab {
    handle: LabHandle,
    process: Child,
    /// Taken out of `process`, because `Child::wait` closes the child's standard input.
    lifeline: Option<ChildStdin>,
}

impl std::ops::Deref for Lab {
    type Target = LabHandle;

    fn deref(&self) -> &LabHandle {
        &self.handle
    }
}

impl Lab {
    /// Starts a lab and waits until all its Pods are ready. After an error, everything it started
    /// is gone.
    pub async fn start(options: LabOptions) -> Result<Self, LabError> {
        let name = options
            .name
            .clone()
            .unwrap_or_else(|| format!("t{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed)));
        let state = StateDir::of(&name)?;
        let config = options.config(&name, &state)?;
        let privilege = sandbox::Privilege::find().await?;
        // No `.await` from here until the `Lab` exists: a caller that cancels this future leaves no
        // state directory.
        state.create(&name)?;
        if !options.follow {
            copy_files(&options.mesh, &state.mesh())?;
        }
        config.write(&state.config())?;
        let log = if options.verbose {
            Stdio::inherit()
        } else {
            let path = state.lab_log();
            fs::File::create(&path).map_err(LabError::file("create", &path))?.into()
        };
        let mut process = match sandbox::spawn(privilege, &config.lab, &state.config(), log) {
            Ok(process) => process,
            Err(error) => {
                state.remove()?;
                return Err(error);
            }
        };
        let lifeline = process.stdin.take();
        let mut lab = Self { handle: LabHandle::new(name, state, config.source), process, lifeline };
        if let Err(error) = lab.wait_until_up(options.ready_timeout).await {
            lab.stop().await?;
            return Err(error);
        }
        Ok(lab)
    }

    async fn wait_until_up(&mut self, timeout: Duration) -> Result<(), LabError> {
        if timeout.is_zero() {
            return Ok(());
        }
        let handle = self.handle.clone();
        tokio::select! {
            _ = self.process.wait() => Err(handle.ended_error()),
            up = handle.wait_all_ready(timeout) => up,
        }
    }

    /// Waits until the lab ends, by itself or on request.
    pub async fn ended(&mut self) {
        self.ended_on_request().await;
    }

    /// Waits until the lab ends; returns true if it ended on request, false if it failed.
    pub async fn ended_on_request(&mut self) -> bool {
        self.process.wait().await.is_ok_and(|status| status.success())
    }

    /// Ends the lab and waits until all its processes are gone.
    pub async fn stop(mut self) -> Result<(), LabError> {
        drop(self.lifeline.take());
        if tokio::time::timeout(STOP_TIMEOUT, self.process.wait()).await.is_err() {
            let _ = self.process.kill().await;
        }
        let config = config::Config::read(&self.handle.state_dir().config());
        if config.is_ok_and(|config| !config.keep_state) && !self.handle.state_dir().is_kept() {
            // The first process removes the directory, unless it was killed.
            self.handle.state_dir().remove()?;
        }
        Ok(())
    }
}

impl Drop for Lab {
    #[expect(clippy::print_stderr, reason = "a failed test must show where its logs are")]
    fn drop(&mut self) {
        // Dropping the lifeline ends the lab.
        if std::thread::panicking() {
            self.handle.state_dir().keep();
            eprintln!(
                "the state of the lab `{}` is in {}",
                self.handle.name(),
                self.handle.state_dir().path().display()
            );
        }
    }
}

/// Copies the files of a mesh directory, without its subdirectories.
fn copy_files(from: &Path, to: &Path) -> Result<(), LabError> {
    fs::create_dir_all(to).map_err(LabError::file("create", to))?;
    for entry in fs::read_dir(from).map_err(LabError::file("read", from))? {
        let path = entry.map_err(LabError::file("read", from))?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            fs::copy(&path, to.join(name)).map_err(LabError::file("copy", &path))?;
        }
    }
    Ok(())
}
