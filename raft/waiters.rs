//! Who waits here for a request to be applied.
//!
//! A proposer is answered by its own replica's state machine, not by the leader: once it has its answer, a read of
//! the local state sees what it proposed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::replicated::Outcome;
use crate::sessions::SessionId;

/// What became of a request here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// The session is open.
    Opened,
    /// It was applied; one outcome per command.
    Outcomes(Vec<Outcome>),
    /// It was not applied, since its session is not known any more. A new session may try again.
    Refused,
}

/// What is waited for: the opening of a session, or one of its requests.
type Key = (SessionId, Option<u64>);

/// See the module. Cheap to clone. As many wait as the proposer has requests under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiters(Arc<Mutex<BTreeMap<Key, oneshot::Sender<Applied>>>>);

impl Waiters {
    /// Waits for `number` of `session`, or for the session's opening. The receiver fails if the answer was lost
    /// because a snapshot took the place of the log.
    pub(crate) fn wait(&self, session: SessionId, number: Option<u64>) -> oneshot::Receiver<Applied> {
        let (sender, receiver) = oneshot::channel();
        self.all().insert((session, number), sender);
        receiver
    }

    /// Nobody waits for this any more.
    pub(crate) fn forget(&self, session: SessionId, number: Option<u64>) {
        self.all().remove(&(session, number));
    }

    pub(crate) fn answer(&self, session: SessionId, number: Option<u64>, applied: impl FnOnce() -> Applied) {
        if let Some(waiting) = self.all().remove(&(session, number)) {
            // Who waited may have given up.
            let _ = waiting.send(applied());
        }
    }

    /// Drops those whose answer will never come.
    pub(crate) fn lose(&self, lost: impl Fn(SessionId, Option<u64>) -> bool) {
        self.all().retain(|(session, number), _| !lost(*session, *number));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, oneshot::Sender<Applied>>> {
        // Plain inserts and removals: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
