//! Replicas lose their power, one after the other and sometimes all at once, while certificates are
//! requested.

use std::collections::BTreeSet;
use std::time::Duration;

use smc_host::env::fixed::SeededEntropy;
use smc_simulation::faults::Power;
use smc_simulation::oracle::{SOON, all_have_certificate, eventually, nothing_is_lost, root};
use smc_simulation::packets;
use smc_simulation::replica::Replica;
use smc_simulation::trace::Trace;
use smc_simulation::workload;
use smc_simulation::world::{World, network, step};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use turmoil::Sim;

use crate::seeds::{PrintOnPanic, repeated, seeds};

/// How many times power is lost.
const ROUNDS: usize = 8;

/// What the operator does to the power of a host.
enum Order {
    Cut(u64),
    Restore(u64),
}

#[test]
fn a_loss_of_power_loses_nothing_that_was_acknowledged() {
    for seed in seeds() {
        let trace = Trace::default();
        run(seed, &trace, |_| {});
    }
}

#[test]
fn the_same_seed_loses_power_at_the_same_moments() {
    for seed in seeds() {
        repeated(seed, |seed| {
            let trace = Trace::default();
            run(seed, &trace, |sim| packets::note(sim, &trace));
            trace.lines()
        });
    }
}

fn run(seed: u64, trace: &Trace, each_step: impl Fn(&Sim<'_>)) {
    let mut sim = network(seed);
    let world = World::new(&mut sim, seed, trace);
    let print_on_panic = PrintOnPanic { seed, trace: trace.clone() };
    let mut power = Power::new(world.replicas.clone(), trace.clone());
    let (orders, mut ordered) = mpsc::channel(1);
    sim.client("operator", story(world, seed, orders));
    while !step(&mut sim).unwrap() {
        each_step(&sim);
        match ordered.try_recv() {
            Ok(Order::Cut(id)) => {
                if power.cut(&mut sim, id).unwrap() {
                    break;
                }
            }
            Ok(Order::Restore(id)) => power.restore(&mut sim, id),
            Err(_) => {}
        }
    }
    drop(print_on_panic);
}

async fn story(world: World, seed: u64, orders: mpsc::Sender<Order>) -> turmoil::Result {
    let World { replicas, buyers, trace, .. } = &world;
    let random = SeededEntropy::new(seed);
    let mut acknowledged = BTreeSet::new();
    eventually(SOON, "every replica serves", || replicas.iter().all(Replica::serves)).await;
    let first_root = root(&replicas[0]);
    for round in 0..ROUNDS {
        let down = replicas_to_cut(&random, replicas.len());
        let called = &replicas[round % replicas.len()];
        let pod = format!("shop/buyer-{}", round % buyers.len());
        // Requested at that very moment: it may be acknowledged before the power is lost, or not at all.
        let request = tokio::spawn({
            let (called, pod) = (called.clone(), pod.clone());
            async move { called.bootstrap(&pod).await }
        });
        sleep(up_to(&random, 12)).await;
        for id in &down {
            orders.send(Order::Cut(*id)).await?;
        }
        if let Ok(Ok(Ok(issued))) = timeout(Duration::from_secs(1), request).await {
            acknowledged.insert(issued.serial);
        }
        if down.len() == 1 {
            let other = replicas.iter().find(|replica| !down.contains(&replica.id())).ok_or("a replica")?;
            let issued = timeout(SOON, workload::bootstrap(other, &pod)).await?;
            acknowledged.insert(issued.serial);
        }
        sleep(up_to(&random, 500)).await;
        for id in &down {
            orders.send(Order::Restore(*id)).await?;
        }
        eventually(SOON, "every replica serves", || replicas.iter().all(Replica::serves)).await;
    }
    let issued = || all_have_certificate(replicas, "buyer");
    eventually(SOON, "the buyers have a certificate everywhere", issued).await;
    nothing_is_lost(replicas, &acknowledged, trace).await;
    assert_eq!(root(&replicas[0]), first_root, "the root never changes");
    Ok(())
}

/// The replicas that lose their power: mostly one, sometimes all.
fn replicas_to_cut(random: &SeededEntropy, replicas: usize) -> Vec<u64> {
    let ids = 0..replicas as u64;
    match random.draw() % 4 {
        0 => ids.collect(),
        _ => vec![random.draw() % ids.end],
    }
}

/// A duration below `limit` milliseconds.
fn up_to(random: &SeededEntropy, limit: u64) -> Duration {
    Duration::from_millis(random.draw() % limit)
}
