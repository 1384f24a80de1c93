//! Whether the clocks of a group's replicas agree, and which time the group has.
//!
//! Owns the comparison (docs/design/identity.md). The caller asks the other replicas for their
//! clocks. A single wrong clock decides nothing: the group has a time only where a majority of its
//! members agree on one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ledger::median;
use smc_types::time::Timestamp;

/// The largest offset of a replica's clock from the group's time. Time daemons hold clocks within
/// seconds. Two replicas within it are less than half of [`crate::pki::BACKDATE`] apart, so that
/// what one of them issues is valid at once for the other.
pub const MAX_CLOCK_OFFSET: Duration = Duration::from_mins(1);

/// The clocks of a group's members at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clocks {
    /// The replica that compares.
    pub me: u64,
    /// Its own clock.
    pub own: Timestamp,
    /// The clocks of the other members that answered lately; `None` for one whose version does not
    /// tell the time.
    pub others: BTreeMap<u64, Option<Timestamp>>,
    /// The number of members, this replica counted.
    pub members: usize,
}

/// What a replica knows of the group's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupTime {
    /// This replica's clock agrees with those of a majority.
    Agreed {
        /// The group's time.
        now: Timestamp,
        /// How many seconds this replica's clock is ahead of it; at most [`MAX_CLOCK_OFFSET`].
        offset: i64,
        /// The clocks of a majority, from which `now` follows.
        clocks: BTreeMap<u64, Timestamp>,
        /// Whether every member's clock is known.
        all: bool,
    },
    /// A majority agrees, and this replica's clock differs from it.
    Off {
        /// The group's time.
        now: Timestamp,
        /// How many seconds this replica's clock is ahead of it.
        offset: i64,
    },
    /// Enough members answered, and no majority of them agrees.
    Disputed {
        /// How many seconds this replica's clock is ahead of the one that differs most.
        offset: i64,
    },
    /// Too few members answered.
    Unknown {
        /// The members that answered, this replica counted.
        answered: usize,
        /// All members.
        members: usize,
    },
}

impl GroupTime {
    /// How many seconds this replica's clock is ahead; 0 while that is not known.
    pub fn offset(&self) -> i64 {
        match self {
            Self::Agreed { offset, .. } | Self::Off { offset, .. } | Self::Disputed { offset } => *offset,
            Self::Unknown { .. } => 0,
        }
    }

    /// Whether this replica may issue: its clock agrees with those of a majority.
    pub fn is_agreed(&self) -> bool {
        matches!(self, Self::Agreed { .. })
    }
}

/// Compares the clocks. Of all majorities, the one whose clocks lie closest together counts, if
/// they lie within [`MAX_CLOCK_OFFSET`]. Any two majorities share a member, so the times that two
/// replicas find lie within twice that bound. A member that does not tell its clock is one less
/// that has to agree: during an upgrade the others go on.
pub fn compare(clocks: &Clocks) -> GroupTime {
    let Clocks { me, own, others, members } = clocks;
    let silent = others.values().filter(|told| told.is_none()).count();
    let answered = others.len() + 1;
    let majority = members / 2 + 1;
    if answered < majority {
        return GroupTime::Unknown { answered, members: *members };
    }
    let needed = majority.saturating_sub(silent).max(1);
    let mut told: Vec<(Timestamp, u64)> =
        others.iter().filter_map(|(id, told)| told.map(|time| (time, *id))).chain([(*own, *me)]).collect();
    told.sort();
    let ahead = |time: Timestamp| own.0.saturating_sub(time.0);
    let spread = |window: &[(Timestamp, u64)]| match (window.first(), window.last()) {
        (Some((first, _)), Some((last, _))) => last.since(*first),
        _ => Duration::ZERO,
    };
    let closest = told.windows(needed).min_by_key(|window| spread(window));
    let closest = closest.filter(|window| spread(window) <= MAX_CLOCK_OFFSET);
    let majority: Option<BTreeMap<_, _>> =
        closest.map(|window| window.iter().map(|(time, id)| (*id, *time)).collect());
    let Some((clocks, now)) = majority.and_then(|clocks| median(&clocks).map(|now| (clocks, now))) else {
        let offsets = told.iter().map(|(time, _)| ahead(*time));
        return GroupTime::Disputed { offset: offsets.max_by_key(|offset| offset.abs()).unwrap_or(0) };
    };
    let offset = ahead(now);
    if offset.unsigned_abs() > MAX_CLOCK_OFFSET.as_secs() {
        return GroupTime::Off { now, offset };
    }
    GroupTime::Agreed { now, offset, clocks, all: answered == *members && silent == 0 }
}

#[cfg(test)]
mod tests;
