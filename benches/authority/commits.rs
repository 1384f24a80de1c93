//! The latency of single commits, and of the disk's own sync for comparison.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use smc_authority::ledger::Command;
use smc_benches::{Result, percentile_ms};
use smc_raft::ReplicatedLedger;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::trio::{Trio, record};

/// How many of one kind are measured in a row. The kinds alternate, so that noise affects all of them.
const TURN: usize = 20;

/// Bytes that RocksDB and Raft add to a command in the log.
const OVERHEAD: usize = 100;

pub(crate) async fn measure(count: usize) -> Result<Value> {
    let trio = Trio::start().await?;
    let leader = trio.leader().await?;
    let mut bytes = 0;
    let (mut at_leader, mut at_follower, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    let mut n = 0;
    while at_leader.len() < count {
        for (replica, latencies) in [(leader, &mut at_leader), ((leader + 1) % 3, &mut at_follower)] {
            for _ in 0..TURN.min(count) {
                let command: Command = record(&trio.groups[replica], n)?;
                n += 1;
                bytes = serde_json::to_vec(&command)?.len();
                let start = Instant::now();
                let outcomes = trio.groups[replica].propose(vec![command]).await?;
                latencies.push(start.elapsed());
                for outcome in outcomes {
                    outcome?;
                }
            }
        }
        let directory = trio.directory.path().to_owned();
        let turn = spawn_blocking(move || sync_alone(&directory, bytes + OVERHEAD, TURN.min(count)));
        syncs.extend(turn.await??);
    }
    trio.stop().await?;
    let ratio = |percent| percentile_ms(&at_leader, percent) / percentile_ms(&syncs, percent);
    Ok(json!({
        "commits": at_leader.len(),
        "command_bytes": bytes,
        "commit_p50_ms": percentile_ms(&at_leader, 50),
        "commit_p99_ms": percentile_ms(&at_leader, 99),
        "commit_at_follower_p50_ms": percentile_ms(&at_follower, 50),
        "commit_at_follower_p99_ms": percentile_ms(&at_follower, 99),
        "fdatasync_p50_ms": percentile_ms(&syncs, 50),
        "fdatasync_p99_ms": percentile_ms(&syncs, 99),
        "commit_per_fdatasync_p50": ratio(50),
        "commit_per_fdatasync_p99": ratio(99),
    }))
}

/// Appends of `bytes` to a file, each with its fdatasync.
fn sync_alone(directory: &Path, bytes: usize, count: usize) -> Result<Vec<Duration>> {
    let mut file = File::options().create(true).append(true).open(directory.join("fdatasync"))?;
    let entry = vec![0xa5; bytes];
    let mut latencies = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        file.write_all(&entry)?;
        file.sync_data()?;
        latencies.push(start.elapsed());
    }
    Ok(latencies)
}
