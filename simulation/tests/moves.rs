//! Replicas end and start again, and another one fails in the middle of it: no proxy loses an update, is sent
//! what it holds, or goes back in time, and every proxy is served again, by its owner in the end.

use std::time::Duration;

use smc_simulation::envoy::Envoy;
use smc_simulation::oracle::{SOON, eventually, leader};
use smc_simulation::trace::Trace;
use smc_simulation::world::World;
use tokio::time::sleep;

use crate::failing::{Fault, fail, heal};
use crate::proxies::{self, begin, conclude, settled};
use crate::seeds::{repeated, seeds};

/// What goes on when the fault comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum During {
    /// A replica ends in order, and its proxies go to others.
    Drain,
    /// A replica has started, and comes back into its group.
    Join,
}

#[test]
fn replicas_are_restarted_in_turn_and_nothing_is_resent_or_lost() {
    run_all(During::Drain, Fault::None);
}

#[test]
fn a_partition_during_a_drain_loses_and_resends_nothing() {
    run_all(During::Drain, Fault::Partition);
}

#[test]
fn a_crash_during_a_drain_loses_and_resends_nothing() {
    run_all(During::Drain, Fault::Crash);
}

#[test]
fn a_freeze_during_a_drain_loses_and_resends_nothing() {
    run_all(During::Drain, Fault::Freeze);
}

#[test]
fn a_partition_during_a_join_loses_and_resends_nothing() {
    run_all(During::Join, Fault::Partition);
}

#[test]
fn a_crash_during_a_join_loses_and_resends_nothing() {
    run_all(During::Join, Fault::Crash);
}

#[test]
fn a_freeze_during_a_join_loses_and_resends_nothing() {
    run_all(During::Join, Fault::Freeze);
}

#[test]
fn a_run_of_failing_replicas_repeats_with_its_seed() {
    for seed in seeds().step_by(10) {
        repeated(seed, |seed| {
            let trace = Trace::default();
            run(seed, During::Drain, Fault::Crash, &trace);
            trace.lines()
        });
    }
}

/// Runs the story with every fourth seed: there are seven of it.
fn run_all(during: During, fault: Fault) {
    for seed in seeds().step_by(4) {
        run(seed, during, fault, &Trace::default());
    }
}

fn run(seed: u64, during: During, fault: Fault, trace: &Trace) {
    proxies::run(seed, trace, World::new, |world| story(world, during, fault, seed));
}

async fn story(world: World, during: During, fault: Fault, seed: u64) -> turmoil::Result {
    let World { replicas, .. } = &world;
    let (proxies, acknowledged) = begin(&world).await;
    let served = || proxies.iter().all(Envoy::is_served);

    // All in turn where nothing fails; otherwise one, another one with another seed.
    let rounds = if fault == Fault::None { 3 } else { 1 };
    for round in 0..rounds {
        let moving = &replicas[usize::try_from((seed / 4 + round) % 3)?];
        world.declare_service(&format!("before-{round}"));
        moving.drain();
        let between = || !served();
        eventually(SOON, "a proxy is between two streams", between).await;
        world.declare_service(&format!("between-{round}"));
        if during == During::Join {
            eventually(SOON, "the replica has ended", || !moving.serves()).await;
            sleep(Duration::from_secs(1)).await;
            moving.start();
        }
        // Any moment of it.
        sleep(Duration::from_millis(seed * 37 % 400)).await;
        // The leader, if it is not the one that moves.
        let staying: Vec<_> = replicas.iter().filter(|replica| replica.id() != moving.id()).collect();
        let leads = staying.iter().find(|replica| leader(replica) == Some(replica.id()));
        let failing = leads.copied().unwrap_or(staying[0]);
        fail(&world, failing, fault);
        world.declare_service(&format!("within-{round}"));
        sleep(fault.lasts()).await;
        heal(&world, failing, fault);
        moving.start();
        world.declare_service(&format!("after-{round}"));
        settled(&world, proxies).await;
    }
    if fault == Fault::None {
        for envoy in proxies {
            // Away from its owner when that ended, and back. No other replica is the owner of any moment.
            assert_eq!(envoy.received().ended, 2, "{}: streams that ended", envoy.name());
        }
    }

    conclude(&world, acknowledged, &format!("after-{}", rounds - 1)).await;
    Ok(())
}
