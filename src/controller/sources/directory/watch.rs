//! Wake-ups when something in the directory may have changed.
//!
//! Owns the operating system's watch and the identity of the directory that it follows. Does not say what
//! changed: an event only causes a scan.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Config, RecommendedWatcher, RecursiveMode, Watcher};
use smc_types::problem::Problem;
use tokio::sync::Notify;

/// A directory's device and inode, which are independent of its path.
type Identity = (u64, u64);

/// A watch over a directory. Clones share it.
#[derive(Clone)]
pub(super) struct Watch {
    directory: PathBuf,
    /// Stores one wake-up while there is no waiter; several are equivalent to one.
    wake: Arc<Notify>,
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
        Self { directory, wake: Arc::new(Notify::new()), live: None, failure: None }
    }

    /// Ensures that the directory now at the path is followed, or notes why it cannot be. Blocks.
    pub(super) fn renew(&mut self) {
        let identity = identity(fs::metadata(&self.directory));
        if let Some(live) = &self.live
            && !live.failed.load(Ordering::Relaxed)
            && Some(live.identity) == identity
        {
            return;
        }
        self.live = None;
        self.failure = None;
        // The scan reports a missing directory.
        let Some(identity) = identity else { return };
        match start(&self.directory, &self.wake) {
            Ok((watcher, failed)) => {
                self.live = Some(Live { _watcher: Arc::new(watcher), failed, identity });
            }
            Err(error) => self.failure = Some(error.to_string()),
        }
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

    /// Waits until something may have changed.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
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
}

fn identity(metadata: std::io::Result<fs::Metadata>) -> Option<Identity> {
    metadata.ok().filter(fs::Metadata::is_dir).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Starts to follow the directory. The thread that `notify` runs for it ends with the watcher.
fn start(directory: &Path, wake: &Arc<Notify>) -> notify::Result<(RecommendedWatcher, Arc<AtomicBool>)> {
    let failed = Arc::new(AtomicBool::new(false));
    let handler = {
        let (wake, failed) = (Arc::clone(wake), Arc::clone(&failed));
        move |event: notify::Result<notify::Event>| match event {
            Ok(event) if is_read_access(event.kind) => {}
            Ok(_) => wake.notify_one(),
            Err(_) => {
                failed.store(true, Ordering::Relaxed);
                wake.notify_one();
            }
        }
    };
    // Targets of symbolic links count only inside the directory, where they are followed already.
    let config = Config::default().with_follow_symlinks(false);
    let mut watcher = RecommendedWatcher::new(handler, config)?;
    watcher.watch(directory, RecursiveMode::Recursive)?;
    Ok((watcher, failed))
}

/// Whether an event is only read access, which every scan causes.
fn is_read_access(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use notify::event::{CreateKind, DataChange, ModifyKind, RemoveKind, RenameMode};
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

    #[test]
    fn reading_does_not_wake_and_every_change_does() {
        for (kind, reading) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), true),
            (EventKind::Access(AccessKind::Read), true),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), true),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), false),
            (EventKind::Create(CreateKind::File), false),
            (EventKind::Modify(ModifyKind::Data(DataChange::Any)), false),
            (EventKind::Modify(ModifyKind::Name(RenameMode::To)), false),
            (EventKind::Remove(RemoveKind::Folder), false),
            (EventKind::Other, false),
            (EventKind::Any, false),
        ] {
            assert_eq!(is_read_access(kind), reading, "{kind:?}");
        }
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
