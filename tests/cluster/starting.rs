//! A replica that starts while its group loses its majority: it waits, and a signal ends it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::relay::Link;
use crate::replicas::{Random, Replicas, eventually};

/// How often a replica starts.
const STARTS: u64 = 6;

/// The longest that an end may take, as the flag `--drain-limit` says: its 15 seconds and 15 more.
const END: Duration = Duration::from_secs(30);

/// Cuts a replica off at a moment of its start: mostly while its certificates are issued, sometimes before
/// or after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_loses_its_majority_goes_on_waiting_and_ends_at_a_signal() {
    let seed = Random::seed();
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    let replicas = Replicas::start(3, random.below(1 << 16)).await;
    for start in 0..STARTS {
        replicas.terminate(2);
        replicas.ended(2, END).await;
        replicas.run(2);
        eventually("a replica whose group is ready", async || {
            let waits_for = replicas.status_at_start(2).await?.waits_for;
            (waits_for.is_empty() || waits_for == "what its group committed").then_some(())
        })
        .await;
        sleep(Duration::from_millis(random.below(30))).await;
        for other in 0..2 {
            replicas.link(2, other, Link::Silent);
        }
        // Longer than a proposal waits for its commit, now and then.
        sleep(Duration::from_secs(if start == 0 { 12 } else { random.below(3) })).await;
        if start % 2 == 1 {
            replicas.terminate(2);
            replicas.ended(2, END).await;
            replicas.run(2);
        }
        for other in 0..2 {
            replicas.link(2, other, Link::Up);
        }
        replicas.ready(2).await;
    }
    replicas.passed.store(true, Ordering::Relaxed);
}
