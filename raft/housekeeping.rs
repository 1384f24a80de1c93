//! What a replica does beside taking proposals, once a second: snapshots when they are worth it, and the end of a change of
//! the group that nobody else ends.
//!
//! Owns when. What a snapshot holds is [`crate::machine`]'s business, what a change is [`crate::membership`]'s.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use crate::machine::{Grown, StateMachine};
use crate::membership;
use crate::runtime::Draw;
use crate::types::{LogId, TypeConfig};

type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// The least length of log, in bytes, that is worth a snapshot: what a small mesh writes in months.
const SNAPSHOT_AFTER: u64 = 1024 * 1024;

/// How often that is looked at: the log grows by some megabytes meanwhile, under the greatest load.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// For how many looks a change of the group may be half done before the leader finishes it: whoever began it needs some
/// milliseconds, unless it is gone.
const UNFINISHED_LOOKS: u32 = 5;

/// See the module. Ends when Raft does.
pub(crate) async fn housekeeping(raft: Raft, grown: Grown, draw: Draw) {
    let mut looks = interval(HOUSEKEEPING);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut put_off = draw();
    let mut unfinished: Option<(LogId, u32)> = None;
    loop {
        looks.tick().await;
        unfinished = membership::unfinished(&raft).map(|change| match unfinished {
            Some((before, looks)) if before == change => (change, looks + 1),
            _ => (change, 1),
        });
        if unfinished.is_some_and(|(_, looks)| looks > UNFINISHED_LOOKS) {
            match timeout(HOUSEKEEPING, membership::finish(&raft)).await {
                Ok(Ok(())) => info!("a change of the group that was cut short is finished"),
                Ok(Err(error)) => {
                    warn!(%error, "a change of the group was cut short and cannot be finished yet");
                }
                Err(_) => {}
            }
        }
        if grown.is_due(SNAPSHOT_AFTER, put_off) {
            put_off = draw();
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
    }
}
