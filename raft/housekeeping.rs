//! What a replica does beside taking proposals, once a second: snapshots when they are worth it, a note of how far the log has
//! come, and the end of a change of the group that nobody else ends.
//!
//! Owns when. What a snapshot holds is [`crate::machine`]'s business, what a change is [`crate::membership`]'s.

use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use crate::disk::Disk;
use crate::machine::{Grown, StateMachine};
use crate::membership;
use crate::runtime::Draw;
use crate::types::{LogId, TypeConfig};

type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// The least length of log, in bytes, that is worth a snapshot: what a small mesh writes in months.
const SNAPSHOT_AFTER: u64 = 1024 * 1024;

/// How often that is looked at, and how far the log has come written down: the log grows by some megabytes
/// meanwhile, under the greatest load.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// For how many looks a change of the group may be half done before the leader finishes it: whoever began it needs some
/// milliseconds, unless it is gone.
const UNFINISHED_LOOKS: u32 = 5;

/// See the module. Ends when Raft does.
pub(crate) async fn housekeeping(raft: Raft, disk: Disk, grown: Grown, draw: Draw) {
    let mut looks = interval(HOUSEKEEPING);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut floor, mut put_off) = (0, draw());
    let mut unfinished: Option<(LogId, u32)> = None;
    loop {
        looks.tick().await;
        let applied = applied(&raft);
        if applied > floor {
            raise_floor(&disk, applied).await;
            floor = applied;
        }
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

/// The last entry that was applied here; 0 if none was.
pub(crate) fn applied(raft: &Raft) -> u64 {
    raft.metrics().borrow_watched().last_applied.map_or(0, |id| id.index)
}

/// Writes down how far the log has come: what was applied is never taken back. A failure shows where everybody looks for it.
pub(crate) async fn raise_floor(disk: &Disk, applied: u64) {
    // What others have synced is applied here before it is synced here.
    if disk.sync().await.is_ok() {
        let set = move |disk: &Disk| disk.database().set_floor(applied).map_err(|error| disk.fail(error));
        let _ = disk.run(set).await;
    }
}
