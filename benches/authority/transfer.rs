//! Planned transfers of leadership under load: the longest time without an acknowledgement.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use smc_benches::{Result, percentile_ms};
use smc_host::sync::lock;
use smc_raft::ReplicatedLedger;
use smc_types::ids::ReplicaId;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::trio::{Trio, record};

/// Concurrent proposers, distributed over the replicas; each commits one command after the other.
const PROPOSERS: usize = 12;

/// Undisturbed load before and after each transfer.
const AROUND: Duration = Duration::from_millis(400);

pub(crate) async fn measure(transfers: usize) -> Result<Value> {
    let trio = Trio::start().await?;
    let acknowledged: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let stopping = CancellationToken::new();
    let mut proposers = JoinSet::new();
    for proposer in 0..PROPOSERS {
        let group = Arc::clone(&trio.groups[proposer % 3]);
        let (acknowledged, stopping) = (Arc::clone(&acknowledged), stopping.clone());
        proposers.spawn(async move {
            let mut n = proposer;
            while !stopping.is_cancelled() {
                for outcome in group.propose(vec![record(&group, n)?]).await? {
                    outcome?;
                }
                lock(&acknowledged).push(Instant::now());
                n += PROPOSERS;
            }
            Result::Ok(())
        });
    }
    let mut spans = Vec::new();
    let mut calls = Vec::new();
    let mut quiet = Vec::new();
    for _ in 0..transfers {
        let leader = trio.leader().await?;
        let begun = Instant::now();
        sleep(AROUND).await;
        let start = Instant::now();
        let next = ReplicaId(u64::try_from((leader + 1) % 3)?);
        trio.groups[leader].transfer(next).await?;
        calls.push(start.elapsed());
        sleep(AROUND).await;
        spans.push((start, Instant::now()));
        quiet.push((begun, start));
    }
    stopping.cancel();
    while let Some(proposer) = proposers.join_next().await {
        proposer??;
    }
    trio.stop().await?;
    let times = lock(&acknowledged).clone();
    let gaps = |spans: &[(Instant, Instant)]| -> Vec<Duration> {
        spans.iter().map(|(from, to)| longest_gap(&times, *from, *to)).collect()
    };
    let (stalls, quiet) = (gaps(&spans), gaps(&quiet));
    Ok(json!({
        "transfers": transfers,
        "transfer_stall_ms": percentile_ms(&stalls, 100),
        "transfer_stall_p50_ms": percentile_ms(&stalls, 50),
        "transfer_call_p50_ms": percentile_ms(&calls, 50),
        // The longest gap in an equal time without a transfer.
        "no_transfer_stall_ms": percentile_ms(&quiet, 100),
        "no_transfer_stall_p50_ms": percentile_ms(&quiet, 50),
    }))
}

/// The longest time without an acknowledgement that overlaps with a span.
fn longest_gap(times: &[Instant], from: Instant, to: Instant) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    let gaps = times.windows(2).filter(|gap| gap[1] >= from && gap[0] <= to);
    gaps.map(|gap| gap[1] - gap[0]).max().unwrap_or_default()
}
