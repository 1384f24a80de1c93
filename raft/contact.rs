//! Check-quorum: a leader that no quorum answers falls silent.
//!
//! Followers stand for election when they hear of no leader. One that is heard and hears nobody would stay, and commit
//! nothing; so Raft has it step down when it was not answered for an election's time (Ongaro's thesis, 6.2). openraft does not, and
//! thus what such a leader says is held back here: those who hear nothing elect another. From time to time it is heard again,
//! as its followers may have come back with logs that are too short to be elected.
//!
//! Owns whether a leader may speak. Refuses to know whom it speaks to.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use openraft::Instant as _;
use openraft::RaftMetrics;
use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::Instant;

use crate::group::Timing;
use crate::types::{TypeConfig, Vote};

/// When a leader falls silent and for how long, and for how long it is heard again then, in times of the longest silence that
/// begins an election.
///
/// A follower answers when it has synced, so the first is also how long the disks of a majority may stall without an election.
/// An election takes up to four of them, if the one with the longest log is the last to stand: that is less than the pause. A
/// connection may have to be made before anybody hears anything, which takes as long as one of them.
const UNANSWERED: u32 = 3;
const PAUSE: u32 = 5;
const HEARD: u32 = 2;

type Metrics = WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>;

/// What a leader knows of being heard. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Contact {
    timing: Timing,
    metrics: Arc<OnceLock<Metrics>>,
    /// The vote with which this replica last spoke as a leader, and when it began to.
    leading: Arc<Mutex<Option<(Vote, Instant)>>>,
}

impl Contact {
    pub(crate) fn new(timing: Timing) -> Self {
        Self { timing, metrics: Arc::default(), leading: Arc::default() }
    }

    /// Learns from Raft, once it runs, when a quorum answered.
    pub(crate) fn follow(&self, metrics: Metrics) {
        // Called once, with the one Raft that there is.
        let _ = self.metrics.set(metrics);
    }

    /// Whether the leader that `vote` made of this replica is to be silent now.
    pub(crate) fn is_lost(&self, vote: Vote) -> bool {
        let leading = {
            // Whole after every step: a panic elsewhere leaves nothing half done.
            let mut leading = self.leading.lock().unwrap_or_else(PoisonError::into_inner);
            match &*leading {
                Some((before, began)) if *before == vote => began.elapsed(),
                _ => leading.insert((vote, Instant::now())).1.elapsed(),
            }
        };
        // Before Raft runs nobody leads.
        let Some(metrics) = self.metrics.get() else { return false };
        let metrics = metrics.borrow_watched();
        if metrics.membership_config.membership().voter_ids().all(|voter| voter == vote.leader_id.node_id) {
            // It is a quorum by itself, which it does not ask.
            return false;
        }
        let acked = metrics.last_quorum_acked;
        is_silent(acked.map_or(leading, |acked| acked.into_inner().elapsed().min(leading)), &self.timing)
    }
}

/// Whether a leader that was last answered so long ago is to be silent.
fn is_silent(unanswered: Duration, timing: &Timing) -> bool {
    let Some(silence) = unanswered.checked_sub(timing.election.1 * UNANSWERED) else { return false };
    let round = timing.election.1 * (PAUSE + HEARD);
    silence.as_nanos() % round.as_nanos().max(1) < (timing.election.1 * PAUSE).as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_silent_when_it_was_not_answered_for_long_but_for_a_while_now_and_then() {
        let timing = Timing {
            heartbeat: Duration::from_millis(50),
            election: (Duration::ZERO, Duration::from_millis(400)),
        };
        for (unanswered, silent) in [
            (0, false),
            (1199, false),
            (1200, true),
            (3199, true),
            (3200, false),
            (3999, false),
            (4000, true),
            (5999, true),
            (6000, false),
            (6800, true),
        ] {
            assert_eq!(is_silent(Duration::from_millis(unanswered), &timing), silent, "{unanswered} ms");
        }
    }
}
