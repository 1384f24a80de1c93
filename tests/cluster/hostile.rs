//! Hostile proxies on every replica, all with one certificate, at full tilt: the group keeps its leader and
//! goes on to commit.

use std::sync::atomic::Ordering;
use std::time::Duration;

use smc_testkit::ads::Credentials;
use smc_testkit::hostile::{Done, attack};
use tokio::time::{Instant, sleep, timeout};

use crate::replicas::{Random, Replicas, eventually};
use crate::{REPLICAS, proxy};

/// How long the attack lasts: many times the silence after which an election begins.
const ATTACK: Duration = Duration::from_secs(15);

/// How long a commit may take meanwhile. It is milliseconds on a quiet machine; before, none succeeded in
/// 22 s.
const COMMIT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_proxies_cost_the_group_no_leader_and_no_commit() {
    let replicas = Replicas::start(REPLICAS, Random::seed() & 0xffff).await;
    let issued = eventually("a certificate", async || replicas.bootstrap(0, 0).await).await;
    assert!(replicas.is_served(0, &issued.bootstrap).await, "claimed");
    let own = Credentials::read(&issued.bootstrap.to_string()).unwrap();
    let honest = eventually("a certificate", async || replicas.bootstrap(1, 1).await).await;
    let before = replicas.terms().await;
    let addresses: Vec<String> = (0..REPLICAS).map(|replica| replicas.xds_address(replica)).collect();
    let done = Done::default();
    let mut attackers = attack(&addresses, &own, &done);
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    for pod in 2.. {
        let asked = Instant::now();
        let issued = timeout(COMMIT, replicas.bootstrap(pod % REPLICAS, pod)).await;
        assert!(issued.ok().flatten().is_some(), "nothing committed within {COMMIT:?}");
        longest = longest.max(asked.elapsed());
        assert!(proxy::is_served(&replicas.xds_address(pod % REPLICAS), &honest.bootstrap).await);
        if begun.elapsed() > ATTACK {
            break;
        }
        sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(replicas.terms().await, before, "an election, with the longest commit {longest:?}");
    attackers.shutdown().await;
    let counts = done.counts();
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}: no attack");
    replicas.passed.store(true, Ordering::Relaxed);
}
