//! A directory of Kubernetes YAML as a source, so that a single machine needs no cluster.
//!
//! Owns which files belong to the mesh directory (every `*.yaml`, `*.yml` and `*.json` in it and below),
//! change detection, and the state that was last sent. File contents are decoded by
//! [`smc_decode::manifest`].
//!
//! File system events name paths, and only those are read; a slow full look finds what events did not tell. A
//! lost event therefore delays a change (by at most half a minute) and never loses it. `state` decides, as
//! pure code, what happens to objects whose file is broken; `last_good` keeps what a restart needs for that.
//!
//! ```text
//! events → pending changes ─┬→ tree::look (blocking thread) → state::changes → state::commit → Batch
//! timer ────────────────────┘     doubtful: settle, look again                    └→ last_good (beside)
//! ```

mod last_good;
mod reading;
mod scan;
mod scope;
mod state;
mod tree;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use smc_api::object::SourceEvent;
use smc_decode::Rules;
use smc_host::timer::until;
use smc_server::source::{Batch, Source, SourceError};
use smc_types::ids::MeshName;
use smc_types::problem::Problem;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::scope::Scope;
use self::state::Objects;
use self::tree::{Found, Tree};
use self::watch::Watch;
use crate::last_good::{LastGood, Saved};

/// How long the directory must be quiet before something that looks unfinished is taken for what it is: a
/// file that is being written, cannot be read to its end, or is gone. An editor's save causes several events
/// within a few milliseconds.
const QUIET: Duration = Duration::from_millis(75);

/// How long such a change waits for quiet at most, so that a directory that changes all the time is still
/// read.
const MAX_SETTLE: Duration = Duration::from_secs(1);

/// How often the directory is looked at without an event. Events can be lost (a full kernel queue, a network
/// file system), and an unchanged file costs one `stat`.
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
/// place is read when its writer closes it, or pauses for a moment.
#[derive(Debug)]
pub struct DirectorySource {
    directory: PathBuf,
    last_good: PathBuf,
    rules: Arc<Rules>,
}

impl DirectorySource {
    /// A source over `directory`, which is first read when the source runs. It keeps copies of the
    /// objects in effect in the directory `last_good`, which only this source may use and which it creates.
    /// With them, a file that is broken at start still declares what it declared before, and so do all files
    /// if the directory is missing. A Namespace belongs to the mesh if its label names `mesh`.
    pub fn new(directory: impl Into<PathBuf>, last_good: impl Into<PathBuf>, mesh: MeshName) -> Self {
        let rules = Arc::new(Rules::files(mesh));
        Self { directory: directory.into(), last_good: last_good.into(), rules }
    }
}

/// Why the source of a directory ends.
#[derive(Debug, Error)]
enum DirectoryError {
    /// The directory cannot be listed.
    #[error("cannot read the mesh directory {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The reading task panicked, which is a bug, or the runtime is shutting down.
    #[error("reading the mesh directory {} was interrupted", path.display())]
    Interrupted {
        path: PathBuf,
        #[source]
        source: JoinError,
    },
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
    /// The directory as it was looked at last. During a look, a thread that may block has it.
    tree: Tree,
    last_good: LastGood,
    /// What is being written.
    unfinished: Option<Unfinished>,
    /// When everything is looked at again.
    full_look: Instant,
    /// The problems of the directory.
    found: Vec<Problem>,
    /// The problems that were sent.
    problems: Vec<Problem>,
    synced: bool,
}

/// The events of what is being written.
#[derive(Debug, Clone, Copy)]
struct Unfinished {
    first: Instant,
    latest: Instant,
    /// How many there were.
    count: u64,
}

/// The copies that are being written.
type Saving = Option<JoinHandle<Saved>>;

impl Follower {
    fn new(source: DirectorySource, shutdown: CancellationToken) -> Self {
        let DirectorySource { directory, last_good, rules } = source;
        let watch = Watch::new(directory.clone());
        let absolute = std::path::absolute(&directory).unwrap_or_else(|_| directory.clone());
        let last_good = LastGood::new(last_good, &absolute.to_string_lossy(), Arc::clone(&rules));
        let tree = Tree::new(directory.clone(), Objects::default(), rules);
        let (unfinished, full_look, found, problems) = (None, Instant::now(), Vec::new(), Vec::new());
        Self {
            directory,
            shutdown,
            watch,
            tree,
            last_good,
            unfinished,
            full_look,
            found,
            problems,
            synced: false,
        }
    }

    /// Sends the whole state, then its changes, until the receiver is dropped.
    async fn follow(&mut self, batches: &mpsc::Sender<Batch>) -> Result<(), SourceError> {
        self.load_last_good().await?;
        let (mut saving, mut due) = (None, true);
        let mut batch = self.next_batch(Scope::Full).await?;
        loop {
            if let Some(batch) = batch
                && batches.send(batch).await.is_err()
            {
                return Ok(());
            }
            // Only what was sent is kept.
            if due {
                self.save(&mut saving);
            }
            tokio::select! {
                look = self.change() => {
                    batch = self.next_batch(look).await?;
                    due = true;
                }
                saved = finished(&mut saving) => {
                    let saved = saved.map_err(|source| self.aborted(source))?;
                    // After a failure, the next look tries again.
                    due = self.last_good.finish(saved);
                    // It is reported at once.
                    batch = self.batch(Vec::new());
                }
                () = batches.closed() => return Ok(()),
            }
        }
    }

