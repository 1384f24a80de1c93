//! The names whose comparison with the latest view is due.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// The names not yet compared with the latest view.
#[derive(Debug, Default)]
pub(super) struct Stale {
    /// These, whatever the sweep does.
    names: BTreeSet<Arc<str>>,
    /// All names from here on.
    sweep: Option<Sweep>,
}

/// How far a comparison of all names is.
#[derive(Debug, Clone)]
pub(super) struct Sweep {
    pub(super) over: Over,
    /// The last name that was compared.
    pub(super) after: Option<Arc<str>>,
}

/// The table that a sweep goes over. In this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The names that the client subscribed to or holds.
    Entries,
    /// The names to be removed at the client.
    Removals,
    /// The names that the client waits for.
    Answers,
    /// The names of the view, if the client subscribed to all.
    View,
}

impl Sweep {
    /// A sweep that begins with this table.
    pub(super) fn from(over: Over) -> Self {
        Self { over, after: None }
    }

    /// Where in its table it goes on.
    pub(super) fn range(&self) -> (Bound<&str>, Bound<&str>) {
        (self.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
    }

    /// The sweep of the next table; `None` after the last.
    pub(super) fn next_table(&self) -> Option<Self> {
        Some(Self::from(match self.over {
            Over::Entries => Over::Removals,
            Over::Removals => Over::Answers,
            Over::Answers => Over::View,
            Over::View => return None,
        }))
    }
}

impl Stale {
    pub(super) fn add(&mut self, name: Arc<str>) {
        self.names.insert(name);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// Drops the single names that do not satisfy `kept`.
    pub(super) fn retain(&mut self, kept: impl Fn(&str) -> bool) {
        self.names.retain(|name| kept(name));
    }

    /// All names are to be compared.
    pub(super) fn add_all(&mut self) {
        self.names.clear();
        self.sweep = Some(Sweep::from(Over::Entries));
    }

    /// All names of the view are to be compared.
    pub(super) fn add_view(&mut self) {
        match &mut self.sweep {
            Some(Sweep { over: Over::View, after }) => *after = None,
            // It comes to the view later.
            Some(_) => {}
            None => self.sweep = Some(Sweep::from(Over::View)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.sweep.is_none()
    }

    /// Whether all names of the view may differ.
    pub(super) fn sweeps(&self) -> bool {
        self.sweep.is_some()
    }

    /// The single names.
    pub(super) fn names(&self) -> &BTreeSet<Arc<str>> {
        &self.names
    }

    /// Takes one single name.
    pub(super) fn pop(&mut self) -> Option<Arc<str>> {
        self.names.pop_first()
    }

    /// Takes the sweep. The caller puts back how far it is.
    pub(super) fn take_sweep(&mut self) -> Option<Sweep> {
        self.sweep.take()
    }

    pub(super) fn put_sweep(&mut self, sweep: Option<Sweep>) {
        self.sweep = sweep;
    }
}
