//! The leader is cut off from the other replicas, and certificates are asked for on both sides.

use std::collections::BTreeSet;
use std::time::Duration;

use smc_simulation::packets;
use smc_simulation::replica::{Replica, host};
use smc_simulation::trace::Trace;
use tokio::time::{Instant, sleep};
use turmoil::Sim;

use crate::shop::{SOON, Shop, ToldInPanic, certificate, have, leader, network, retried, root, seeds, until};

/// After the longest silence that begins an election, and one that is tied, the others go on.
const FAILOVER: Duration = Duration::from_millis(1500);

/// Those who hear a leader elect nobody. It falls silent when nobody has answered it for three times the longest silence that begins an
/// election; then it is as one that is cut off.
const FAILOVER_FROM_THE_DEAF: Duration = Duration::from_millis(1200 + 1500);

/// How long the network stays cut after the majority has done its work.
const CUT: Duration = Duration::from_secs(3);

/// What does not get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Nothing that the leader says, and nothing that is said to it.
    Off,
    /// Nothing that the leader says.
    Mute,
    /// Nothing that is said to the leader.
    Deaf,
}

impl Cut {
    fn cut(self, leader: &str, other: &str) {
        match self {
            Self::Off => turmoil::partition(leader, other),
            Self::Mute => turmoil::partition_oneway(leader, other),
            Self::Deaf => turmoil::partition_oneway(other, leader),
        }
    }
}

#[test]
fn a_leader_that_is_cut_off_acknowledges_nothing_and_nothing_acknowledged_is_lost() {
    run_all(Cut::Off);
}

#[test]
fn a_leader_that_nobody_hears_is_replaced() {
    run_all(Cut::Mute);
}

#[test]
fn a_leader_that_hears_nobody_is_replaced_although_everybody_hears_it() {
    run_all(Cut::Deaf);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another_one() {
    for seed in seeds() {
        let (once, again) = (run_noting_packets(seed), run_noting_packets(seed));
        for (line, (once, again)) in once.iter().zip(&again).enumerate() {
            assert_eq!(once, again, "line {line} of seed {seed}");
        }
        assert_eq!(once.len(), again.len(), "seed {seed}");
        assert!(once.iter().any(|line| line.contains("SYN")), "packets are in it");
        assert_ne!(once, run_noting_packets(seed + 1));
    }
}

/// Runs the story, and tells what happened, down to every packet.
fn run_noting_packets(seed: u64) -> Vec<String> {
    let trace = Trace::default();
    run(seed, Cut::Off, &trace, |sim| packets::note(sim, &trace));
    trace.lines()
}

/// Runs the story with every seed.
fn run_all(cut: Cut) {
    for seed in seeds() {
        run(seed, cut, &Trace::default(), |_| {});
    }
}

/// Runs the story, and shows the simulation to `watch` after each step.
fn run(seed: u64, cut: Cut, trace: &Trace, watch: impl Fn(&Sim<'_>)) {
    let mut sim = network(seed);
    let shop = Shop::open(&mut sim, seed, trace);
    let told = ToldInPanic { seed, trace: trace.clone() };
    sim.client("operator", story(shop, cut));
    while !sim.step().unwrap() {
        watch(&sim);
    }
    drop(told);
}

async fn story(shop: Shop, cut: Cut) -> turmoil::Result {
    let Shop { trace, replicas, buyers, .. } = &shop;
    until(SOON, "every replica serves", || replicas.iter().all(Replica::serves)).await;
    until(SOON, "the buyers have a certificate everywhere", || have(replicas, "buyer")).await;
    assert_eq!(replicas.iter().map(root).collect::<BTreeSet<_>>().len(), 1, "one root");

    let mut acknowledged = BTreeSet::new();
    for (n, (envoy, replica)) in buyers.iter().zip(replicas.iter().cycle()).enumerate() {
        let issued = replica.bootstrap(&format!("shop/buyer-{n}")).await?;
        acknowledged.insert(issued.serial);
        envoy.boot(issued.bootstrap);
    }
    until(SOON, "every buyer has its certificate", || {
        buyers.iter().all(|buyer| buyer.told().certificate.is_some())
    })
    .await;
    let certificates: BTreeSet<_> = buyers.iter().filter_map(|buyer| buyer.told().certificate).collect();
    assert_eq!(certificates.len(), 1, "every replica serves the same certificate");
    let serving: BTreeSet<_> = buyers.iter().filter_map(|buyer| buyer.told().by).collect();
    assert_eq!(serving.len(), replicas.len(), "every replica serves somebody: {serving:?}");

    let leader = leader(&replicas[0]).expect("a group that answers has a leader");
    let (alone, majority): (Vec<_>, Vec<_>) = replicas.iter().partition(|replica| replica.id() == leader);
    let alone = alone[0];
    trace.note("operator", format!("{cut:?}: replica {leader}"));
    for other in &majority {
        cut.cut(&host(leader), &host(other.id()));
    }
    shop.declare("seller");
    let began = Instant::now();
    let unanswered = tokio::spawn({
        let alone = alone.clone();
        async move { retried(&alone, "shop/seller-0").await }
    });
    let issued = retried(majority[0], "shop/seller-0").await;
    let limit = if cut == Cut::Deaf { FAILOVER_FROM_THE_DEAF } else { FAILOVER };
    assert!(began.elapsed() < limit, "the majority goes on after {:?}", began.elapsed());
    acknowledged.insert(issued.serial);
    until(SOON, "the majority has a certificate for the seller", || {
        majority.iter().all(|replica| certificate(replica, "seller").is_some())
    })
    .await;
    assert_ne!(self::leader(majority[0]), Some(leader), "another replica leads");
    sleep(CUT).await;
    if cut == Cut::Off {
        let heard = certificate(alone, "seller");
        assert_eq!(heard, None, "whoever is cut off hears of nothing, and records nothing");
    }
    let told: Vec<_> = buyers.iter().map(|buyer| buyer.told().ended).collect();
    assert_eq!(told, vec![0; buyers.len()], "nobody's stream ends");

    assert!(!unanswered.is_finished(), "whoever is cut off acknowledges nothing");
    trace.note("operator", "heals the network");
    for other in &majority {
        turmoil::repair(host(leader), host(other.id()));
    }
    until(SOON, "everybody has a certificate for the seller", || have(replicas, "seller")).await;
    acknowledged.insert(unanswered.await?.serial);
    shop.agrees_on(&acknowledged).await;
    Ok(())
}
