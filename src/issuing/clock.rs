//! Whether this replica's clock may decide what is issued.
//!
//! Owns the verdict on it, as errors and the status name it.

use smc_authority::rules::GroupTime;
use thiserror::Error;

/// Why a replica must not go by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ClockError {
    /// A majority of the replicas has another time.
    #[error("this replica's clock is {} s {} the group's", .0.unsigned_abs(), side(*.0))]
    Off(i64),
    /// No majority agrees.
    #[error(
        "the clocks of the replicas differ, this one's is {} s {} another's, and no majority of them agrees",
        .0.unsigned_abs(), side(*.0)
    )]
    Disputed(i64),
    /// Too few replicas answer.
    #[error("{answered} of {members} replicas told their clocks lately, which is no majority")]
    Unknown {
        /// Those that answered, this replica counted.
        answered: usize,
        /// All of them.
        members: usize,
    },
}

fn side(offset: i64) -> &'static str {
    if offset < 0 { "behind" } else { "ahead of" }
}

impl ClockError {
    /// Fails unless this replica's clock agrees with those of a majority.
    pub fn check(time: &GroupTime) -> Result<(), Self> {
        match time {
            GroupTime::Agreed { .. } => Ok(()),
            GroupTime::Off { offset, .. } => Err(Self::Off(*offset)),
            GroupTime::Disputed { offset } => Err(Self::Disputed(*offset)),
            GroupTime::Unknown { answered, members } => {
                Err(Self::Unknown { answered: *answered, members: *members })
            }
        }
    }

    /// Whether a clock is known to be wrong. Without a majority nothing is known, and nothing is committed.
    pub fn is_known(self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }
}
