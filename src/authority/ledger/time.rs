//! The ledger's time.
//!
//! Owns its stored form, before and after the first agreement on it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smc_types::time::Timestamp;

/// The ledger's time, in its stored form. A version that does not know of an agreed time cannot
/// read a snapshot that has one, and does not go on with other rules than the rest of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum LedgerTime {
    /// The latest time of any command. No time was agreed on yet.
    Latest(Timestamp),
    /// The group has agreed on a time.
    Agreed(AgreedTime),
}

/// What the ledger has since the group agreed on a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgreedTime {
    /// The time that was agreed on last.
    pub(super) agreed: Timestamp,
    /// The number of proxy certificates recorded since the first agreement.
    pub(super) proxies: u64,
}

impl LedgerTime {
    pub(super) fn now(self) -> Timestamp {
        match self {
            Self::Latest(time) | Self::Agreed(AgreedTime { agreed: time, .. }) => time,
        }
    }

    /// Notes a command's time. It moves no time that was agreed on.
    pub(super) fn observe(&mut self, at: Timestamp) {
        if let Self::Latest(latest) = self {
            *latest = (*latest).max(at);
        }
    }
}

/// The lower median of these clocks; `None` without any.
pub fn median(clocks: &BTreeMap<u64, Timestamp>) -> Option<Timestamp> {
    let mut sorted: Vec<_> = clocks.values().copied().collect();
    sorted.sort();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
