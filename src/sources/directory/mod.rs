//! A directory of Kubernetes YAML as a source, so that one machine needs no cluster.
//!
//! Owns what belongs to the mesh directory (every `*.yaml`, `*.yml` and `*.json` in it and below), noticing
//! changes, and the state that was told last. Refuses to understand file contents: that is
//! [`super::manifest`].
//!
//! File system events only wake the source; what is true is always what a whole scan finds. So a lost event
//! costs time (at most half a minute), never correctness. What happens to objects whose file is broken is
//! decided in `state`, in pure code; what a restart needs for that is kept by `last_good`.
//!
//! ```text
//! events, timer → settle → scan (blocking thread) → state::believe → state::diff → Batch
//!                 last_good (start) ─┘                                      └─→ last_good
//! ```

mod last_good;
mod scan;
mod state;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use smc_mesh::problem::Problem;
use smc_raft::Pending;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use self::last_good::LastGood;
use self::scan::Scan;
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
    last_good: PathBuf,
}

impl DirectorySource {
    /// A source over `directory`, which is looked at only when the source runs. It keeps a copy of what could be read in
    /// the directory `last_good`, which is nobody else's, and is made if it is missing: a file that is broken when
    /// the source starts declares what it did before, and so does everything if the directory is not there at all.
    pub fn new(directory: impl Into<PathBuf>, last_good: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), last_good: last_good.into() }
    }
}

impl Source for DirectorySource {
    fn run(
        self: Box<Self>,
        batches: mpsc::Sender<Batch>,
        shutdown: CancellationToken,
    ) -> Pending<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let mut follower = Follower::new(*self, shutdown.clone());
            tokio::select! {
                // First, since a scan that was told to stop half-way must not be taken for the truth.
                biased;
                // Every await of `follow` may be abandoned: a batch goes out whole or not at all, and a scan
                // under way on its thread ends before its next file.
                () = shutdown.cancelled() => Ok(()),
                result = follower.follow(&batches) => result,
            }
        })
    }
}

/// The running source: what it watches and what it has told.
struct Follower {
    directory: PathBuf,
    shutdown: CancellationToken,
    watch: Watch,
    last_good: LastGood,
    /// The latest scan, so that an unchanged file is not parsed again.
    scan: Arc<Scan>,
    /// What is in effect; before the first batch, what was in effect before the start.
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

    /// Tells what is, then what changes, until nobody listens.
    async fn follow(&mut self, batches: &mpsc::Sender<Batch>) -> Result<(), SourceError> {
        self.recall().await?;
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

    /// Takes up what was in effect before the start.
    async fn recall(&mut self) -> Result<(), SourceError> {
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

    /// Keeps copies of what was told; says whether the directory is to be looked at before the others.
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

    /// Looks at the directory; `None` when there is nothing new to tell.
    async fn next_batch(&mut self) -> Result<Option<Batch>, SourceError> {
        let (state, mut problems) = match self.look().await? {
            Ok(seen) => seen,
            Err(source) if !self.synced && self.state.is_empty() => {
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
        problems.extend(self.last_good.problem());
        problems.sort();
        problems.dedup();
        let nothing = State::new();
        let events = state::diff(if self.synced { &self.state } else { &nothing }, &state);
        let news = !self.synced || !events.is_empty() || problems != self.problems;
        self.state = state;
        self.synced = true;
        self.problems.clone_from(&problems);
        Ok(news.then_some(Batch { events, problems, synced: true }))
    }

    /// Scans, and scans again where one look is not enough.
    async fn look(&mut self) -> Result<std::io::Result<(State, Vec<Problem>)>, SourceError> {
        let mut first = true;
        loop {
            let scan = match self.scan().await? {
                Ok(scan) => scan,
                Err(error) => return Ok(Err(error)),
            };
            let seen = state::believe(&self.state, &scan, first);
            self.scan = Arc::new(scan);
            if let Some(seen) = seen {
                return Ok(Ok(seen));
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
            // The watch comes first: what changes between the two is then seen by at least one of them.
            watch.renew();
            let scan = scan::scan(&directory, &known.files, &shutdown);
            (watch, scan)
        };
        let (watch, scan) = self.blocking(scan).await?;
        self.watch = watch;
        Ok(scan)
    }

    /// Runs what waits for the file system on a thread that may.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SourceError> {
        let aborted = |source| SourceError::Aborted { path: self.directory.clone(), source };
        tokio::task::spawn_blocking(work).await.map_err(aborted)
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
