//! What a Delta client asked for and holds, as far as the server can know, and what that weighs.
//!
//! Owns the reasoning about refused responses, of which Envoy may have taken a part without saying so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::limits::weight;
use crate::resource::Version;

/// The names that the client asked for or holds.
#[derive(Debug, Default)]
pub(super) struct Entries {
    by_name: BTreeMap<Arc<str>, Entry>,
    bytes: usize,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// What the names take.
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

    /// Keeps what the client asked for by name.
    pub(super) fn retain_subscribed(&mut self) {
        self.by_name.retain(|_, entry| entry.subscribed);
        self.bytes = self.by_name.keys().map(|name| weight(name)).sum();
    }
}

/// A name that the client asked for or holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Whether it asked for this name, apart from a wildcard.
    pub(super) subscribed: bool,
    pub(super) held: Held,
}

/// What the client holds under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    /// Perhaps this, which was in a refused response of several; before that, nothing.
    Perhaps(Version),
    /// Something, as far as we know, but which version cannot be said: it is another control plane's, or
    /// was in a refused response of several.
    Unsure,
    At(Version),
}

impl Held {
    /// Whether the client can be taken to have some version.
    pub(super) fn is_sure(self) -> bool {
        matches!(self, Self::Unsure | Self::At(_))
    }

    /// After a refused response of several, of which the client may have taken this version.
    pub(super) fn in_doubt(self, version: Version) -> Self {
        match self {
            Self::Nothing => Self::Perhaps(version),
            Self::Perhaps(other) if other == version => self,
            Self::Perhaps(_) | Self::Unsure | Self::At(_) => Self::Unsure,
        }
    }

    /// After a refusal of this version alone.
    pub(super) fn refused(self, version: Version) -> Self {
        if self == Self::Perhaps(version) { Self::Nothing } else { self }
    }
}

/// The names that have not been compared with the latest view.
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
