//! Three `smc controller` processes on loopback that are killed and stopped at random while they issue certificates.
//!
//! The schedule follows from a seed, which is printed: `SMC_SEED=… SMC_ROUNDS=…` runs the same one again, or a longer
//! one (`make soak`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod replicas;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use replicas::{Draw, PODS, REPLICAS, Replicas, eventually};
use smc_proto::admin::v1 as pb;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Who asks for certificates at the same time.
const CLIENTS: u64 = 4;

/// What a run does unless it is told otherwise.
const ROUNDS: u64 = 6;

#[expect(clippy::disallowed_methods, reason = "how a person replays a schedule")]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_whoever_is_killed_or_stopped() {
    let seed = setting("SMC_SEED").unwrap_or_else(Draw::seed);
    let rounds = setting("SMC_ROUNDS").unwrap_or(ROUNDS);
    eprintln!("SMC_SEED={seed} SMC_ROUNDS={rounds}");
    let mut draw = Draw::new(seed);
    let replicas = Arc::new(Replicas::start(draw.below(1 << 16)).await);

    let done = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (replicas, done) = (Arc::clone(&replicas), Arc::clone(&done));
        let mut draw = Draw::new(seed ^ (client + 1));
        clients.spawn(async move {
            let mut acknowledged = BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                let (replica, pod) = (draw.below(REPLICAS), draw.below(PODS));
                match replicas.bootstrap(replica, pod).await {
                    Some(serial) => assert!(acknowledged.insert(serial), "a serial number was used twice"),
                    None => sleep(Duration::from_millis(20)).await,
                }
            }
            acknowledged
        });
    }
    for round in 0..rounds {
        sleep(Duration::from_millis(300 + draw.below(700))).await;
        let leader = replicas.leader().await;
        // Every other time the leader, whoever that is now.
        let victim = if round % 2 == 0 { leader } else { draw.below(REPLICAS) };
        if draw.below(3) == 0 {
            eprintln!("round {round}: replica {victim} is stopped");
            replicas.pause(victim, Duration::from_millis(200 + draw.below(1500))).await;
        } else {
            eprintln!("round {round}: replica {victim} is killed");
            replicas.kill(victim);
            sleep(Duration::from_millis(draw.below(800))).await;
            replicas.run(victim);
        }
        replicas.settle().await;
    }
    done.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeSet::new();
    while let Some(client) = clients.join_next().await {
        for serial in client.unwrap() {
            assert!(acknowledged.insert(serial), "two were given the same serial number");
        }
    }
    assert!(acknowledged.len() as u64 > rounds, "only {} certificates were issued", acknowledged.len());
    eprintln!("{} certificates were acknowledged", acknowledged.len());

    let hash = eventually("equal states", async || replicas.common_state_hash().await).await;
    assert!(!hash.is_empty());
    let mut roots = BTreeSet::new();
    for replica in 0..REPLICAS {
        let known = replicas.serials(replica).await;
        let lost: Vec<_> = acknowledged.difference(&known).collect();
        assert!(lost.is_empty(), "replica {replica} does not have {} of them: {lost:?}", lost.len());
        let status: pb::GetCaStatusResponse = replicas.ca_status(replica).await.unwrap();
        roots.extend(status.roots.into_iter().map(|root| root.serial));
    }
    assert_eq!(roots.len(), 1, "there is more than one root");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lost_its_disk_comes_back_and_leadership_is_handed_over() {
    let replicas = Replicas::start(Draw::seed() & 0xffff).await;
    let serial = eventually("a certificate", async || replicas.bootstrap(1, 0).await).await;
    replicas.kill(0);
    replicas.lose_disk(0);
    replicas.run(0);
    replicas.settle().await;
    eventually("what it lost", async || replicas.serials(0).await.contains(&serial).then_some(())).await;
    let leader = replicas.leader().await;
    let next = (leader + 1) % REPLICAS;
    let moved = eventually("a transfer", async || replicas.transfer(leader, next).await).await;
    assert_eq!(moved, next);
    eventually("a certificate", async || replicas.bootstrap(leader, 1).await).await;
}
