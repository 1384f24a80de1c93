//! The names whose comparison with the latest view is due.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The names not yet compared with the latest view.
#[derive(Debug)]
pub(super) enum Stale {
    Names(BTreeSet<Arc<str>>),
    Everything,
}

impl Stale {
    pub(super) fn add(&mut self, name: Arc<str>) {
        if let Self::Names(names) = self {
            names.insert(name);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Self::Names(names) = self {
            names.remove(name);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Names(names) if names.is_empty())
    }
}
