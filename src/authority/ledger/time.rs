//! The ledger's time, and the rules that began with it or later.
//!
//! Owns their stored form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smc_types::time::Timestamp;

use super::rules::Rules;

/// The ledger's time, in its stored form. A version that does not know one of the forms cannot read
/// a snapshot that has it, and does not go on with other rules than the rest of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum LedgerTime {
    /// The latest time of any command. No time was agreed on yet.
    Latest(Timestamp),
    /// The group has agreed on a time.
    Agreed(AgreedTime),
    /// The group has agreed on a time, and begun later rules than the first. The agreed time is a
    /// level deeper than before: a version that expects it at the top finds none.
    Ruled(RuledTime),
}

/// What the ledger has since the group agreed on a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgreedTime {
    /// The time that was agreed on last.
    pub(super) agreed: Timestamp,
    /// The number of proxy certificates recorded since the first agreement.
    pub(super) proxies: u64,
}

/// What the ledger has since later rules than the first began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RuledTime {
    rules: Rules,
    time: AgreedTime,
}

impl LedgerTime {
    pub(super) fn now(self) -> Timestamp {
        match self {
            Self::Latest(latest) => latest,
            Self::Agreed(time) | Self::Ruled(RuledTime { time, .. }) => time.agreed,
        }
    }

    /// The time that was agreed on last.
    pub(super) fn agreed(self) -> Option<Timestamp> {
        match self {
            Self::Latest(_) => None,
            Self::Agreed(time) | Self::Ruled(RuledTime { time, .. }) => Some(time.agreed),
        }
    }

    pub(super) fn rules(self) -> Rules {
        match self {
            Self::Latest(_) | Self::Agreed(_) => Rules::First,
            Self::Ruled(RuledTime { rules, .. }) => rules,
        }
    }

    /// Notes a command's time. It moves no time that was agreed on.
    pub(super) fn observe(&mut self, at: Timestamp) {
        if let Self::Latest(latest) = self {
            *latest = (*latest).max(at);
        }
    }

    /// Notes a time that the group agrees on.
    pub(super) fn agree(&mut self, agreed: Timestamp) {
        match self {
            Self::Latest(_) => *self = Self::Agreed(AgreedTime { agreed, proxies: 0 }),
            Self::Agreed(time) | Self::Ruled(RuledTime { time, .. }) => time.agreed = agreed,
        }
    }

    /// Begins rules, and returns whether it can: they need an agreed time.
    pub(super) fn begin(&mut self, rules: Rules) -> bool {
        match self {
            Self::Latest(_) => return false,
            Self::Agreed(time) => *self = Self::Ruled(RuledTime { rules, time: *time }),
            Self::Ruled(ruled) => ruled.rules = rules,
        }
        true
    }

    /// Counts a proxy certificate, and returns its number; 0 before the group has agreed on a time.
    pub(super) fn next_proxy(&mut self) -> u64 {
        match self {
            Self::Latest(_) => 0,
            Self::Agreed(time) | Self::Ruled(RuledTime { time, .. }) => {
                time.proxies += 1;
                time.proxies
            }
        }
    }
}

/// The lower median of these clocks; `None` without any.
pub fn median(clocks: &BTreeMap<u64, Timestamp>) -> Option<Timestamp> {
    let mut sorted: Vec<_> = clocks.values().copied().collect();
    sorted.sort();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
