//! What happened, in order: equal seeds, equal traces.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock;

/// The trace of one run. Clones are the same trace.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    /// Notes that `who` saw or did `what`, now.
    pub fn note(&self, who: impl Display, what: impl Display) {
        self.note_at(clock::elapsed(), who, what);
    }

    /// Notes it from outside of the simulation, where its time has to be told.
    pub fn note_at(&self, time: Duration, who: impl Display, what: impl Display) {
        self.lines_mut().push(format!("{:>8} ms  {who}: {what}", time.as_millis()));
    }

    /// All lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.lines_mut().clone()
    }

    fn lines_mut(&self) -> MutexGuard<'_, Vec<String>> {
        // A line is pushed whole or not at all.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
