//! What a Delta client holds under one name, as far as the server can know.
//!
//! After a NACK of several resources Envoy may have applied some of them: LDS applies the valid ones.
//! Nothing in the protocol says which.

use crate::resource::Version;

/// What the client holds under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    /// Nothing before a rejected response of several resources, with this version among them; since
    /// then either nothing or this version.
    MaybeApplied(Version),
    /// Some version that the server does not know: another control plane sent it, or it was in a
    /// rejected response of several resources.
    UnknownVersion,
    At(Version),
}

impl Held {
    /// Returns true if the client certainly holds some version.
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::UnknownVersion | Self::At(_))
    }

    /// The state after a NACK of several resources, with this version among them.
    pub(super) fn after_partial_nack(self, version: Version) -> Self {
        match self {
            Self::Nothing => Self::MaybeApplied(version),
            Self::MaybeApplied(other) if other == version => self,
            Self::MaybeApplied(_) | Self::UnknownVersion | Self::At(_) => Self::UnknownVersion,
        }
    }

    /// The state after a NACK of this version alone.
    pub(super) fn after_nack(self, version: Version) -> Self {
        if self == Self::MaybeApplied(version) { Self::Nothing } else { self }
    }
}
