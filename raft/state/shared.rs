//! The applied state, shared between the state machine and its readers: the ledger with its announcements,
//! and the last membership.

use std::collections::BTreeSet;
use std::sync::{Arc, RwLock};

use smc_authority::ledger::{Announcement, Command, Ledger, Outcome};
use smc_host::sync::{read, write};
use smc_types::ids::ReplicaId;
use tokio::sync::broadcast;

use crate::types::StoredMembership;

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

/// The last membership that was applied, and so is committed. Equal on all replicas that have applied as
/// much, also after a snapshot or a restart. Cheap to clone; all clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct AppliedMembership(Arc<RwLock<StoredMembership>>);

impl AppliedMembership {
    /// Its log index, which grows with every change; 0 as long as there is no group.
    pub(crate) fn index(&self) -> u64 {
        read(&self.0).log_id().map_or(0, |id| id.index)
    }

    /// Those that vote before and after a change that is half done.
    pub(crate) fn voters(&self) -> BTreeSet<ReplicaId> {
        let applied = read(&self.0);
        let configs = applied.membership().get_joint_config();
        let all = configs.first().cloned().unwrap_or_default();
        all.into_iter().filter(|id| configs.iter().all(|voters| voters.contains(id))).collect()
    }

    pub(crate) fn get(&self) -> StoredMembership {
        read(&self.0).clone()
    }

    pub(crate) fn set(&self, membership: StoredMembership) {
        *write(&self.0) = membership;
    }
}
