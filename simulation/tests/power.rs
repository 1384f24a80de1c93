//! Replicas lose their power, one after the other and sometimes all at once, while certificates are asked for.

use std::collections::BTreeSet;
use std::time::Duration;

use smc::env::fixed::SeededEntropy;
use smc_simulation::replica::{Replica, host};
use smc_simulation::trace::Trace;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use turmoil::LinkIter;

use crate::shop::{SOON, Shop, ToldInPanic, have, network, retried, root, seeds, until};

/// How often somebody loses its power.
const ROUNDS: usize = 8;

/// What the operator has done to a host.
enum Order {
    /// Its power is lost.
    Down(u64),
    /// It is back.
    Up(u64),
}

#[test]
fn whoever_loses_its_power_has_lost_nothing_that_was_acknowledged() {
    for seed in seeds() {
        let trace = Trace::default();
        run(seed, &trace);
    }
}

#[test]
fn the_same_seed_loses_power_at_the_same_moments() {
    for seed in seeds() {
        let [once, again] = [(); 2].map(|()| {
            let trace = Trace::default();
            run(seed, &trace);
            trace.lines()
        });
        assert_eq!(once, again, "seed {seed}");
    }
}

fn run(seed: u64, trace: &Trace) {
    let mut sim = network(seed);
    let shop = Shop::open(&mut sim, seed, trace);
    let told = ToldInPanic { seed, trace: trace.clone() };
    let replicas = shop.replicas.clone();
    let (orders, mut ordered) = mpsc::channel(1);
    let mut down = BTreeSet::new();
    sim.client("operator", story(shop, seed, orders));
    while !sim.step().unwrap() {
        match ordered.try_recv() {
            Ok(Order::Down(id)) => {
                // What has left the machine arrives, an acknowledgement above all; the cut takes what has not.
                sim.links(|links| links.for_each(LinkIter::deliver_all));
                if sim.step().unwrap() {
                    break;
                }
                trace.note_at(sim.elapsed(), host(id), "loses its power");
                let (lost, others): (Vec<_>, Vec<_>) =
                    replicas.iter().partition(|replica| replica.id() == id);
                // First, since a machine without power says no farewell to anybody.
                for other in others {
                    sim.partition(host(id), host(other.id()));
                }
                sim.crash(host(id));
                lost.into_iter().for_each(Replica::lose_power);
                down.insert(id);
            }
            Ok(Order::Up(id)) => {
                down.remove(&id);
                let up = replicas.iter().map(Replica::id).filter(|other| !down.contains(other));
                up.filter(|other| *other != id).for_each(|other| sim.repair(host(id), host(other)));
                sim.bounce(host(id));
            }
            Err(_) => {}
        }
    }
    drop(told);
}

async fn story(shop: Shop, seed: u64, orders: mpsc::Sender<Order>) -> turmoil::Result {
    let Shop { replicas, buyers, .. } = &shop;
    let dice = SeededEntropy::new(seed);
    let mut acknowledged = BTreeSet::new();
    until(SOON, "every replica serves", || replicas.iter().all(Replica::serves)).await;
    let first_root = root(&replicas[0]);
    for round in 0..ROUNDS {
        let down = fall(&dice, replicas.len());
        let asked = &replicas[round % replicas.len()];
        let pod = format!("shop/buyer-{}", round % buyers.len());
        // Asked for at the very moment: it may be acknowledged before the power is lost, or not at all.
        let asking = tokio::spawn({
            let (asked, pod) = (asked.clone(), pod.clone());
            async move { asked.bootstrap(&pod).await }
        });
        sleep(roll(&dice, 12)).await;
        for id in &down {
            orders.send(Order::Down(*id)).await?;
        }
        if let Ok(Ok(Ok(issued))) = timeout(Duration::from_secs(1), asking).await {
            acknowledged.insert(issued.serial);
        }
        if down.len() == 1 {
            let other = replicas.iter().find(|replica| !down.contains(&replica.id())).ok_or("a replica")?;
            let issued = timeout(SOON, retried(other, &pod)).await?;
            acknowledged.insert(issued.serial);
        }
        sleep(roll(&dice, 500)).await;
        for id in &down {
            orders.send(Order::Up(*id)).await?;
        }
        until(SOON, "every replica serves", || replicas.iter().all(Replica::serves)).await;
    }
    until(SOON, "the buyers have a certificate everywhere", || have(replicas, "buyer")).await;
    shop.agrees_on(&acknowledged).await;
    assert_eq!(root(&replicas[0]), first_root, "one root, for ever");
    Ok(())
}

/// Who loses its power: mostly one, sometimes all.
fn fall(dice: &SeededEntropy, replicas: usize) -> Vec<u64> {
    let ids = 0..replicas as u64;
    match dice.draw() % 4 {
        0 => ids.collect(),
        _ => vec![dice.draw() % ids.end],
    }
}

/// Up to so many milliseconds.
fn roll(dice: &SeededEntropy, limit: u64) -> Duration {
    Duration::from_millis(dice.draw() % limit)
}
