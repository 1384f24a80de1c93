//! The leader is partitioned from the other replicas, and certificates are requested on both sides.

use std::collections::BTreeSet;
use std::time::Duration;

use smc_simulation::faults::Partition;
use smc_simulation::oracle::{
    SOON, all_have_certificate, eventually, leader, nothing_is_lost, root, service_certificate,
};
use smc_simulation::replica::{Replica, host};
use smc_simulation::trace::Trace;
use smc_simulation::world::{World, network, step};
use smc_simulation::{packets, workload};
use tokio::time::{Instant, sleep};
use turmoil::Sim;

use crate::seeds::{PrintOnPanic, repeated, seeds};

/// Two of the longest election timeouts, of which the first ends in a split vote.
const FAILOVER: Duration = Duration::from_millis(1500);

/// As [`FAILOVER`], from a leader that can send but not receive: the others elect no new one until it stops
/// sending, after three of the longest election timeouts without a quorum of replies.
const FAILOVER_FROM_INBOUND: Duration = Duration::from_millis(1200 + 1500);

/// A replica looks once a second for proxies that belong to another one, which takes them at once here.
const MOVED: Duration = Duration::from_secs(3);

/// How long the partition lasts after the majority has done its work.
const PARTITIONED: Duration = Duration::from_secs(3);

#[test]
fn a_partitioned_leader_acknowledges_nothing_and_no_ack_is_lost() {
    run_all(Partition::Both);
}

#[test]
fn a_leader_that_cannot_send_is_replaced() {
    run_all(Partition::Outbound);
}

#[test]
fn a_leader_that_can_send_and_not_receive_is_replaced() {
    run_all(Partition::Inbound);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another_one() {
    for seed in seeds() {
        let once = repeated(seed, run_noting_packets);
        assert!(once.iter().any(|line| line.contains("SYN")), "packets are in it");
        assert_ne!(once, run_noting_packets(seed + 1));
    }
}

/// Runs the story, and returns its trace with every packet.
fn run_noting_packets(seed: u64) -> Vec<String> {
    let trace = Trace::default();
    run(seed, Partition::Both, &trace, |sim| packets::note(sim, &trace));
    trace.lines()
}

/// Runs the story with every seed.
fn run_all(partition: Partition) {
    for seed in seeds() {
        run(seed, partition, &Trace::default(), |_| {});
    }
}

/// Runs the story, and calls `watch` with the simulation after each step.
fn run(seed: u64, partition: Partition, trace: &Trace, watch: impl Fn(&Sim<'_>)) {
    let mut sim = network(seed);
    let world = World::new(&mut sim, seed, trace);
    let print_on_panic = PrintOnPanic { seed, trace: trace.clone() };
    sim.client("operator", story(world, partition));
    while !step(&mut sim).unwrap() {
        watch(&sim);
    }
    drop(print_on_panic);
}

async fn story(world: World, partition: Partition) -> turmoil::Result {
    let World { trace, replicas, buyers, .. } = &world;
    eventually(SOON, "every replica serves", || replicas.iter().all(Replica::serves)).await;
    let issued = || all_have_certificate(replicas, "buyer");
    eventually(SOON, "the buyers have a certificate everywhere", issued).await;
    assert_eq!(replicas.iter().map(root).collect::<BTreeSet<_>>().len(), 1, "one root");

    let mut acknowledged = BTreeSet::new();
    for (n, (envoy, replica)) in buyers.iter().zip(replicas.iter().cycle()).enumerate() {
        let issued = replica.bootstrap(&format!("shop/buyer-{n}")).await?;
        acknowledged.insert(issued.serial);
        envoy.boot(issued.bootstrap);
    }
    eventually(SOON, "every buyer has its certificate", || {
        buyers.iter().all(|buyer| buyer.received().certificate.is_some())
    })
    .await;
    let certificates: BTreeSet<_> = buyers.iter().filter_map(|buyer| buyer.received().certificate).collect();
    assert_eq!(certificates.len(), 1, "every replica serves the same certificate");
    let serving: BTreeSet<_> = buyers.iter().filter_map(|buyer| buyer.received().replica).collect();
    assert_eq!(serving.len(), replicas.len(), "every replica serves a buyer: {serving:?}");

    // A buyer that found its owner not ready yet moves there once.
    sleep(MOVED).await;
    let ended = || buyers.iter().map(|buyer| buyer.received().ended).collect::<Vec<_>>();
    let before = ended();

    let leader = leader(&replicas[0]).expect("a group that commits has a leader");
    let (alone, majority): (Vec<_>, Vec<_>) = replicas.iter().partition(|replica| replica.id() == leader);
    let alone = alone[0];
    trace.note("operator", format!("partitions replica {leader}: {partition:?}"));
    for other in &majority {
        partition.cut(&host(leader), &host(other.id()));
    }
    world.declare("seller");
    let start = Instant::now();
    let unanswered = tokio::spawn({
        let alone = alone.clone();
        async move { workload::bootstrap(&alone, "shop/seller-0").await }
    });
    let issued = workload::bootstrap(majority[0], "shop/seller-0").await;
    let limit = if partition == Partition::Inbound { FAILOVER_FROM_INBOUND } else { FAILOVER };
    assert!(start.elapsed() < limit, "the majority commits after {:?}", start.elapsed());
    acknowledged.insert(issued.serial);
    eventually(SOON, "the majority has a certificate for the seller", || {
        majority.iter().all(|replica| service_certificate(replica, "seller").is_some())
    })
    .await;
    assert_ne!(self::leader(majority[0]), Some(leader), "another replica leads");
    sleep(PARTITIONED).await;
    if partition == Partition::Both {
        let replicated = service_certificate(alone, "seller");
        assert_eq!(replicated, None, "the partitioned replica receives and records nothing");
    }
    assert_eq!(ended(), before, "no stream ends");

    assert!(!unanswered.is_finished(), "the partitioned replica acknowledges nothing");
    trace.note("operator", "heals the network");
    for other in &majority {
        turmoil::repair(host(leader), host(other.id()));
    }
    let issued = || all_have_certificate(replicas, "seller");
    eventually(SOON, "every replica has a certificate for the seller", issued).await;
    acknowledged.insert(unanswered.await?.serial);
    nothing_is_lost(replicas, &acknowledged, trace).await;
    Ok(())
}
