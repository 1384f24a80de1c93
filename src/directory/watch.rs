//! Wake-ups when something in the directory may have changed, and which paths that concerns.
//!
//! Owns the operating system's watch, the identity of the directory that it follows, and which events mean
//! that a change is finished. A path says where to look and nothing about what is there now.

mod pending_changes;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::{Config, RecommendedWatcher, RecursiveMode, Watcher};
use smc_types::problem::Problem;
use tokio::sync::Notify;

use self::pending_changes::PendingChanges;
use super::scope::Scope;

/// A directory's device and inode, which are independent of its path.
type Identity = (u64, u64);

/// A watch over a directory. Clones share it.
#[derive(Clone)]
pub(super) struct Watch {
    directory: PathBuf,
    /// Stores one wake-up while there is no waiter; several are equivalent to one.
    wake: Arc<Notify>,
    /// What the events named that were not looked at yet.
    noticed: Arc<Mutex<PendingChanges>>,
    live: Option<Live>,
    /// Why there is no watch, where one should be.
    failure: Option<String>,
}

/// The watch itself; it ends with the last clone.
#[derive(Clone)]
struct Live {
    _watcher: Arc<RecommendedWatcher>,
    /// Set by the watcher's thread when events may be lost.
    failed: Arc<AtomicBool>,
    /// The directory that is followed.
    identity: Identity,
}

impl Watch {
    /// No watch yet; [`Self::renew`] starts it.
    pub(super) fn new(directory: PathBuf) -> Self {
        // Events name absolute paths.
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        let (wake, noticed) = (Arc::default(), Arc::default());
        Self { directory, wake, noticed, live: None, failure: None }
    }

    /// Ensures that the directory now at the path is followed, or notes why it cannot be. Returns whether it
    /// was followed already; if not, changes may have gone unnoticed. Blocks.
    pub(super) fn renew(&mut self) -> bool {
        if self.is_current() {
            return true;
        }
        self.live = None;
        self.failure = None;
        // A full look reports a missing directory.
        let Some(identity) = identity(fs::metadata(&self.directory)) else { return false };
        match self.start() {
            Ok((watcher, failed)) => {
                self.live = Some(Live { _watcher: Arc::new(watcher), failed, identity });
            }
            Err(error) => self.failure = Some(error.to_string()),
        }
        false
    }

    /// Whether the directory at the path is the one that is followed, without a loss. Blocks.
    pub(super) fn is_current(&self) -> bool {
        let is_followed = |live: &Live| identity(fs::metadata(&self.directory)) == Some(live.identity);
        self.is_live() && self.live.as_ref().is_some_and(is_followed)
    }

    /// Whether changes are noticed as they happen.
    pub(super) fn is_live(&self) -> bool {
        self.live.as_ref().is_some_and(|live| !live.failed.load(Ordering::Relaxed))
    }

    /// The problem with the watch, if there is none.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.failure.as_ref().map(|failure| {
            let message = format!("cannot be watched: {failure}; changes are noticed within seconds instead");
            Problem::warning(self.directory.as_path(), "", message)
        })
    }

    /// Waits until there may be something new to look at, or something that is being written.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// What changed and is finished; `None` if there is nothing.
    pub(super) fn finished(&self) -> Option<Scope> {
        self.noticed().take_finished()
    }

    /// All that changed, finished or not; `None` if there is nothing.
    pub(super) fn all(&self) -> Option<Scope> {
        self.noticed().take_all()
    }

    /// How many events there were of things that were being written; `None` if nothing is.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.noticed().unfinished()
    }

    fn noticed(&self) -> MutexGuard<'_, PendingChanges> {
        // Nothing panics while it is locked, and every state of it is valid.
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the path now leads to another directory than the one that is followed.
    pub(super) async fn is_outdated(&self) -> bool {
        let now = identity(tokio::fs::metadata(&self.directory).await);
        match (&self.live, now) {
            (Some(live), Some(now)) => live.identity != now,
            (Some(_), None) => true,
            // Without a watch the directory is read again soon anyway.
            (None, _) => false,
        }
    }

    /// Starts to follow the directory. The thread that `notify` runs for it ends with the watcher.
    fn start(&self) -> notify::Result<(RecommendedWatcher, Arc<AtomicBool>)> {
        let failed = Arc::new(AtomicBool::new(false));
        let handler = {
            let (watch, failed) = (Self { live: None, ..self.clone() }, Arc::clone(&failed));
            move |event: notify::Result<notify::Event>| {
                let wakes = if let Ok(event) = event {
                    watch.noticed().add(&watch.directory, &event)
                } else {
                    failed.store(true, Ordering::Relaxed);
                    watch.noticed().add_everything();
                    true
                };
                if wakes {
                    watch.wake.notify_one();
                }
            }
        };
        // Targets of symbolic links count only inside the directory, where they are followed already.
        let config = Config::default().with_follow_symlinks(false);
        let mut watcher = RecommendedWatcher::new(handler, config)?;
        watcher.watch(&self.directory, RecursiveMode::Recursive)?;
        Ok((watcher, failed))
    }
}

fn identity(metadata: std::io::Result<fs::Metadata>) -> Option<Identity> {
    metadata.ok().filter(fs::Metadata::is_dir).map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Waits for the watch to wake.
    async fn wakes(watch: &Watch) {
        timeout(Duration::from_secs(20), watch.woken()).await.expect("a wake-up in time");
    }

    /// Whether the watch does not wake. A slow machine may say yes where it should not, never the reverse.
    async fn rests(watch: &Watch) -> bool {
        timeout(Duration::from_millis(500), watch.woken()).await.is_err()
    }

    #[tokio::test]
    async fn a_watch_is_woken_by_changes_below_it_and_not_by_its_own_reading() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("below")).unwrap();
        fs::write(directory.path().join("below/a.yaml"), "a").unwrap();
        let mut watch = Watch::new(directory.path().to_owned());
        watch.renew();
        assert!(watch.is_live() && watch.problem().is_none());
        fs::read(directory.path().join("below/a.yaml")).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(rests(&watch).await);
        fs::write(directory.path().join("below/a.yaml"), "b").unwrap();
        wakes(&watch).await;
        while !rests(&watch).await {}
        let path = BTreeSet::from(["below/a.yaml".to_owned()]);
        assert_eq!((watch.finished(), watch.all()), (Some(Scope::At(path)), None));
    }

    #[tokio::test]
    async fn a_watch_follows_the_path_when_the_directory_is_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("mesh");
        let mut watch = Watch::new(directory.clone());
        watch.renew();
        assert!(!watch.is_live() && !watch.is_outdated().await);
        fs::create_dir(&directory).unwrap();
        watch.renew();
        assert!(watch.is_live() && !watch.is_outdated().await);
        fs::rename(&directory, parent.path().join("old")).unwrap();
        assert!(watch.is_outdated().await);
        fs::create_dir(&directory).unwrap();
        assert!(watch.is_outdated().await);
        watch.renew();
        assert!(!watch.is_outdated().await);
        while !rests(&watch).await {}
        fs::write(directory.join("a.yaml"), "").unwrap();
        wakes(&watch).await;
    }

    #[test]
    fn a_watch_that_failed_is_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(directory.path().to_owned());
        watch.renew();
        watch.live.as_ref().unwrap().failed.store(true, Ordering::Relaxed);
        assert!(!watch.is_live());
        watch.renew();
        assert!(watch.is_live());
    }
}
