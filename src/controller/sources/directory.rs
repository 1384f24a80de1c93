//! A directory of Kubernetes YAML as a source, so that a single machine needs no cluster.
//!
//! Owns which files belong to the mesh directory (every `*.yaml`, `*.yml` and `*.json` in it and below),
//! change detection, and the state that was last sent. File contents are decoded by
//! [`crate::decode::manifest`].
//!
//! File system events only wake the source; each wake-up scans the whole directory. A lost event therefore
//! delays a change (by at most half a minute) and never loses it. `state` decides, as pure code, what
//! happens to objects whose file is broken; `last_good` keeps what a restart needs for that.
//!
//! ```text
//! events, timer → settle → scan (blocking thread) → state::confirm_removals → state::diff → Batch
//!                 last_good (start) ─┘                                              └─→ last_good
//! ```

mod last_good;
mod scan;
mod state;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use smc_types::problem::Problem;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use self::last_good::LastGood;
use self::scan::Scan;
use self::state::State;
use self::watch::Watch;
use super::{Batch, Source, SourceError};

/// How long the directory must be quiet before a change is read. An editor's save causes several events
/// within a few milliseconds.
const QUIET: Duration = Duration::from_millis(75);

/// How long a change waits for quiet at most, so that a directory that changes all the time is still read.
const MAX_SETTLE: Duration = Duration::from_secs(1);

/// How often the directory is read without an event. Events can be lost (a full kernel queue, a network
/// file system), and an unchanged file costs one read and no parsing.
const RELIST: Duration = Duration::from_secs(30);

/// As [`RELIST`] while there is no watch, for example because the machine's inotify watches are used up.
const RELIST_UNWATCHED: Duration = Duration::from_secs(2);

/// How often to check whether the directory itself was replaced, removed or restored: a watch follows the
/// inode, not the path. Costs one `stat`.
const IDENTITY_CHECK: Duration = Duration::from_secs(1);

/// Reads the mesh from a directory and follows its changes.
///
/// It reads files whose names end in `.yaml`, `.yml` or `.json`, in the directory and up to eight levels
/// deep. Names that begin with a dot are skipped. Symbolic links are followed only within the directory
/// (so a mounted ConfigMap works).
///
/// To change several objects atomically, write one file and rename it into place. A file that is written in
/// place is read once the directory is quiet for a moment, and a slow writer may pause for longer.
#[derive(Debug)]
pub struct DirectorySource {
    directory: PathBuf,
    last_good: PathBuf,
}

impl DirectorySource {
    /// A source over `directory`, which is first read when the source runs. It keeps copies of readable
    /// files in the directory `last_good`, which only this source may use and which it creates. With them, a
    /// file that is broken at start still declares what it declared before, and so do all files if the
    /// directory is missing.
    pub fn new(directory: impl Into<PathBuf>, last_good: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), last_good: last_good.into() }
    }
}

impl Source for DirectorySource {
    fn run(
        self: Box<Self>,
        batches: mpsc::Sender<Batch>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let mut follower = Follower::new(*self, shutdown.clone());
            tokio::select! {
                // First, since a scan that `shutdown` interrupted is incomplete and must not be used.
                biased;
                // `follow` is cancel-safe: a batch is sent whole or not at all, and a scan in progress on
                // its thread ends before its next file.
                () = shutdown.cancelled() => Ok(()),
                result = follower.follow(&batches) => result,
            }
        })
    }
}

/// The running source: its watch and the state that it last sent.
struct Follower {
    directory: PathBuf,
    shutdown: CancellationToken,
    watch: Watch,
    last_good: LastGood,
    /// The latest scan. Its readings of unchanged files are reused.
    scan: Arc<Scan>,
    /// The state in effect; before the first batch, the one that was in effect before the start.
    state: State,
    problems: Vec<Problem>,
    synced: bool,
}

impl Follower {
    fn new(source: DirectorySource, shutdown: CancellationToken) -> Self {
        let DirectorySource { directory, last_good } = source;
        let watch = Watch::new(directory.clone());
        let last_good = LastGood::new(last_good, &directory);
        let (scan, state, problems) = (Arc::default(), State::new(), Vec::new());
        Self { directory, shutdown, watch, last_good, scan, state, problems, synced: false }
    }

    /// Sends the whole state, then its changes, until the receiver is dropped.
    async fn follow(&mut self, batches: &mpsc::Sender<Batch>) -> Result<(), SourceError> {
        self.load_last_good().await?;
        loop {
            if let Some(batch) = self.next_batch().await?
                && batches.send(batch).await.is_err()
            {
                return Ok(());
            }
            if self.save().await? {
                continue;
            }
            tokio::select! {
                () = self.change() => {}
                () = batches.closed() => return Ok(()),
            }
        }
    }

