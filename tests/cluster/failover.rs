//! Real Envoys whose replica ends, is killed, is frozen, or cannot be reached: how long they have no stream.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::replicas::{Random, Replicas, eventually};

/// Envoys: enough for several on each replica.
const ENVOYS: u64 = 9;

/// The longest that an Envoy may be without a stream on a busy machine: an election, and some attempts.
const BOUND: Duration = Duration::from_secs(10);

struct Envoy(Child);

impl Drop for Envoy {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _: std::io::Result<()> = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an Envoy that takes its clusters only: it listens nowhere, so that many run side by side.
fn start(directory: &Path, pod: u64, mut bootstrap: Value) -> Envoy {
    #[expect(clippy::disallowed_methods, reason = "where make put Envoy")]
    let binary = std::env::var_os("SMC_ENVOY").expect("SMC_ENVOY names the Envoy binary (make sets it)");
    bootstrap.as_object_mut().unwrap().remove("admin");
    bootstrap["dynamic_resources"].as_object_mut().unwrap().remove("lds_config");
    let (file, log) =
        (directory.join(format!("envoy-{pod}.json")), directory.join(format!("envoy-{pod}.log")));
    std::fs::write(&file, bootstrap.to_string()).unwrap();
    let output = std::fs::File::create(&log).unwrap();
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(binary)
        .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "error", "-c"])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .expect("setpriv (util-linux) runs");
    Envoy(child)
}

/// The proxies on each replica that is asked, once all Envoys are connected to one of them.
async fn all_on(replicas: &Replicas, asked: &[u64]) -> Vec<(u64, BTreeSet<String>)> {
    eventually("all Envoys", async || {
        let mut found = Vec::new();
        for replica in asked {
            found.push((*replica, replicas.connected(*replica).await));
        }
        let connected: BTreeSet<_> = found.iter().flat_map(|(_, proxies)| proxies).collect();
        (connected.len() as u64 == ENVOYS).then_some(found)
    })
    .await
}

/// The replica with the most Envoys.
async fn busiest(replicas: &Replicas, asked: &[u64]) -> u64 {
    let found = all_on(replicas, asked).await;
    found.into_iter().max_by_key(|(_, proxies)| proxies.len()).unwrap().0
}

/// How long after `fault` all Envoys are on the other replicas.
async fn gap(replicas: &Replicas, lost: u64, fault: impl FnOnce()) -> Duration {
    let others: Vec<_> = (0..replicas.count).filter(|replica| *replica != lost).collect();
    let start = Instant::now();
    fault();
    all_on(replicas, &others).await;
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoys_leave_a_replica_that_ends_is_killed_or_is_frozen() {
    let replicas = Replicas::start(3, Random::seed() & 0xffff).await;
    let mut envoys = Vec::new();
    for pod in 0..ENVOYS {
        let issued = eventually("a bootstrap", async || replicas.bootstrap_of_all(0, pod).await).await;
        envoys.push(start(replicas.directory(), pod, issued.bootstrap));
    }
    let all = [0, 1, 2];
    let is_owned_by_several = |found: &[(u64, BTreeSet<String>)]| {
        found.iter().filter(|(_, proxies)| !proxies.is_empty()).count() > 1
    };
    assert!(is_owned_by_several(&all_on(&replicas, &all).await));

    let victim = busiest(&replicas, &all).await;
    let killed = gap(&replicas, victim, || replicas.kill(victim)).await;
    replicas.run(victim);
    replicas.settle().await;

    let victim = busiest(&replicas, &all).await;
    let frozen = gap(&replicas, victim, || replicas.pause(victim)).await;
    replicas.resume(victim);
    replicas.settle().await;

    let victim = busiest(&replicas, &all).await;
    let ended = gap(&replicas, victim, || replicas.terminate(victim)).await;
    eprintln!("until all are served again: killed {killed:?}, frozen {frozen:?}, ended {ended:?}");

    // Not the goals, which benches measure on a machine that does nothing else. With Envoy's defaults a
    // frozen replica is never left, and with longer ejections a kill took 12 s and a freeze 22 s.
    for gap in [killed, frozen, ended] {
        assert!(gap < BOUND, "{gap:?}");
    }
    replicas.passed.store(true, Ordering::Relaxed);
}
