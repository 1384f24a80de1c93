//! The ids of replicas.

use std::fmt;
use std::str::FromStr;

/// A replica's id. Its operator assigns it once (the ordinal of a `StatefulSet`), and does not
/// reuse it while the replica is a member. Not an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<u64> for ReplicaId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl FromStr for ReplicaId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}
