//! A fourth replica joins for the first time, and leaves for good; another one fails in the middle of it. No
//! proxy loses an update, is sent what it holds, or goes back in time, and only those move that must.

use std::time::Duration;

use smc_simulation::envoy::Envoy;
use smc_simulation::oracle::{eventually, leader};
use smc_simulation::replica::Replica;
use smc_simulation::trace::Trace;
use smc_simulation::world::World;
use tokio::time::sleep;

use crate::failing::{Fault, HEALED, SETTLED, fail, heal};
use crate::proxies::{self, begin, conclude};
use crate::seeds::seeds;

/// The steps of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Join,
    Departure,
}

#[test]
fn a_replica_joins_and_leaves_and_only_its_own_proxies_move() {
    run_all(Step::Join, Fault::None);
}

#[test]
fn a_partition_during_a_first_join_loses_and_resends_nothing() {
    run_all(Step::Join, Fault::Partition);
}

#[test]
fn a_crash_during_a_first_join_loses_and_resends_nothing() {
    run_all(Step::Join, Fault::Crash);
}

#[test]
fn a_freeze_during_a_first_join_loses_and_resends_nothing() {
    run_all(Step::Join, Fault::Freeze);
}

#[test]
fn a_partition_during_a_departure_loses_and_resends_nothing() {
    run_all(Step::Departure, Fault::Partition);
}

#[test]
fn a_crash_during_a_departure_loses_and_resends_nothing() {
    run_all(Step::Departure, Fault::Crash);
}

#[test]
fn a_freeze_during_a_departure_loses_and_resends_nothing() {
    run_all(Step::Departure, Fault::Freeze);
}

/// Runs the story with every fourth seed: there are seven of it.
fn run_all(faulty: Step, fault: Fault) {
    for seed in seeds().step_by(4) {
        let trace = Trace::default();
        proxies::run(seed, &trace, World::growing, |world| story(world, faulty, fault, seed));
    }
}

async fn story(world: World, faulty: Step, fault: Fault, seed: u64) -> turmoil::Result {
    let World { replicas, .. } = &world;
    let spare = world.spare.as_ref().ok_or("a spare replica")?;
    let (proxies, acknowledged) = begin(&world).await;
    let mut moved = Vec::new();
    for step in [Step::Join, Step::Departure] {
        let service = |when: &str| world.declare_service(&format!("{when}-{step:?}").to_lowercase());
        service("before");
        match step {
            Step::Join => spare.start(),
            Step::Departure => spare.leave(),
        }
        // Any moment of it.
        sleep(Duration::from_millis(seed * 137 % 1600)).await;
        service("within");
        let failing = replicas.iter().find(|replica| leader(replica) == Some(replica.id()));
        let failing = failing.unwrap_or(&replicas[0]);
        let fault = if step == faulty { fault } else { Fault::None };
        fail(&world, failing, fault);
        service("meanwhile");
        sleep(fault.lasts()).await;
        heal(&world, failing, fault);
        service("after");

        let ready = || replicas.iter().chain((step == Step::Join).then_some(spare));
        let all_serve = || ready().all(Replica::serves) && spare.serves() == (step == Step::Join);
        eventually(HEALED, "every replica serves", all_serve).await;
        let members = || ready().map(Replica::id).eq(members(&replicas[0]));
        eventually(HEALED, "the members are those that run", members).await;
        eventually(HEALED, "every proxy is served", || proxies.iter().all(Envoy::is_served)).await;
        let owned = || proxies.iter().all(|envoy| envoy.is_served_by_owner(ready()));
        eventually(SETTLED, "every proxy is served by its owner", owned).await;
        if step == Step::Join {
            moved = proxies.iter().map(|envoy| !envoy.is_served_by_owner(replicas)).collect();
        }
    }
    if fault == Fault::None {
        for (envoy, moved) in proxies.iter().zip(moved) {
            let expected = if moved { 2 } else { 0 };
            assert_eq!(envoy.received().ended, expected, "{}: streams that ended", envoy.name());
        }
    }
    conclude(&world, acknowledged, "after-departure").await;
    Ok(())
}

/// The voters of the group, as a replica sees it.
fn members(replica: &Replica) -> Vec<u64> {
    let members = replica.status().map(|status| status.members).unwrap_or_default();
    members.iter().filter(|member| member.voter).map(|member| member.id.0).collect()
}
