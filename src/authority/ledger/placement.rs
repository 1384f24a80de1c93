//! The placement: which replica is in which phase, as all replicas know it.
//!
//! Owns the phases and their legal changes. Which proxies a ready replica should serve follows from the
//! ring; here is only who takes part in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use smc_types::ids::ReplicaId;
use smc_types::time::Timestamp;

/// What a replica is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaPhase {
    /// It has started, and reads its sources and compiles. Owns nothing.
    Joining,
    /// It serves the mesh, and owns its shard.
    Ready,
    /// It is about to stop, and hands its proxies over. Owns nothing.
    Draining,
    /// The leader has had no contact with it for some seconds. Owns nothing.
    Down,
}

impl ReplicaPhase {
    /// Whether a process may go from this phase to `next`. Who was marked down joins again: it has
    /// missed what the others decided meanwhile. Who drains stops, or joins again.
    pub fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Joining, Self::Ready | Self::Draining | Self::Down)
            | (Self::Ready, Self::Joining | Self::Draining | Self::Down)
            | (Self::Draining, Self::Joining | Self::Down)
            | (Self::Down, Self::Joining) => true,
            (Self::Joining | Self::Ready | Self::Draining | Self::Down, _) => false,
        }
    }
}

impl fmt::Display for ReplicaPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Joining => "joining",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Down => "down",
        })
    }
}

/// One replica in the placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// Its phase.
    pub phase: ReplicaPhase,
    /// Drawn when its process started: a process that was restarted is another one.
    pub run: u64,
    /// When it came to this phase, by the ledger's time.
    pub since: Timestamp,
}

/// All replicas with their phases, at one epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Grows by one with each change. Equal epochs have equal replicas.
    pub epoch: u64,
    /// The replicas that have joined and were not removed from the group, at most [`super::MAX_REPLICAS`].
    #[serde(with = "by_number")]
    pub replicas: BTreeMap<ReplicaId, ReplicaRecord>,
}

impl Placement {
    /// Whether no replica ever joined. Such a placement is not stored, as in versions without placements.
    pub(super) fn is_empty(&self) -> bool {
        self.epoch == 0
    }

    /// The replicas that own a shard.
    pub fn ready(&self) -> BTreeSet<ReplicaId> {
        let ready = self.replicas.iter().filter(|(_, record)| record.phase == ReplicaPhase::Ready);
        ready.map(|(replica, _)| *replica).collect()
    }
}

/// Replicas by their numbers: an id has no stored form of its own.
mod by_number {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};
    use smc_types::ids::ReplicaId;

    use super::ReplicaRecord;

    pub(super) fn serialize<S: Serializer>(
        replicas: &BTreeMap<ReplicaId, ReplicaRecord>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(replicas.iter().map(|(replica, record)| (replica.0, record)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<ReplicaId, ReplicaRecord>, D::Error> {
        let replicas = BTreeMap::<u64, ReplicaRecord>::deserialize(deserializer)?;
        Ok(replicas.into_iter().map(|(replica, record)| (ReplicaId(replica), record)).collect())
    }
}
