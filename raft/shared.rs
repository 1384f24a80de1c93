//! The applied state, and the epoch of the shards that goes with it, shared between the one that applies and many that read or
//! listen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use smc_mesh::ledger::{Announcement, Command, Ledger};
use tokio::sync::broadcast;

use crate::replicated::Outcome;

/// Announcements that a slow receiver may lag behind by: a cold start of a thousand identities fits.
const ANNOUNCEMENTS: usize = 1024;

/// A ledger that many read and one party applies to. Cheap to clone; all clones see the same state, and
/// only what is durable.
#[derive(Clone)]
pub struct SharedLedger {
    state: Arc<RwLock<Ledger>>,
    announcements: broadcast::Sender<Announcement>,
}

impl Default for SharedLedger {
    fn default() -> Self {
        let (announcements, _) = broadcast::channel(ANNOUNCEMENTS);
        Self { state: Arc::default(), announcements }
    }
}

impl SharedLedger {
    /// Looks at the state as it is now. `look` holds up those who apply, so it should copy out what it
    /// needs and end; it must not propose.
    pub fn read<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        // Only a panic inside `apply` could poison the lock; every change there follows all its checks.
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is applied from now on, in order, whoever asked for it and on whichever replica. Who hears something finds
    /// it in the state. A receiver that lags behind has lost some and reads the state instead, and so it does after
    /// [`Announcement::Replaced`]: a snapshot took the place of the state.
    pub fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.announcements.subscribe()
    }

    pub(crate) fn replace(&self, ledger: Ledger) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        *state = ledger;
        // That nobody listens is no error.
        let _ = self.announcements.send(Announcement::Replaced);
    }

    pub(crate) fn apply<'a>(&self, commands: impl Iterator<Item = &'a Command>) -> Vec<Outcome> {
        let mut ledger = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut apply = |command: &Command| {
            let outcome = ledger.apply(command);
            let reply = outcome.as_ref().ok();
            if let Some(news) = reply.and_then(|reply| Announcement::of(&command.operation, reply)) {
                // That nobody listens is no error. Who does finds it in the state: the lock is held until all is there.
                let _ = self.announcements.send(news);
            }
            outcome
        };
        commands.map(&mut apply).collect()
    }
}

/// Which division of the proxies among replicas holds: the number of the entry that made the group what it is. Every replica
/// that has applied as much says the same, also after a snapshot or a restart, and it grows with every change of the group's members.
/// Cheap to clone; all clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShardEpoch(Arc<AtomicU64>);

impl ShardEpoch {
    /// 0 as long as there is no group.
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn begin(&self, epoch: u64) {
        self.0.store(epoch, Ordering::Release);
    }
}