    /// Loads the state that was in effect before the start.
    async fn load_last_good(&mut self) -> Result<(), SourceError> {
        let mut last_good = self.last_good.clone();
        let load = move || {
            let files = last_good.load();
            (last_good, files)
        };
        let (last_good, files) = self.blocking(load).await?;
        self.last_good = last_good;
        self.scan = Arc::new(Scan { files, ..Scan::default() });
        (self.state, _) = state::merge(&State::new(), &self.scan);
        Ok(())
    }

    /// Copies the files of the state that was sent. Returns true if copies remain to be made, after the
    /// next scan.
    async fn save(&mut self) -> Result<bool, SourceError> {
        if !self.last_good.is_behind(&self.scan) {
            return Ok(false);
        }
        let (mut last_good, scan, shutdown) =
            (self.last_good.clone(), Arc::clone(&self.scan), self.shutdown.clone());
        let save = move || {
            let more = last_good.save(&scan, &shutdown);
            (last_good, more)
        };
        let (last_good, more) = self.blocking(save).await?;
        self.last_good = last_good;
        Ok(more)
    }

    /// Reads the directory; `None` if neither objects nor problems changed.
    async fn next_batch(&mut self) -> Result<Option<Batch>, SourceError> {
        let (state, mut problems) = match self.read().await? {
            Ok(read) => read,
            Err(source) if !self.synced && self.state.is_empty() => {
                return Err(SourceError::Directory { path: self.directory.clone(), source });
            }
            Err(error) => {
                // Nothing is known about the files, so no object is removed.
                let message =
                    format!("cannot be read: {error}; everything read from it earlier stays in effect");
                let problem = Problem::error(self.directory.as_path(), "", message);
                (self.state.clone(), vec![problem])
            }
        };
        problems.extend(self.watch.problem());
        problems.extend(self.last_good.problem());
        problems.sort();
        problems.dedup();
        let nothing = State::new();
        let events = state::diff(if self.synced { &self.state } else { &nothing }, &state);
        let changed = !self.synced || !events.is_empty() || problems != self.problems;
        self.state = state;
        self.synced = true;
        self.problems.clone_from(&problems);
        Ok(changed.then_some(Batch { events, problems, synced: true }))
    }

    /// Scans, and scans a second time if the first scan removes an object.
    async fn read(&mut self) -> Result<std::io::Result<(State, Vec<Problem>)>, SourceError> {
        let mut first = true;
        loop {
            let scan = match self.scan().await? {
                Ok(scan) => scan,
                Err(error) => return Ok(Err(error)),
            };
            let confirmed = state::confirm_removals(&self.state, &scan, first);
            self.scan = Arc::new(scan);
            if let Some(state) = confirmed {
                return Ok(Ok(state));
            }
            first = false;
            self.settle().await;
        }
    }

    async fn scan(&mut self) -> Result<std::io::Result<Scan>, SourceError> {
        let (directory, known, shutdown) =
            (self.directory.clone(), Arc::clone(&self.scan), self.shutdown.clone());
        let mut watch = self.watch.clone();
        let scan = move || {
            // The watch comes first, so that a change between the two is seen by at least one of them.
            watch.renew();
            let scan = scan::scan(&directory, &known.files, &shutdown);
            (watch, scan)
        };
        let (watch, scan) = self.blocking(scan).await?;
        self.watch = watch;
        Ok(scan)
    }

    /// Runs file system work on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SourceError> {
        let aborted = |source| SourceError::Aborted { path: self.directory.clone(), source };
        tokio::task::spawn_blocking(work).await.map_err(aborted)
    }

    /// Waits until a scan may find a change.
    async fn change(&mut self) {
        let relist = sleep(if self.watch.is_live() { RELIST } else { RELIST_UNWATCHED });
        tokio::pin!(relist);
        loop {
            tokio::select! {
                () = &mut relist => return,
                () = self.watch.woken() => return self.settle().await,
                () = sleep(IDENTITY_CHECK) => {
                    if self.watch.is_outdated().await {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until there has been no event for [`QUIET`], but no longer than [`MAX_SETTLE`].
    async fn settle(&mut self) {
        let end = Instant::now() + MAX_SETTLE;
        loop {
            tokio::select! {
                biased;
                () = sleep_until(end) => return,
                () = self.watch.woken() => {}
                () = sleep(QUIET) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
