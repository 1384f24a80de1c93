//! The applied state, shared between the state machine and its readers: the ledger with its announcements,
//! and the index of the last membership change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use smc_authority::ledger::{Announcement, Command, Ledger, Outcome};
use smc_host::sync::{read, write};
use tokio::sync::broadcast;

/// Announcements that a slow receiver may lag behind by: a cold start of a thousand identities fits.
const ANNOUNCEMENTS: usize = 1024;

/// A ledger with one writer and many readers. Cheap to clone; all clones see the same state, which is
/// always durable.
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
    /// Reads the current state. `reader` blocks the writer, so it should copy what it needs and return; it
    /// must not propose.
    pub fn read<T>(&self, reader: impl FnOnce(&Ledger) -> T) -> T {
        // Only a panic inside `apply` could poison the lock; every change there follows all its checks.
        reader(&read(&self.state))
    }

    /// Announces what is applied from now on, in order, from any proposer on any replica. The state already
    /// includes an announced change. A receiver that lagged behind has lost announcements and must read the
    /// state instead, as it must after [`Announcement::Replaced`]: the state was replaced by a snapshot.
    pub fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.announcements.subscribe()
    }

    pub(crate) fn replace(&self, ledger: Ledger) {
        let mut state = write(&self.state);
        *state = ledger;
        // An error means that there is no receiver.
        let _ = self.announcements.send(Announcement::Replaced);
    }

    pub(crate) fn apply<'a>(&self, commands: impl Iterator<Item = &'a Command>) -> Vec<Outcome> {
        let mut ledger = write(&self.state);
        let mut apply = |command: &Command| {
            let outcome = ledger.apply(command);
            let reply = outcome.as_ref().ok();
            if let Some(news) = reply.and_then(|reply| Announcement::of(&command.operation, reply)) {
                // An error means that there is no receiver. A receiver finds the change in the state, since
                // the lock is held until it is complete.
                let _ = self.announcements.send(news);
            }
            outcome
        };
        commands.map(&mut apply).collect()
    }
}

/// Log index of the last membership change. Equal on all replicas that have applied as much, also after a
/// snapshot or a restart, and growing with every change. Cheap to clone; all clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct MembershipIndex(Arc<AtomicU64>);

impl MembershipIndex {
    /// 0 as long as there is no group.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, index: u64) {
        self.0.store(index, Ordering::Release);
    }
}
