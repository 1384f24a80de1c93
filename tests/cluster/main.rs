//! Three or five `smc controller` processes on loopback that are killed, stopped, cut off from each other and replaced at
//! random, while clients issue, claim and release certificates.
//!
//! The schedule follows from a seed, which is printed: `SMC_SEED=… SMC_ROUNDS=… SMC_REPLICAS=…` runs the same one again,
//! or a longer one (`make soak`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod commands;
mod customer;
mod linearizable;
mod proxy;
mod relay;
mod replicas;
mod small_disk;
mod unwritable_disk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use customer::{Customer, Histories, Moments};
use linearizable::{Life, Operation, What, is_linearizable};
use relay::Link;
use replicas::{Draw, PODS, Replicas, eventually};
use smc_proto::admin::v1 as pb;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Who is at work at the same time.
const CLIENTS: u64 = 4;

/// What a run does unless it is told otherwise.
const ROUNDS: u64 = 6;
const REPLICAS: u64 = 3;

#[expect(clippy::disallowed_methods, reason = "how a person replays a schedule")]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_whoever_is_killed_stopped_cut_off_or_replaced() {
    let seed = setting("SMC_SEED").unwrap_or_else(Draw::seed);
    let rounds = setting("SMC_ROUNDS").unwrap_or(ROUNDS);
    let count = setting("SMC_REPLICAS").unwrap_or(REPLICAS);
    eprintln!("SMC_SEED={seed} SMC_ROUNDS={rounds} SMC_REPLICAS={count}");
    let mut draw = Draw::new(seed);
    let replicas = Arc::new(Replicas::start(count, draw.below(1 << 16)).await);

    let done = Arc::new(AtomicBool::new(false));
    let moments = Moments::default();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let mut customer = Customer {
            replicas: Arc::clone(&replicas),
            moments: moments.clone(),
            draw: Draw::new(seed ^ (client + 1)),
            pods: client * PODS / CLIENTS..(client + 1) * PODS / CLIENTS,
            seen: Histories::new(),
            unreleased: BTreeMap::new(),
            lost_releases: BTreeMap::new(),
        };
        let done = Arc::clone(&done);
        clients.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                customer.live().await;
            }
            customer.seen
        });
    }
    for round in 0..rounds {
        sleep(Duration::from_millis(300 + draw.below(700))).await;
        let leader = replicas.leader().await;
        // Every other time the leader, whoever that is now.
        let victim = if round % 2 == 0 { leader } else { draw.below(count) };
        let minority = 1 + draw.below((count - 1) / 2);
        let victims: Vec<u64> = (0..minority).map(|n| (victim + n) % count).collect();
        disturb(&replicas, &mut draw, round, &victims).await;
        replicas.settle().await;
    }
    done.store(true, Ordering::Relaxed);
    let mut seen = Histories::new();
    while let Some(client) = clients.join_next().await {
        for (serial, history) in client.unwrap() {
            assert!(seen.insert(serial, history).is_none(), "two were given the same serial number");
        }
    }
    judge(&replicas, &moments, seen, rounds).await;
    replicas.well.store(true, Ordering::Relaxed);
}

/// Kills, stops or cuts off a minority for a while, or has one lose its disk and another one disturb how it comes back.
async fn disturb(replicas: &Replicas, draw: &mut Draw, round: u64, victims: &[u64]) {
    let others: Vec<u64> = (0..replicas.count).filter(|replica| !victims.contains(replica)).collect();
    let span = Duration::from_millis(200 + draw.below(1500));
    match draw.below(4) {
        0 => {
            eprintln!("round {round}: {victims:?} are stopped");
            for victim in victims {
                replicas.pause(*victim);
            }
            sleep(span).await;
            for victim in victims {
                replicas.resume(*victim);
            }
        }
        1 => {
            eprintln!("round {round}: {victims:?} are killed");
            for victim in victims {
                replicas.kill(*victim);
            }
            sleep(span / 2).await;
            for victim in victims {
                replicas.run(*victim);
            }
        }
        2 => {
            let victim = victims[0];
            let other = others[usize::try_from(draw.below(others.len() as u64)).unwrap()];
            eprintln!(
                "round {round}: {victim} loses its disk, and {other} is killed while the group changes"
            );
            replicas.kill(victim);
            replicas.lose_disk(victim);
            replicas.run(victim);
            sleep(span / 3).await;
            replicas.kill(other);
            sleep(span / 2).await;
            replicas.run(other);
        }
        _ => {
            let cut = if draw.below(2) == 0 { Link::Silent } else { Link::Broken };
            let how = draw.below(3);
            let set = |link| {
                for victim in victims {
                    match how {
                        // Nobody connects to it, and it to everybody.
                        0 => replicas.link_to(*victim, link),
                        // Only it and another one cannot hear each other.
                        1 => replicas.link(*victim, others[0], link),
                        _ => {
                            for other in &others {
                                replicas.link(*victim, *other, link);
                            }
                        }
                    }
                }
            };
            let whom = ["inwards", "from one", "from all"][usize::try_from(how).unwrap()];
            eprintln!("round {round}: {victims:?} are cut off {whom}, {cut:?}");
            set(cut);
            sleep(span).await;
            set(Link::Whole);
        }
    }
}

