//! Replicas read the mesh from API servers that are away, lag or forget, while replicas end and start again:
//! no proxy loses an update, is sent what it holds, or goes back in time.

use std::time::Duration;

use smc_simulation::api_server::ApiServer;
use smc_simulation::envoy::Envoy;
use smc_simulation::oracle::{SOON, eventually};
use smc_simulation::replica::host;
use smc_simulation::trace::Trace;
use smc_simulation::world::World;
use smc_types::object_ref::Kind;
use tokio::time::sleep;

use crate::failing::SETTLED;
use crate::proxies::{self, begin, conclude, settled};
use crate::seeds::{repeated, seeds};

/// How long an API server is in trouble: less than the ten seconds for which a replica that lags behind a
/// proxy holds back what it would send.
const TROUBLE: Duration = Duration::from_secs(7);

/// How long a source waits before it writes the last known mesh once more, and a little.
const SAVED: Duration = Duration::from_secs(7);

/// Longer than a proxy is held back by a replica that reads its API server.
const HELD_BACK: Duration = Duration::from_secs(15);

/// What happens to API servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// That of one replica refuses connections.
    Away,
    /// That of one replica has not read the latest changes.
    Lags,
    /// That of one replica has not read the latest changes of one kind.
    LagsInOneKind,
    /// All forget the changes, and break their connections.
    Forgets,
}

#[test]
fn replicas_that_watch_an_api_server_are_restarted_in_turn() {
    run_all(Trouble::None);
}

#[test]
fn an_api_server_that_is_away_takes_no_proxy_back() {
    run_all(Trouble::Away);
}

#[test]
fn an_api_server_that_lags_takes_no_proxy_back() {
    run_all(Trouble::Lags);
}

#[test]
fn an_api_server_that_lags_in_one_kind_takes_no_proxy_back() {
    run_all(Trouble::LagsInOneKind);
}

#[test]
fn an_etcd_that_is_put_back_is_followed_by_every_proxy() {
    for seed in seeds().step_by(4) {
        proxies::run(seed, &Trace::default(), World::with_kubernetes, put_back);
    }
}

#[test]
fn api_servers_that_forget_lose_no_change() {
    run_all(Trouble::Forgets);
}

#[test]
fn a_replica_that_starts_without_its_api_server_serves_what_it_knew() {
    for seed in seeds().step_by(4) {
        proxies::run(seed, &Trace::default(), World::with_kubernetes, |world| starts_without(world, seed));
    }
}

#[test]
fn a_run_with_api_servers_repeats_with_its_seed() {
    for seed in seeds().step_by(10) {
        repeated(seed, |seed| {
            let trace = Trace::default();
            proxies::run(seed, &trace, World::with_kubernetes, |world| story(world, Trouble::Away, seed));
            trace.lines()
        });
    }
}

#[test]
fn a_replica_that_starts_with_less_than_others_have_read_is_not_ready() {
    for seed in seeds().step_by(4) {
        proxies::run(seed, &Trace::default(), World::with_kubernetes, |world| starts_older(world, seed));
    }
}

/// Runs the story with every fourth seed: there are four of it.
fn run_all(trouble: Trouble) {
    for seed in seeds().step_by(4) {
        proxies::run(seed, &Trace::default(), World::with_kubernetes, |world| story(world, trouble, seed));
    }
}

async fn story(world: World, trouble: Trouble, seed: u64) -> turmoil::Result {
    let World { trace, replicas, api_servers, .. } = &world;
    let (proxies, acknowledged) = begin(&world).await;
    for round in 0..3 {
        let moving = usize::try_from((seed / 4 + round) % 3)?;
        let troubled = &api_servers[(moving + 1) % 3];
        world.declare_service(&format!("before-{round}"));
        trace.note("operator", format!("{trouble:?}: the API server of replica {}", (moving + 1) % 3));
        begin_trouble(&world, troubled, trouble);
        world.declare_service(&format!("within-{round}"));
        if round > 0 {
            world.delete_service(&format!("before-{}", round - 1));
        }
        // A proxy of a replica that reads the change has it, and goes to one that may not have read it.
        let holds = |envoy: &Envoy| envoy.holds_cluster(&format!("within-{round}"));
        let of_moving = || proxies.iter().filter(|envoy| envoy.is_served_by(&replicas[moving]));
        eventually(SOON, "the proxies of a replica have the change", || of_moving().all(holds)).await;
        replicas[moving].drain();
        sleep(TROUBLE / 2).await;
        replicas[moving].start();
        world.declare_service(&format!("after-{round}"));
        sleep(TROUBLE / 2).await;
        api_servers.iter().for_each(ApiServer::recover);
        settled(&world, proxies).await;
    }
    conclude(&world, acknowledged, "after-2").await;
    Ok(())
}

