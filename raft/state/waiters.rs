//! Callers that wait for a request to be applied here.
//!
//! A proposer is answered by its own replica's state machine, not by the leader: after the answer, a read
//! of the local state sees what it proposed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use smc_authority::ledger::Outcome;
use smc_host::sync::lock;
use tokio::sync::oneshot;

use crate::state::sessions::SessionId;

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// The session is open.
    Opened,
    /// It was applied; one outcome per command.
    Outcomes(Vec<Outcome>),
    /// It was not applied, since its session was forgotten. It may be retried in a new session.
    Refused,
}

/// A request of a session, or its opening (`None`).
type Key = (SessionId, Option<u64>);

/// The waiting callers, at most one for each request that the proposer has in flight. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiters(Arc<Mutex<BTreeMap<Key, oneshot::Sender<Applied>>>>);

impl Waiters {
    /// Waits for request `number` of `session`, or for the session's opening. The receiver fails if a
    /// snapshot replaced the entry, so that its outcome stays unknown.
    pub(crate) fn wait(&self, session: SessionId, number: Option<u64>) -> oneshot::Receiver<Applied> {
        let (sender, receiver) = oneshot::channel();
        self.all().insert((session, number), sender);
        receiver
    }

    /// Stops waiting.
    pub(crate) fn forget(&self, session: SessionId, number: Option<u64>) {
        self.all().remove(&(session, number));
    }

    pub(crate) fn answer(&self, session: SessionId, number: Option<u64>, applied: impl FnOnce() -> Applied) {
        if let Some(waiting) = self.all().remove(&(session, number)) {
            // The caller may have given up.
            let _ = waiting.send(applied());
        }
    }

    /// Fails the waiting callers whose requests `lost` selects.
    pub(crate) fn lose(&self, lost: impl Fn(SessionId, Option<u64>) -> bool) {
        self.all().retain(|(session, number), _| !lost(*session, *number));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, oneshot::Sender<Applied>>> {
        // Plain inserts and removals: a panic elsewhere leaves nothing half done.
        lock(&self.0)
    }
}
