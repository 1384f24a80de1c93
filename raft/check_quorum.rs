//! Check-quorum: a leader that no quorum answers stops sending AppendEntries.
//!
//! Followers stand for election when no leader reaches them. A leader that can send but not receive would
//! block elections forever and commit nothing. Raft makes it step down after an election timeout without
//! answers (Ongaro's thesis, section 6.2); openraft does not. So its AppendEntries are held back here, and
//! the followers elect another leader. From time to time they are let through again, in case only this
//! leader has the full log: its followers may have returned with logs too short to be elected.
//!
//! Owns whether a leader may send.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use openraft::Instant as _;
use openraft::RaftMetrics;
use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::watch::WatchReceiver;
use smc_host::sync::lock;
use tokio::time::Instant;

use crate::timing::Timing;
use crate::types::{TypeConfig, Vote};

/// After how long without a quorum of answers a leader stops sending, in longest election timeouts. A
/// follower answers when it has synced, so this is also how long the disks of a majority may stall without
/// an election.
const UNANSWERED: u32 = 3;

/// For how long it then sends nothing. An election takes up to four longest timeouts, if the follower with
/// the longest log is the last to stand.
const PAUSE: u32 = 5;

/// For how long it sends again after each pause: there is time to make a connection first.
const RESUMED: u32 = 2;

type Metrics = WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>;

/// When this replica, as a leader, was last answered by a quorum. Cheap to clone; clones share their state.
#[derive(Clone)]
pub(crate) struct CheckQuorum {
    timing: Timing,
    metrics: Arc<OnceLock<Metrics>>,
    /// The vote with which this replica last sent as a leader, and when it began to.
    leading: Arc<Mutex<Option<(Vote, Instant)>>>,
}

impl CheckQuorum {
    pub(crate) fn new(timing: Timing) -> Self {
        Self { timing, metrics: Arc::default(), leading: Arc::default() }
    }

    /// Sets the source of Raft's metrics, once Raft runs.
    pub(crate) fn follow(&self, metrics: Metrics) {
        // Called once; a second call would bring the same metrics.
        let _ = self.metrics.set(metrics);
    }

    /// Whether this replica, leading with `vote`, must hold back AppendEntries now.
    pub(crate) fn is_lost(&self, vote: Vote) -> bool {
        let leading = {
            // It is replaced whole, so a panic elsewhere leaves nothing half done.
            let mut leading = lock(&self.leading);
            match &*leading {
                Some((before, began)) if *before == vote => began.elapsed(),
                _ => leading.insert((vote, Instant::now())).1.elapsed(),
            }
        };
        // Before Raft runs there is no leader.
        let Some(metrics) = self.metrics.get() else { return false };
        let metrics = metrics.borrow_watched();
        if metrics.membership_config.membership().voter_ids().all(|voter| voter == vote.leader_id.node_id) {
            // It is a quorum by itself, and sends nothing to itself.
            return false;
        }
        let acked = metrics.last_quorum_acked;
        is_held_back(acked.map_or(leading, |acked| acked.into_inner().elapsed().min(leading)), &self.timing)
    }
}

/// Whether AppendEntries must be held back, given the time since a quorum last answered.
fn is_held_back(unanswered: Duration, timing: &Timing) -> bool {
    let Some(since) = unanswered.checked_sub(timing.election.1 * UNANSWERED) else { return false };
    let round = timing.election.1 * (PAUSE + RESUMED);
    since.as_nanos() % round.as_nanos().max(1) < (timing.election.1 * PAUSE).as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_leader_is_held_back_except_for_a_while_now_and_then() {
        let timing = Timing {
            heartbeat: Duration::from_millis(50),
            election: (Duration::ZERO, Duration::from_millis(400)),
        };
        for (unanswered, held_back) in [
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
            assert_eq!(
                is_held_back(Duration::from_millis(unanswered), &timing),
                held_back,
                "{unanswered} ms"
            );
        }
    }
}
