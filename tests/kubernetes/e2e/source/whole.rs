//! The first thing that a source says is the whole mesh, at any size of it, and it costs few requests and
//! connections.

use std::time::Duration;

use smc_kubernetes::client::connect;
use smc_test_kubernetes::Cluster;
use smc_testkit::relay::Relay;
use smc_testkit::setting::setting;
use smc_types::object_ref::Kind;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::shared;

use super::every_kind::{object, reference};
use super::world::World;
use super::{Gate, Watcher, alone, kubectl};

/// The sizes of the world, in namespaces, and how often a source starts over each. Half of the starts
/// have the directory of the source before.
const SIZES: [(usize, usize); 4] = [(1, 2), (3, 4), (10, 6), (50, 10)];

/// What a start may cost, whatever the number of namespaces: one list or the pages of one for each kind, one
/// watch, and the questions what the API server serves.
const MOST_REQUESTS: u64 = 2 * Kind::ALL.len() as u64 + 4;
const MOST_CONNECTIONS: u64 = 4;

/// How long a source is watched after its first batch: what it corrects comes within a second.
const AFTERWARDS: Duration = Duration::from_millis(1500);

/// What a start takes at most where the machine has time for it.
const USUAL: Duration = Duration::from_secs(1);

/// How often versions are asked for.
const VERSIONS_PER_SECOND: u64 = 2;

/// The seed of the world, unless `SMC_SEED` names another.
const SEED: u64 = 28;

/// The way of sources to the API server, where connections are counted.
struct Road {
    relay: Relay,
    directory: TempDir,
}

impl Road {
    async fn to(cluster: &Cluster) -> Self {
        let relay = Relay::start(&cluster.api_address().to_string()).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        cluster.write_kubeconfig(&directory.path().join("kubeconfig"), relay.address.port()).unwrap();
        Self { relay, directory }
    }

    /// A gate over the client of production.
    async fn gate(&self) -> Gate {
        let kubeconfig = self.directory.path().join("kubeconfig").into_os_string();
        Gate::over(connect(Some(&kubeconfig)).await.unwrap())
    }
}

/// What starts cost at most.
#[derive(Debug, Default)]
struct Cost {
    requests: u64,
    connections: u64,
}

/// Starts a source, and asserts that its first batch is the world and that it corrects nothing afterwards.
async fn start(road: &Road, world: &World, directory: TempDir, when: &str) -> (TempDir, Cost) {
    let connected = road.relay.accepted();
    let gate = road.gate().await;
    let began = Instant::now();
    let mut watcher = Watcher::over(gate.clone(), directory);
    watcher.first().await;
    watcher.assert_is(&world.objects, when);
    watcher.watch_for(AFTERWARDS).await;
    watcher.assert_is(&world.objects, when);
    assert!(watcher.removed().is_empty(), "{when}: {:?} were missing for a moment", watcher.removed());
    assert_eq!(watcher.metric("smc_source_synced"), 1, "{when}");
    // On a busy machine a start takes longer, and for so long versions are asked for.
    let longer = began.elapsed().saturating_sub(AFTERWARDS + USUAL);
    let begun_seconds = longer.as_secs() + u64::from(longer.subsec_nanos() > 0);
    let requests = gate.requests().saturating_sub(VERSIONS_PER_SECOND * begun_seconds);
    let cost = Cost { requests, connections: road.relay.accepted() - connected };
    // The next source finds this one's copy.
    watcher.saved("osm-mesh-config").await;
    (watcher.stop().await, cost)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_batch_of_a_source_is_the_whole_mesh() {
    let Some(programs) = shared::api_programs() else { return };
    let cluster = alone(programs, &[]).await;
    let (client, road) = (cluster.client().await.unwrap(), Road::to(&cluster).await);
    let mut world = World::new(&client, setting("SMC_SEED").unwrap_or(SEED)).await;
    for (namespaces, starts) in SIZES {
        world.grow(&client, namespaces).await;
        let (mut directory, mut most) = (tempfile::tempdir().unwrap(), Cost::default());
        for number in 0..starts {
            let when = format!("{namespaces} namespaces, start {number}");
            if number % 2 == 0 {
                directory = tempfile::tempdir().unwrap();
            } else {
                change(&cluster, &mut world, number).await;
            }
            let (left, cost) = start(&road, &world, directory, &when).await;
            directory = left;
            most.requests = most.requests.max(cost.requests);
            most.connections = most.connections.max(cost.connections);
        }
        eprintln!("{namespaces} namespaces, {} objects: {most:?}", world.objects.len());
        assert!(most.requests <= MOST_REQUESTS, "{namespaces} namespaces: {most:?}");
        assert!(most.connections <= MOST_CONNECTIONS, "{namespaces} namespaces: {most:?}");
    }
    cluster.stop().await.unwrap();
}

/// Something changes while no source runs: an account comes, and the one before goes.
async fn change(cluster: &Cluster, world: &mut World, number: usize) {
    let name = |number: usize| format!("late{number}");
    let reference = |number: usize| reference(Kind::ServiceAccount, "n0", &name(number));
    cluster.apply(&object(Kind::ServiceAccount, "n0", &name(number)).to_string()).await.unwrap();
    world.objects.insert(reference(number));
    if let Some(before) = number.checked_sub(2)
        && world.objects.remove(&reference(before))
    {
        kubectl(cluster, &["delete", "-n", "n0", "serviceaccount", &name(before)]).await;
    }
}
