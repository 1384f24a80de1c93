//! A directory of Kubernetes YAML as a source, so that one machine needs no cluster.
//!
//! Owns what belongs to the mesh directory (every `*.yaml`, `*.yml` and `*.json` in it and below), noticing
//! changes, and the state that was told last. Refuses to understand file contents: that is
//! [`super::manifest`].
//!
//! File system events only wake the source; what is true is always what a whole scan finds. So a lost event
//! costs time (at most half a minute), never correctness. What happens to objects whose file is broken is
//! decided in `state`, in pure code.
//!
//! ```text
//! events, timer → settle → scan (blocking thread) → state::merge → state::diff → Batch
//! ```

mod scan;
mod state;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use smc_mesh::problem::Problem;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use self::scan::{Files, Scan};
use self::state::State;
use self::watch::Watch;
use super::{Batch, Source, SourceError};

/// How long nothing may happen before a change is looked at. An editor's save is several events within a
/// few milliseconds.
const QUIET: Duration = Duration::from_millis(75);

/// How long a change waits for quiet at most: a directory that never rests is still read.
const UNREST_MAX: Duration = Duration::from_secs(1);

/// How often the directory is read although nothing was noticed. Events can be lost (a full kernel queue,
/// a network file system), and an unchanged file costs one read and no parsing.
const RELIST: Duration = Duration::from_secs(30);

/// The same while events cannot be had at all, for example because the machine's watches are used up.
const RELIST_UNWATCHED: Duration = Duration::from_secs(2);

/// How often to look whether the directory itself was replaced, vanished or came back: a watch follows the
/// old directory, not the path. Costs one `stat`.
const IDENTITY_CHECK: Duration = Duration::from_secs(1);

/// Reads the mesh from a directory and follows its changes.
///
/// Belonging to it are the files whose names end in `.yaml`, `.yml` or `.json`, in the directory and up to
/// eight deep. Names that begin with a dot do not count. Symbolic links are followed within the directory
/// (so a mounted ConfigMap works) and nowhere else.
///
/// To change several objects at once, change one file, and replace it by renaming: what is written in place
/// is read after a short quiet, which a slow writer may not keep.
#[derive(Debug)]
pub struct DirectorySource {
    directory: PathBuf,
}

impl DirectorySource {
    /// A source over `directory`, which is looked at only when the source runs.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Reads the directory once: everything in it as one batch. For commands that look at a directory
    /// without serving it. Blocks on the file system.
    pub fn read_once(&self) -> Result<Batch, SourceError> {
        let scan = scan::scan(&self.directory, &Files::new(), &CancellationToken::new())
            .map_err(|source| SourceError::Directory { path: self.directory.clone(), source })?;
        let (state, problems) = state::merge(&State::new(), &scan);
        Ok(Batch { events: state::diff(&State::new(), &state), problems, synced: true })
    }
}

impl Source for DirectorySource {
    async fn run(self, batches: mpsc::Sender<Batch>, shutdown: CancellationToken) -> Result<(), SourceError> {
        let mut follower = Follower::new(self.directory, shutdown.clone());
        tokio::select! {
            // First, since a scan that was told to stop half-way must not be taken for the truth.
            biased;
            // Every await of `follow` may be abandoned: a batch goes out whole or not at all, and a scan
            // under way on its thread ends before its next file.
            () = shutdown.cancelled() => Ok(()),
            result = follower.follow(&batches) => result,
        }
    }
}

/// The running source: what it watches and what it has told.
struct Follower {
    directory: PathBuf,
    shutdown: CancellationToken,
    watch: Watch,
    /// The files as they were last read, so that an unchanged one is not parsed again.
    files: Files,
    state: State,
    problems: Vec<Problem>,
    synced: bool,
}

impl Follower {
    fn new(directory: PathBuf, shutdown: CancellationToken) -> Self {
        let watch = Watch::new(directory.clone());
        let (files, state, problems) = (Files::new(), State::new(), Vec::new());
        Self { directory, shutdown, watch, files, state, problems, synced: false }
    }

    /// Tells what is, then what changes, until nobody listens.
    async fn follow(&mut self, batches: &mpsc::Sender<Batch>) -> Result<(), SourceError> {
        loop {
            if let Some(batch) = self.next_batch().await?
                && batches.send(batch).await.is_err()
            {
                return Ok(());
            }
            tokio::select! {
                () = self.change() => {}
                () = batches.closed() => return Ok(()),
            }
        }
    }

    /// Looks at the directory; `None` when there is nothing new to tell.
    async fn next_batch(&mut self) -> Result<Option<Batch>, SourceError> {
        let (state, mut problems) = match self.look().await? {
            Ok(seen) => seen,
            Err(source) if !self.synced => {
                return Err(SourceError::Directory { path: self.directory.clone(), source });
            }
            Err(error) => {
                // Nothing is known about the files, so nothing is taken back.
                let message =
                    format!("cannot be read: {error}; everything read from it earlier stays in effect");
                let problem = Problem::error(self.directory.display(), "", message);
                (self.state.clone(), vec![problem])
            }
        };
        problems.extend(self.watch.problem());
        problems.sort();
        problems.dedup();
        let events = state::diff(&self.state, &state);
        let news = !self.synced || !events.is_empty() || problems != self.problems;
        self.state = state;
        self.synced = true;
        self.problems.clone_from(&problems);
        Ok(news.then_some(Batch { events, problems, synced: true }))
    }

    /// Scans, and scans again before a removal is believed: a file that is being replaced can be away or
    /// empty for a moment, and to withdraw endpoints or policy for that moment would cost real requests.
    async fn look(&mut self) -> Result<std::io::Result<(State, Vec<Problem>)>, SourceError> {
        let mut confirmed = false;
        loop {
            let scan = match self.scan().await? {
                Ok(scan) => scan,
                Err(error) => return Ok(Err(error)),
            };
            let (state, problems) = state::merge(&self.state, &scan);
            self.files = scan.files;
            if confirmed || !state::removes(&self.state, &state) {
                return Ok(Ok((state, problems)));
            }
            confirmed = true;
            self.settle().await;
        }
    }

    async fn scan(&mut self) -> Result<std::io::Result<Scan>, SourceError> {
        let (directory, files, shutdown) =
            (self.directory.clone(), self.files.clone(), self.shutdown.clone());
        let mut watch = self.watch.clone();
        let task = tokio::task::spawn_blocking(move || {
            // The watch comes first: what changes between the two is then seen by at least one of them.
            watch.renew();
            let scan = scan::scan(&directory, &files, &shutdown);
            (watch, scan)
        });
        let path = &self.directory;
        let (watch, scan) =
            task.await.map_err(|source| SourceError::Aborted { path: path.clone(), source })?;
        self.watch = watch;
        Ok(scan)
    }

    /// Waits until a scan may find something new.
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

    /// Waits until nothing has happened for [`QUIET`], but no longer than [`UNREST_MAX`].
    async fn settle(&mut self) {
        let end = Instant::now() + UNREST_MAX;
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
