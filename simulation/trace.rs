//! The events of a run, in order. Equal seeds give equal traces.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::clock;
use smc_host::sync::lock;

/// The trace of one run. Clones are the same trace.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    /// Notes that `who` saw or did `what`, now.
    pub fn note(&self, who: impl Display, what: impl Display) {
        self.note_at(clock::elapsed(), who, what);
    }

    /// As [`Self::note`], from outside of the simulation, which does not know its time.
    pub fn note_at(&self, time: Duration, who: impl Display, what: impl Display) {
        self.lines_mut().push(format!("{:>8} ms  {who}: {what}", time.as_millis()));
    }

    /// All lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.lines_mut().clone()
    }

    fn lines_mut(&self) -> MutexGuard<'_, Vec<String>> {
        // A line is pushed whole or not at all.
        lock(&self.0)
    }
}