/// What must hold once all have come to rest.
async fn judge(replicas: &Replicas, moments: &Moments, mut seen: Histories, rounds: u64) {
    let times = |what| {
        let acknowledged = |operation: &&Operation| operation.what == what && operation.returned.is_some();
        seen.values().flatten().filter(acknowledged).count() as u64
    };
    let (issued, claims, releases) = (times(What::Issue), times(What::Claim), times(What::Release));
    eprintln!("acknowledged: {issued} certificates, {claims} claims, {releases} releases of one");
    assert!(issued.min(claims).min(releases) > rounds, "too little was done to tell anything");

    let hash = eventually("equal states", async || replicas.common_state_hash().await).await;
    assert!(!hash.is_empty());
    let mut roots = BTreeSet::new();
    for replica in 0..replicas.count {
        let called = moments.next();
        let lives = replicas.lives(replica).await;
        let returned = Some(moments.next());
        for (serial, history) in &mut seen {
            let life = lives.get(serial).copied().unwrap_or(Life::Absent);
            assert!(life != Life::Absent, "replica {replica} has lost the certificate {serial}: {history:?}");
            history.push(Operation { called, returned, what: What::Look(life) });
        }
        let status: pb::GetCaStatusResponse = replicas.ca_status(replica).await.unwrap();
        roots.extend(status.roots.into_iter().map(|root| root.serial));
    }
    assert_eq!(roots.len(), 1, "there is more than one root");
    for (serial, history) in seen {
        assert!(
            is_linearizable(&history),
            "this cannot have happened to the certificate {serial}: {history:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lost_its_disk_comes_back_and_leadership_is_handed_over() {
    let replicas = Replicas::start(REPLICAS, Draw::seed() & 0xffff).await;
    let serial = eventually("a certificate", async || replicas.bootstrap(1, 0).await).await.serial;
    replicas.kill(0);
    replicas.lose_disk(0);
    replicas.run(0);
    replicas.settle().await;
    eventually("what it lost", async || replicas.lives(0).await.contains_key(&serial).then_some(())).await;
    let leader = replicas.leader().await;
    let next = (leader + 1) % REPLICAS;
    let moved = eventually("a transfer", async || replicas.transfer(leader, next).await).await;
    assert_eq!(moved, next);
    eventually("a certificate", async || replicas.bootstrap(leader, 1).await).await;
    replicas.well.store(true, Ordering::Relaxed);
}

/// The files below a directory, and what is in them.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Copies the files below a directory to below another one.
fn copy(from: &Path, to: &Path) {
    for (path, bytes) in contents(from) {
        let copy = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::write(copy, bytes).unwrap();
    }
}

/// What the reason has to say, and how it comes about.
type Trouble<'a> = (&'a str, Box<dyn Fn() + 'a>);

/// Spoils the file that the database begins with; `raft` tries all others.
fn damage(ledger: &Path) {
    std::fs::write(ledger.join("db/CURRENT"), "MANIF").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_cannot_use_its_disk_stops_with_the_reason_and_the_others_go_on() {
    let replicas = Replicas::start(REPLICAS, Draw::seed() & 0xffff).await;
    for pod in 0..40 {
        eventually("a certificate", async || replicas.bootstrap(pod % REPLICAS, pod).await).await;
    }
    replicas.kill(2);
    let (ledger, aside) = (replicas.ledger(2), replicas.ledger(2).with_extension("aside"));
    std::fs::rename(&ledger, &aside).unwrap();
    let troubles: [Trouble<'_>; 3] = [
        ("is damaged", Box::new(|| damage(&ledger))),
        ("has format 99", Box::new(|| std::fs::write(ledger.join("format"), "smc-ledger 99\n").unwrap())),
        (
            "those of replica 1",
            Box::new(|| {
                std::fs::remove_dir_all(&ledger).unwrap();
                replicas.kill(1);
                copy(&replicas.ledger(1), &ledger);
                replicas.run(1);
            }),
        ),
    ];
    for (reason, trouble) in troubles {
        copy(&aside, &ledger);
        trouble();
        let before = contents(&ledger);
        replicas.run(2);
        let said = replicas.failure(2).await;
        assert!(said.contains(reason), "{said:?} does not say {reason:?}");
        let after = contents(&ledger);
        // A lock is taken before anything else is looked at, and the diagnostics of who reads are not the ledger.
        let touched: Vec<_> =
            before.iter().filter(|(path, bytes)| after.get(*path) != Some(*bytes)).collect();
        assert!(
            touched.is_empty(),
            "it changed {:?}",
            touched.iter().map(|(path, _)| path).collect::<Vec<_>>()
        );
        eventually("a certificate", async || replicas.bootstrap(0, 50).await).await;
        std::fs::remove_dir_all(&ledger).unwrap();
    }
    std::fs::rename(&aside, &ledger).unwrap();
    replicas.run(2);
    replicas.settle().await;
    replicas.well.store(true, Ordering::Relaxed);
}
