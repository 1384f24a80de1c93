//! The lab as a library: starts one, and ends it.

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

/// The controller gets 8 seconds to end in order; this is longer.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

static LABS: AtomicU64 = AtomicU64::new(0);

/// A running lab. Dropping it ends it a moment later; [`Lab::stop`] waits for that.
#[derive(Debug)]
pub struct Lab {
    handle: LabHandle,
    process: Child,
    /// Not left in `process`, which closes it as soon as somebody waits.
    lifeline: Option<ChildStdin>,
}

impl std::ops::Deref for Lab {
    type Target = LabHandle;

    fn deref(&self) -> &LabHandle {
        &self.handle
    }
}

impl Lab {
    /// Starts a lab and waits until all its Pods are ready. What it started is gone after an error.
    pub async fn start(options: LabOptions) -> Result<Self, LabError> {
        let name = options
            .name
            .clone()
            .unwrap_or_else(|| format!("t{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed)));
        let state = StateDir::of(&name)?;
        let config = options.config(&name, &state)?;
        let privilege = sandbox::privilege().await?;
        // From here to the `Lab`, which cleans up, nothing waits: whoever gives up waiting leaves no directory.
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

    /// Waits until the lab ends by itself, or because somebody asked it to.
    pub async fn ended(&mut self) {
        self.ended_as_asked().await;
    }

    /// Waits until the lab ends; `true` if somebody asked it to, `false` if it failed.
    pub async fn ended_as_asked(&mut self) -> bool {
        self.process.wait().await.is_ok_and(|status| status.success())
    }

    /// Ends the lab and waits until nothing of it is left.
    pub async fn stop(mut self) -> Result<(), LabError> {
        drop(self.lifeline.take());
        if tokio::time::timeout(STOP_TIMEOUT, self.process.wait()).await.is_err() {
            let _ = self.process.kill().await;
        }
        let config = config::Config::read(&self.handle.state_dir().config());
        if config.is_ok_and(|config| !config.keep_state) && !self.handle.state_dir().is_kept() {
            // Removed already, unless its first process was killed.
            self.handle.state_dir().remove()?;
        }
        Ok(())
    }
}

impl Drop for Lab {
    #[expect(
        clippy::print_stderr,
        reason = "whoever reads the failure of a test needs the place of the logs"
    )]
    fn drop(&mut self) {
        // The lab ends when its lifeline is dropped with it.
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

/// The files of a mesh directory, not what is below it.
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
