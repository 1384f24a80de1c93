//! Where to look: everywhere, or at the paths that events named.

use std::collections::BTreeSet;

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// Everything.
    Full,
    /// These paths within the mesh directory, with `/` between names.
    At(BTreeSet<String>),
}

impl Scope {
    /// Both.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(mut paths), Self::At(more)) => {
                paths.extend(more);
                Self::At(paths)
            }
            _ => Self::Full,
        }
    }
}