    /// Loads the state that was in effect before the start.
    async fn load_last_good(&mut self) -> Result<(), SourceError> {
        let mut last_good = std::mem::take(&mut self.last_good);
        let load = move || {
            let objects = Objects::kept(last_good.load());
            (last_good, objects)
        };
        let (last_good, objects) = self.blocking(load).await?;
        self.last_good = last_good;
        // An object that was kept twice, or is read no longer, goes from its copy.
        for file in objects.files() {
            self.last_good.keep(file, objects.of_file(file));
        }
        self.tree.objects = objects;
        Ok(())
    }

    /// Begins to write the next copies, unless some are being written.
    fn save(&mut self, saving: &mut Saving) {
        if saving.is_none()
            && let Some(copies) = self.last_good.begin()
        {
            let shutdown = self.shutdown.clone();
            *saving = Some(tokio::task::spawn_blocking(move || copies.run(&shutdown)));
        }
    }

    /// Looks at the directory, and a second time if what the first look found is doubtful. `None` if neither
    /// objects nor problems changed.
    async fn next_batch(&mut self, mut look: Scope) -> Result<Option<Batch>, SourceError> {
        let first = self.look(&look).await?;
        let found = match first {
            Ok(found) if found.doubtful => {
                self.settle().await;
                if let Some(more) = self.watch.all() {
                    look = look.and(more);
                }
                self.look(&look).await?
            }
            first => first,
        };
        let found = match found {
            Ok(found) => found,
            Err(source) if !self.synced && self.tree.objects.is_empty() => {
                return Err(SourceError::new(DirectoryError::Unreadable {
                    path: self.directory.clone(),
                    source,
                }));
            }
            Err(error) => {
                // Nothing is known about the files, so no object is removed.
                let message =
                    format!("cannot be read: {error}; everything read from it earlier stays in effect");
                self.found = vec![Problem::error(self.directory.as_path(), "", message)];
                self.full_look = Instant::now() + RELIST_UNWATCHED;
                let events = if self.synced { Vec::new() } else { self.tree.objects.whole() };
                return Ok(self.batch(events));
            }
        };
        let committed = self.tree.objects.commit(found.changes);
        for file in &committed.files {
            self.last_good.keep(file, self.tree.objects.of_file(file));
        }
        debug!(work = ?self.tree.work(), merged = self.tree.objects.merged(), "mesh directory looked at");
        let events = if self.synced { committed.events } else { self.tree.objects.whole() };
        self.found = self.tree.objects.problems().to_vec();
        Ok(self.batch(events))
    }

    /// A batch of these events and all problems; `None` if that is no news.
    fn batch(&mut self, events: Vec<SourceEvent>) -> Option<Batch> {
        let mut problems = self.found.clone();
        problems.extend(self.watch.problem());
        problems.extend(self.last_good.problem());
        problems.sort();
        problems.dedup();
        let changed = !self.synced || !events.is_empty() || problems != self.problems;
        self.synced = true;
        self.problems.clone_from(&problems);
        changed.then_some(Batch { events, problems, synced: true, revision: None })
    }

    /// Looks, on a thread that may block.
    async fn look(&mut self, look: &Scope) -> Result<std::io::Result<Found>, SourceError> {
        let (look, shutdown, now) = (look.clone(), self.shutdown.clone(), Instant::now());
        let (mut tree, mut watch) = (std::mem::take(&mut self.tree), self.watch.clone());
        let before = tree.work().full_looks;
        let work = move || {
            let found = tree.look(&look, &mut watch, now, &shutdown);
            (tree, watch, found)
        };
        let (tree, watch, found) = self.blocking(work).await?;
        (self.tree, self.watch) = (tree, watch);
        if self.tree.work().full_looks > before {
            self.full_look = now + if self.watch.is_live() { RELIST } else { RELIST_UNWATCHED };
        }
        Ok(found)
    }

    /// Runs file system work on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SourceError> {
        tokio::task::spawn_blocking(work).await.map_err(|source| self.aborted(source))
    }

    fn aborted(&self, source: JoinError) -> SourceError {
        SourceError::new(DirectoryError::Interrupted { path: self.directory.clone(), source })
    }

    /// Waits until there may be something new, and returns where. Cancel-safe: what was noticed stays so.
    async fn change(&mut self) -> Scope {
        loop {
            // What waits for its time comes first: a directory that never rests does not put it off.
            let now = Instant::now();
            if self.full_look <= now {
                return Scope::Full;
            }
            let quiet = self.quiet(now);
            if quiet.is_some_and(|quiet| quiet <= now)
                && let Some(look) = self.watch.all()
            {
                return look;
            }
            if let Some(look) = self.watch.finished() {
                return look;
            }
            tokio::select! {
                () = self.watch.woken() => {}
                () = until(quiet) => {}
                () = sleep_until(self.full_look) => {}
                () = sleep(IDENTITY_CHECK) => {
                    if self.watch.is_outdated().await {
                        return Scope::Full;
                    }
                }
            }
        }
    }

    /// When what is being written is looked at all the same, if it is not finished before.
    fn quiet(&mut self, now: Instant) -> Option<Instant> {
        self.unfinished = self.watch.unfinished().map(|count| match self.unfinished {
            None => Unfinished { first: now, latest: now, count },
            Some(unfinished) if unfinished.count == count => unfinished,
            Some(unfinished) => Unfinished { latest: now, count, ..unfinished },
        });
        self.unfinished.map(|unfinished| (unfinished.latest + QUIET).min(unfinished.first + MAX_SETTLE))
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

/// Waits for copies that are being written; for ever, if there are none. Cancel-safe.
async fn finished(saving: &mut Saving) -> Result<Saved, JoinError> {
    match saving {
        Some(copies) => {
            let saved = copies.await;
            *saving = None;
            saved
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
