//! What a Delta client holds, as far as the server can know.
//!
//! Owns the reasoning about refused responses, of which Envoy may have taken a part without saying so.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::resource::Version;

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

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Names(names) if names.is_empty())
    }
}