fn begin_trouble(world: &World, troubled: &ApiServer, trouble: Trouble) {
    match trouble {
        Trouble::None => {}
        Trouble::Away => troubled.stop(),
        Trouble::Lags => troubled.lag(Kind::ALL),
        Trouble::LagsInOneKind => troubled.lag(&[Kind::EndpointSlice]),
        Trouble::Forgets => world.compact(),
    }
}

/// What was made since the copy is gone soon, and what stayed is never missing.
async fn put_back(world: World) -> turmoil::Result {
    let (proxies, acknowledged) = begin(&world).await;
    let hold = |name: &'static str| move || proxies.iter().all(|envoy| envoy.holds_cluster(name));
    world.declare_service("kept");
    eventually(SOON, "every proxy has what is copied", hold("kept")).await;
    world.declare_service("made");
    eventually(SOON, "every proxy has what was made since", hold("made")).await;
    // The rest of it arrives with the cluster.
    sleep(Duration::from_secs(1)).await;
    // A Service and its EndpointSlice.
    world.put_back(2);
    eventually(SOON, "no proxy has what was made since", || {
        assert!(hold("kept")(), "what stayed is missing");
        !proxies.iter().any(|envoy| envoy.holds_cluster("made"))
    })
    .await;
    world.declare_service("after");
    conclude(&world, acknowledged, "after").await;
    Ok(())
}

/// A replica ends and starts while its API server is away.
async fn starts_without(world: World, seed: u64) -> turmoil::Result {
    let World { replicas, api_servers, .. } = &world;
    let (proxies, acknowledged) = begin(&world).await;
    let moving = usize::try_from(seed / 4 % 3)?;
    world.declare_service("before");
    sleep(SAVED).await;
    api_servers[moving].stop();
    replicas[moving].kill();
    sleep(Duration::from_secs(1)).await;
    replicas[moving].start();
    // It knows as much as the others, and takes its proxies.
    let serves = || proxies.iter().any(|envoy| envoy.is_served_by(&replicas[moving]));
    eventually(SETTLED, "it serves proxies", serves).await;
    settled(&world, proxies).await;
    api_servers[moving].recover();
    world.declare_service("after");
    conclude(&world, acknowledged, "after").await;
    Ok(())
}

/// A replica starts with an older mesh than its proxies have from others, and without its API server.
async fn starts_older(world: World, seed: u64) -> turmoil::Result {
    let World { replicas, api_servers, .. } = &world;
    let (proxies, acknowledged) = begin(&world).await;
    let moving = usize::try_from(seed / 4 % 3)?;
    world.declare_service("before");
    sleep(SAVED).await;
    api_servers[moving].stop();
    replicas[moving].kill();
    let has = |name: &'static str| move || proxies.iter().all(|envoy| envoy.holds_cluster(name));
    world.declare_service("missed");
    eventually(SOON, "every proxy has what the replica does not know", has("missed")).await;
    replicas[moving].start();
    sleep(HELD_BACK).await;
    let serves = || proxies.iter().any(|envoy| envoy.is_served_by(&replicas[moving]));
    assert!(!serves(), "the replica is ready with less than the others have read");
    let others = || replicas.iter().filter(|replica| replica.id() != replicas[moving].id());
    let owned = || proxies.iter().all(|envoy| envoy.is_served_by_owner(others()));
    eventually(SETTLED, "the others serve its proxies", owned).await;
    // Proxies that reach no other come all the same, and keep what they have.
    let links = || others().flat_map(|other| proxies.iter().map(|envoy| (envoy.name(), host(other.id()))));
    links().for_each(|(envoy, other)| turmoil::partition(envoy, other));
    eventually(SETTLED, "proxies connect to it", serves).await;
    sleep(HELD_BACK).await;
    assert!(has("missed")(), "a proxy was taken back to the last known mesh");
    links().for_each(|(envoy, other)| turmoil::repair(envoy, other));
    api_servers[moving].recover();
    settled(&world, proxies).await;
    world.declare_service("after");
    conclude(&world, acknowledged, "after").await;
    Ok(())
}
