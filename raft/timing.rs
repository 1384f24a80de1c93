//! The intervals of Raft's protocol.

use std::time::Duration;

/// Heartbeats and election timeouts, for one network: round trips of a millisecond or less, and syncs of
/// tens of milliseconds at worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How often a leader sends a heartbeat.
    pub heartbeat: Duration,
    /// The shortest and the longest election timeout: a follower that hears no leader stands for election
    /// at random between the two, and grants no vote before the longest. So a leader's death is noticed
    /// after the longest, and a new one leads after at most twice that.
    pub election: (Duration, Duration),
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(50),
            election: (Duration::from_millis(200), Duration::from_millis(400)),
        }
    }
}
