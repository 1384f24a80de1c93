//! Hostile proxies on every replica, all with one certificate, at full tilt: the group keeps its leader and
//! goes on to commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Extension;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use smc_mesh::resource::ResourceType;
use smc_testkit::ads::{Credentials, DeltaStream, ack, subscribe};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;

use crate::replicas::{Random, Replicas, eventually};
use crate::{REPLICAS, proxy};

/// How long the attack lasts: many times the silence after which an election begins.
const ATTACK: Duration = Duration::from_secs(15);

/// How long a commit may take meanwhile. It is milliseconds on a quiet machine; before, none succeeded in
/// 22 s.
const COMMIT: Duration = Duration::from_secs(5);

/// The names that a hostile proxy subscribes to, of endpoints that do not exist.
const NAMES: usize = 49_000;

/// What the hostile clients got done, so that the test shows that there was an attack.
#[derive(Default)]
struct Done {
    wildcards: AtomicU64,
    large: AtomicU64,
    streams: AtomicU64,
}

/// Holds tens of thousands of names, and makes the session look at all of them as often as it can.
async fn walk(channel: Channel, own: &Credentials, done: &Done) -> Option<()> {
    let names = (0..NAMES).map(|i| format!("unknown-{i:06}")).collect();
    let first = DeltaDiscoveryRequest {
        resource_names_subscribe: names,
        ..subscribe(own, ResourceType::Endpoint, &[])
    };
    let mut stream = DeltaStream::open(channel, [first]).await.ok()?;
    let endpoints = |subscribed: &[&str], unsubscribed: &[&str]| DeltaDiscoveryRequest {
        resource_names_unsubscribe: unsubscribed.iter().map(ToString::to_string).collect(),
        ..subscribe(own, ResourceType::Endpoint, subscribed)
    };
    for number in 0_u64.. {
        while let Ok(response) = timeout(Duration::ZERO, stream.next()).await {
            stream.send(ack(&response.ok()??)).await.ok()?;
        }
        stream.send(endpoints(&["*"], &[])).await.ok()?;
        if number % 4 == 0 {
            stream.send(endpoints(&[], &["*"])).await.ok()?;
        }
        done.wildcards.fetch_add(1, Ordering::Relaxed);
    }
    None
}

/// Sends requests that are small on the wire and large in the generated messages.
async fn inflate(channel: Channel, own: &Credentials, done: &Done) -> Option<()> {
    let mut request = subscribe(own, ResourceType::Cluster, &[]);
    request.node.as_mut()?.extensions = vec![Extension::default(); 1 << 20];
    let mut stream = DeltaStream::open(channel, [request]).await.ok()?;
    done.large.fetch_add(1, Ordering::Relaxed);
    while let Ok(Some(_)) = stream.next().await {}
    Some(())
}

/// Opens streams and drops them.
async fn flicker(channel: Channel, done: &Done) -> Option<()> {
    loop {
        DeltaStream::open(channel.clone(), []).await.ok()?;
        done.streams.fetch_add(1, Ordering::Relaxed);
    }
}

/// Attacks a replica until `over`. A stream or connection that is ended is opened again.
async fn attack(address: String, own: Credentials, kind: u64, done: Arc<Done>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        if let Ok(channel) = own.connect(&address).await {
            let attacking = async {
                match kind {
                    0 => walk(channel, &own, &done).await,
                    1 => inflate(channel, &own, &done).await,
                    _ => flicker(channel, &done).await,
                }
            };
            let _ = timeout(ATTACK, attacking).await;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_proxies_cost_the_group_no_leader_and_no_commit() {
    let replicas = Replicas::start(REPLICAS, Random::seed() & 0xffff).await;
    let issued = eventually("a certificate", async || replicas.bootstrap(0, 0).await).await;
    assert!(replicas.is_served(0, &issued.bootstrap).await, "claimed");
    let own = Credentials::read(&issued.bootstrap.to_string()).unwrap();
    let honest = eventually("a certificate", async || replicas.bootstrap(1, 1).await).await;
    let before = replicas.terms().await;
    let (done, over) = (Arc::new(Done::default()), Arc::new(AtomicBool::new(false)));
    let mut attackers = JoinSet::new();
    for replica in 0..REPLICAS {
        for kind in 0..3 {
            let (done, over) = (Arc::clone(&done), Arc::clone(&over));
            attackers.spawn(attack(replicas.xds_address(replica), own.clone(), kind, done, over));
        }
    }
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
    over.store(true, Ordering::Relaxed);
    assert_eq!(replicas.terms().await, before, "an election, with the longest commit {longest:?}");
    attackers.shutdown().await;
    let counts = [&done.wildcards, &done.large, &done.streams].map(|count| count.load(Ordering::Relaxed));
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}: no attack");
    replicas.passed.store(true, Ordering::Relaxed);
}
