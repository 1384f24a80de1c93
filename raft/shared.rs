//! The applied state, shared between the one that applies and many that read.

use std::sync::{Arc, PoisonError, RwLock};

use smc_mesh::ledger::{Command, Ledger};

use crate::replicated::Outcome;

/// A ledger that many read and one party applies to. Cheap to clone; all clones see the same state, and
/// only what is durable.
#[derive(Clone, Default)]
pub struct SharedLedger(Arc<RwLock<Ledger>>);

impl SharedLedger {
    /// Looks at the state as it is now. `look` holds up those who apply, so it should copy out what it
    /// needs and end; it must not propose.
    pub fn read<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        // Only a panic inside `apply` could poison the lock; every change there follows all its checks.
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, ledger: Ledger) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ledger;
    }

    pub(crate) fn apply<'a>(&self, commands: impl Iterator<Item = &'a Command>) -> Vec<Outcome> {
        let mut ledger = self.0.write().unwrap_or_else(PoisonError::into_inner);
        commands.map(|command| ledger.apply(command)).collect()
    }
}
