//! The work that requests cause, counted in names looked at.

use std::cell::Cell;

/// The names that one type has looked at since it was last asked. A comparison with the view takes about a
/// third of a microsecond.
#[derive(Debug, Default)]
pub(super) struct Work(Cell<usize>);

impl Work {
    /// Counts names that were looked at.
    pub(super) fn add(&self, names: usize) {
        self.0.set(self.0.get().saturating_add(names));
    }

    /// The count, which then begins at 0.
    pub(super) fn take(&self) -> usize {
        self.0.take()
    }
}
