//! The names that a Delta client subscribed to and holds, and the memory that they take.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::held::Held;
use crate::session::limits::weight;

/// The names that the client subscribed to or holds.
#[derive(Debug, Default)]
pub(super) struct Entries {
    by_name: BTreeMap<Arc<str>, Entry>,
    bytes: usize,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The memory that the names take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Entry> {
        self.by_name.get_mut(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Entry)> {
        self.by_name.iter()
    }

    /// The names in a range.
    pub(super) fn range(&self, range: (Bound<&str>, Bound<&str>)) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.range::<str, _>(range).map(|(name, _)| name)
    }

    pub(super) fn insert(&mut self, name: Arc<str>, entry: Entry) {
        let bytes = weight(&name);
        if self.by_name.insert(name, entry).is_none() {
            self.bytes += bytes;
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<(Arc<str>, Entry)> {
        let removed = self.by_name.remove_entry(name)?;
        self.bytes -= weight(&removed.0);
        Some(removed)
    }

    /// Drops the names that the client did not subscribe to.
    pub(super) fn retain_subscribed(&mut self) {
        self.by_name.retain(|_, entry| entry.subscribed);
        self.bytes = self.by_name.keys().map(|name| weight(name)).sum();
    }
}

/// A name that the client subscribed to or holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// The client subscribed to this name itself, apart from a wildcard.
    pub(super) subscribed: bool,
    pub(super) held: Held,
}
