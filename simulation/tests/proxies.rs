//! The proxies of a story in which replicas come and go: its beginning, what must hold after each step of it,
//! and its end.

use std::collections::BTreeSet;

use smc_simulation::envoy::Envoy;
use smc_simulation::oracle::{SOON, all_have_certificate, eventually, nothing_is_lost};
use smc_simulation::replica::Replica;
use smc_simulation::trace::Trace;
use smc_simulation::workload;
use smc_simulation::world::{World, network, step};
use turmoil::Sim;

use crate::failing::{HEALED, SETTLED};
use crate::seeds::PrintOnPanic;

/// The serial numbers of the certificates that a replica has issued.
pub(crate) type Acknowledged = BTreeSet<String>;

/// Waits until the initial replicas serve all proxies but the last one.
pub(crate) async fn begin(world: &World) -> (&[Envoy], Acknowledged) {
    let World { replicas, .. } = world;
    eventually(SOON, "every replica serves", || replicas.iter().all(Replica::serves)).await;
    let issued = || all_have_certificate(replicas, "buyer");
    eventually(SOON, "the buyers have a certificate everywhere", issued).await;
    let mut acknowledged = Acknowledged::new();
    let (_, proxies) = split(world);
    for (n, envoy) in proxies.iter().enumerate() {
        let issued = workload::bootstrap(&replicas[n % 3], &format!("shop/buyer-{n}")).await;
        acknowledged.insert(issued.serial);
        envoy.boot(issued.bootstrap);
    }
    eventually(SOON, "every proxy is served", || proxies.iter().all(Envoy::is_served)).await;
    (proxies, acknowledged)
}

/// The last proxy connects when all is over, and holds nothing before.
fn split(world: &World) -> (&Envoy, &[Envoy]) {
    world.buyers.split_last().expect("buyers")
}

/// Runs the story in a world of this seed. After each step, what no proxy may ever see has not been seen.
pub(crate) fn run<F: Future<Output = turmoil::Result> + 'static>(
    seed: u64,
    trace: &Trace,
    world: impl FnOnce(&mut Sim<'_>, u64, &Trace) -> World,
    story: impl FnOnce(World) -> F,
) {
    let mut sim = network(seed);
    let world = world(&mut sim, seed, trace);
    let proxies = world.buyers.clone();
    sim.client("operator", story(world));
    let print_on_panic = PrintOnPanic { seed, trace: trace.clone() };
    while !step(&mut sim).unwrap() {
        for proxy in &proxies {
            assert_eq!(proxy.wronged(), None);
        }
    }
    drop(print_on_panic);
}

/// All initial replicas serve, and all proxies are with their owners.
pub(crate) async fn settled(world: &World, proxies: &[Envoy]) {
    let replicas = &world.replicas;
    eventually(HEALED, "every replica serves", || replicas.iter().all(Replica::serves)).await;
    eventually(HEALED, "every proxy is served", || proxies.iter().all(Envoy::is_served)).await;
    let owned = || proxies.iter().all(|envoy| envoy.is_served_by_owner(replicas));
    eventually(SETTLED, "every proxy is served by its owner", owned).await;
}

/// Every proxy holds what a new one is sent, with the service that was declared last, and no certificate is
/// lost.
pub(crate) async fn conclude(world: &World, mut acknowledged: Acknowledged, last: &str) {
    let World { trace, replicas, .. } = world;
    let (witness, proxies) = split(world);
    let issued = workload::bootstrap(&replicas[0], &format!("shop/buyer-{}", proxies.len())).await;
    acknowledged.insert(issued.serial);
    witness.boot(issued.bootstrap);
    eventually(SOON, "a new proxy has all services", || witness.holds_cluster(last)).await;
    eventually(SOON, "every proxy holds what a new one is sent", || {
        let expected = witness.received().contents();
        proxies.iter().all(|buyer| buyer.received().contents() == expected)
    })
    .await;
    nothing_is_lost(replicas, &acknowledged, trace).await;
}
