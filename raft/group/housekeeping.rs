//! What a replica does once a second: a snapshot when the log has grown enough, and, on the leader, the end
//! of a membership change that was left half done.
//!
//! Owns when these happen. [`crate::state::machine`] makes snapshots, [`crate::membership`] changes the
//! membership.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use crate::membership;
use crate::state::machine::{LogGrowth, Raft};
use crate::types::LogId;

/// The least log growth, in bytes, that is worth a snapshot: what a small mesh writes in months.
const SNAPSHOT_AFTER: u64 = 1024 * 1024;

/// How often both are checked. Under the greatest load the log grows by some megabytes meanwhile.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// For how many checks a membership change may stay half done before the leader finishes it. The replica
/// that began it needs milliseconds, unless it is gone.
const UNFINISHED_CHECKS: u32 = 5;

/// Runs until Raft stops. `jitter` spreads the snapshots of the replicas (see [`LogGrowth::is_due`]).
pub(crate) async fn housekeeping(raft: Raft, log_growth: LogGrowth, mut jitter: SmallRng) {
    let mut ticks = interval(HOUSEKEEPING);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut put_off = jitter.next_u64();
    let mut unfinished: Option<(LogId, u32)> = None;
    loop {
        ticks.tick().await;
        unfinished = membership::unfinished(&raft).map(|change| match unfinished {
            Some((before, checks)) if before == change => (change, checks + 1),
            _ => (change, 1),
        });
        if unfinished.is_some_and(|(_, checks)| checks > UNFINISHED_CHECKS) {
            match timeout(HOUSEKEEPING, membership::finish(&raft)).await {
                Ok(Ok(())) => info!("finished an interrupted membership change"),
                Ok(Err(error)) => {
                    warn!(%error, "cannot finish an interrupted membership change yet");
                }
                Err(_) => {}
            }
        }
        if log_growth.is_due(SNAPSHOT_AFTER, put_off) {
            put_off = jitter.next_u64();
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
    }
}
