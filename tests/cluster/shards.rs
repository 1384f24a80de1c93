//! The phases of real replicas, and what `smc cluster shards` shows.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::replicas::{Random, Replicas, eventually};

/// The epoch, and the phase of each replica, as one replica tells them.
async fn phases(replicas: &Replicas, asked: u64) -> Option<(u64, BTreeMap<u64, String>)> {
    let printed = replicas.ask(asked, &["shards", "-o", "json"]).await.ok()?;
    let answer: Value = serde_json::from_str(&printed).unwrap();
    let shards = answer["shards"].as_array().unwrap().iter();
    let phase =
        |shard: &Value| (shard["replica"].as_u64().unwrap(), shard["phase"].as_str().unwrap().to_owned());
    Some((answer["epoch"].as_u64().unwrap(), shards.map(phase).collect()))
}

/// Waits until each of `asked` tells these phases, and returns the epoch, which is the same on all.
async fn agreed(replicas: &Replicas, asked: &[u64], wanted: &[(u64, &str)]) -> u64 {
    let wanted: BTreeMap<_, _> = wanted.iter().map(|(id, phase)| (*id, (*phase).to_owned())).collect();
    eventually(&format!("{wanted:?}"), async || {
        let mut epochs = Vec::new();
        for replica in asked {
            let (epoch, told) = phases(replicas, *replica).await?;
            epochs.push(Some(epoch).filter(|_| told == wanted)?);
        }
        epochs.windows(2).all(|pair| pair[0] == pair[1]).then(|| epochs[0])
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_is_down_joins_again_and_is_forgotten_when_it_leaves() {
    let replicas = Replicas::start(3, Random::seed() & 0xffff).await;
    let all = [(0, "ready"), (1, "ready"), (2, "ready")];
    let ready = agreed(&replicas, &[0, 1, 2], &all).await;
    let status = replicas.ask(0, &["status"]).await.unwrap();
    assert!(status.contains(&format!("shard epoch {ready}\n")), "{status}");

    // Whether it leads or not.
    replicas.kill(1);
    let lost = agreed(&replicas, &[0, 2], &[(0, "ready"), (1, "down"), (2, "ready")]).await;
    assert_eq!(lost, ready + 1);
    let shown = replicas.ask(0, &["shards"]).await.unwrap();
    assert!(shown.contains("replica 1 does not answer"), "{shown}");
    replicas.run(1);
    let back = agreed(&replicas, &[0, 1, 2], &all).await;
    assert_eq!(back, lost + 2, "it joins, and is ready");

    // A frozen one sees that it was called down.
    replicas.pause(2);
    agreed(&replicas, &[0, 1], &[(0, "ready"), (1, "ready"), (2, "down")]).await;
    replicas.resume(2);
    agreed(&replicas, &[0, 1, 2], &all).await;

    eventually("a removal", async || replicas.ask(0, &["remove", "1"]).await.ok()).await;
    agreed(&replicas, &[0, 2], &[(0, "ready"), (2, "ready")]).await;
    replicas.passed.store(true, Ordering::Relaxed);
}
