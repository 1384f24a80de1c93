//! The versions of the ledger's rules.
//!
//! Owns which there are (docs/design/identity.md). Replicas of several versions apply one log during
//! an upgrade. A rule that changes what an old command does begins with a command of its own, at one
//! place of the log, and is part of the state from there on.

use serde::{Deserialize, Serialize};

/// A version of the rules by which commands take effect. Its stored form is its number, which is the
/// first generation of commands that knows it ([`super::GENERATION`]). A version of SMC that does
/// not know the number reads neither the command nor a snapshot from after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum Rules {
    /// The rules from before there were versions of them.
    First,
    /// A release forgets what no proxy has connected with. In a full ledger, proxy certificates that
    /// are not in use give way to new ones, those of the namespace with the most of them first.
    Second,
    /// Service certificates of identities that no workload has are forgotten, with their keys.
    Third,
    /// Gateways have certificates. A forgotten certificate of a clock that was ahead delays no new root.
    Fourth,
    /// A root has the object that declares it.
    Fifth,
}

impl Rules {
    /// The rules that this version of SMC begins.
    pub const LATEST: Self = Self::Fifth;

    /// The first generation of commands that knows these rules.
    pub const fn generation(self) -> u32 {
        match self {
            Self::First => 1,
            Self::Second => 2,
            Self::Third => 3,
            Self::Fourth => 4,
            Self::Fifth => 5,
        }
    }
}

impl From<Rules> for u32 {
    fn from(rules: Rules) -> Self {
        rules.generation()
    }
}

impl TryFrom<u32> for Rules {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        let known = [Self::First, Self::Second, Self::Third, Self::Fourth, Self::Fifth];
        let found = known.into_iter().find(|rules| rules.generation() == number);
        found.ok_or_else(|| format!("this version does not know the rules {number} of the ledger"))
    }
}
