//! One replica's clock is wrong, and the others go on as if it were not.

use std::collections::BTreeSet;
use std::time::Duration;

use smc_authority::ledger::Ledger;
use smc_simulation::oracle::{SOON, all_have_certificate, eventually, nothing_is_lost, service_certificate};
use smc_simulation::replica::Replica;
use smc_simulation::trace::Trace;
use smc_simulation::workload;
use smc_simulation::world::{World, network, step};
use tokio::time::sleep;

use crate::seeds::{PrintOnPanic, seeds};

const DAY: i64 = 24 * 3600;

/// How long the clock is wrong, after the replicas have noticed it.
const WRONG: Duration = Duration::from_secs(20);

/// The replicas ask each other once a second.
const NOTICED: Duration = Duration::from_secs(4);

/// The entries that a wrong clock may cost: those of the certificates that are issued meanwhile, and those of
/// an election. Before the clocks were compared there were some fifty each second.
const MOST_ENTRIES: u64 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Ahead,
    Behind,
    /// To and fro, as of a host with two time daemons.
    Jumping,
    /// Ten seconds each second.
    Drifting,
}

#[test]
fn a_replica_whose_clock_is_ahead_rewrites_nothing() {
    run_all(Fault::Ahead);
}

#[test]
fn a_replica_whose_clock_is_behind_rewrites_nothing() {
    run_all(Fault::Behind);
}

#[test]
fn a_replica_whose_clock_jumps_rewrites_nothing() {
    run_all(Fault::Jumping);
}

#[test]
fn a_replica_whose_clock_drifts_rewrites_nothing() {
    run_all(Fault::Drifting);
}

/// Runs the story with every fourth seed: four faults, as many runs as of another story.
fn run_all(fault: Fault) {
    for seed in seeds().step_by(4) {
        let trace = Trace::default();
        let mut sim = network(seed);
        let world = World::new(&mut sim, seed, &trace);
        let print_on_panic = PrintOnPanic { seed, trace };
        sim.client("operator", story(world, fault, seed));
        while !step(&mut sim).unwrap() {}
        drop(print_on_panic);
    }
}

async fn story(world: World, fault: Fault, seed: u64) -> turmoil::Result {
    let World { trace, replicas, buyers, .. } = &world;
    eventually(SOON, "every replica serves", || replicas.iter().all(Replica::serves)).await;
    eventually(SOON, "the buyers have a certificate everywhere", || all_have_certificate(replicas, "buyer"))
        .await;
    let agreed = |replica: &Replica| replica.ledger(Ledger::agreed_time).is_some();
    eventually(SOON, "the replicas agree on the time", || replicas.iter().all(agreed)).await;
    let mut acknowledged = BTreeSet::new();
    for (n, (envoy, replica)) in buyers.iter().zip(replicas.iter().cycle()).enumerate() {
        let issued = workload::bootstrap(replica, &format!("shop/buyer-{n}")).await;
        acknowledged.insert(issued.serial);
        envoy.boot(issued.bootstrap);
    }
    let served = || buyers.iter().all(|buyer| buyer.received().certificate.is_some());
    eventually(SOON, "every buyer has its certificate", served).await;
    let certificate = service_certificate(&replicas[0], "buyer");
    let received: Vec<_> = buyers.iter().map(|buyer| buyer.received().certificate).collect();

    let (wrong, right): (Vec<_>, Vec<_>) = replicas.iter().partition(|replica| replica.id() == seed / 4 % 3);
    let wrong = wrong[0];
    let before = right[0].status().map_or(0, |status| status.last);
    trace.note("operator", format!("the clock of replica {} is wrong: {fault:?}", wrong.id()));
    match fault {
        Fault::Ahead => wrong.clock().set_ahead(3 * DAY),
        Fault::Behind => wrong.clock().set_ahead(-3 * DAY),
        Fault::Drifting => wrong.clock().drift(10),
        Fault::Jumping => {}
    }
    if fault == Fault::Jumping {
        for ahead in [365 * DAY, 0, -30 * DAY, 2 * DAY, 3600, -3600, 0, 3650 * DAY] {
            wrong.clock().set_ahead(ahead);
            sleep(WRONG / 8).await;
        }
    } else {
        // The drift passes the bound after six seconds.
        sleep(NOTICED + Duration::from_secs(6)).await;
        assert!(wrong.bootstrap("shop/buyer-0").await.is_err(), "it issues nothing");
        sleep(WRONG).await;
    }
    world.declare("seller");
    acknowledged.insert(workload::bootstrap(right[0], "shop/seller-0").await.serial);
    eventually(SOON, "every replica has a certificate for the seller", || {
        all_have_certificate(replicas, "seller")
    })
    .await;
    for replica in replicas {
        assert_eq!(service_certificate(replica, "buyer"), certificate, "nothing was replaced");
    }
    let now: Vec<_> = buyers.iter().map(|buyer| buyer.received().certificate).collect();
    assert_eq!(now, received, "no Envoy was sent another one");
    let written = right[0].status().map_or(0, |status| status.last) - before;
    trace.note("operator", format!("{written} entries"));
    assert!(written <= MOST_ENTRIES, "{written} entries were written");
    assert!(right.iter().all(|replica| is_all_valid(replica)), "a wrong clock's certificate is on record");

    wrong.clock().set_ahead(0);
    acknowledged.insert(workload::bootstrap(wrong, "shop/seller-0").await.serial);
    nothing_is_lost(replicas, &acknowledged, trace).await;
    Ok(())
}

/// Whether all certificates on record are valid at the group's time.
fn is_all_valid(replica: &Replica) -> bool {
    replica.ledger(|ledger| {
        let now = ledger.now();
        let services = ledger.service_certificates().map(|(_, record)| record.validity);
        let proxies = ledger.proxy_certificates().map(|(_, record)| record.validity);
        services.chain(proxies).all(|validity| validity.contains(now))
    })
}
