//! Tests groups of three or five `smc controller` processes on loopback that are killed, paused,
//! partitioned and replaced at random, while clients issue, claim and release certificates.
//!
//! A seed determines the schedule, and is printed: `SMC_SEED=… SMC_ROUNDS=… SMC_REPLICAS=…` runs
//! the same one again, or a longer one (`make soak`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod api_server;
mod charged;
mod client;
mod commands;
mod failover;
mod flood;
mod hostile;
mod hostile_mesh;
mod hostile_objects;
mod key_file;
mod linearizable;
mod log_flood;
mod probe;
mod proxy;
mod raw_flood;
mod relay;
mod replicas;
mod shards;
mod small_disk;
mod starting;
mod unwritable_disk;
mod webhooks;
mod wrong_clock;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Client, Histories, LogicalClock};
use linearizable::{Action, Operation, State, is_linearizable};
use relay::Link;
use replicas::{PODS, Random, Replicas, eventually};
use smc_proto::admin::v1 as pb;
use smc_testkit::setting::setting;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Concurrent clients.
const CLIENTS: u64 = 4;

/// Defaults of a run.
const ROUNDS: u64 = 6;
const REPLICAS: u64 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_under_kills_partitions_and_lost_disks() {
    let seed = setting("SMC_SEED").unwrap_or_else(Random::seed);
    let rounds = setting("SMC_ROUNDS").unwrap_or(ROUNDS);
    let count = setting("SMC_REPLICAS").unwrap_or(REPLICAS);
    eprintln!("SMC_SEED={seed} SMC_ROUNDS={rounds} SMC_REPLICAS={count}");
    let mut random = Random::new(seed);
    let replicas = Arc::new(Replicas::start(count, random.below(1 << 16)).await);

    let done = Arc::new(AtomicBool::new(false));
    let clock = LogicalClock::default();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let mut client = Client {
            replicas: Arc::clone(&replicas),
            clock: clock.clone(),
            random: Random::new(seed ^ (number + 1)),
            pods: number * PODS / CLIENTS..(number + 1) * PODS / CLIENTS,
            histories: Histories::new(),
            unreleased: BTreeMap::new(),
            lost_releases: BTreeMap::new(),
        };
        let done = Arc::clone(&done);
        clients.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                client.run_once().await;
            }
            client.histories
        });
    }
    for round in 0..rounds {
        sleep(Duration::from_millis(300 + random.below(700))).await;
        let leader = replicas.leader().await;
        // Every other round hits the current leader.
        let victim = if round % 2 == 0 { leader } else { random.below(count) };
        let minority = 1 + random.below((count - 1) / 2);
        let victims: Vec<u64> = (0..minority).map(|n| (victim + n) % count).collect();
        inject_fault(&replicas, &mut random, round, &victims).await;
        replicas.settle().await;
    }
    done.store(true, Ordering::Relaxed);
    let mut histories = Histories::new();
    while let Some(recorded) = clients.join_next().await {
        for (serial, history) in recorded.unwrap() {
            assert!(histories.insert(serial, history).is_none(), "a serial number was issued twice");
        }
    }
    check_invariants(&replicas, &clock, histories, rounds).await;
    replicas.passed.store(true, Ordering::Relaxed);
}

/// Kills, pauses or partitions a minority for a while; or makes one replica lose its disk, and
/// kills another while the first catches up.
async fn inject_fault(replicas: &Replicas, random: &mut Random, round: u64, victims: &[u64]) {
    let others: Vec<u64> = (0..replicas.count).filter(|replica| !victims.contains(replica)).collect();
    let span = Duration::from_millis(200 + random.below(1500));
    match random.below(4) {
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
            let other = others[usize::try_from(random.below(others.len() as u64)).unwrap()];
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
            let cut = if random.below(2) == 0 { Link::Silent } else { Link::Broken };
            let how = random.below(3);
            let set = |link| {
                for victim in victims {
                    match how {
                        // Others cannot connect to the victim; it can connect to them.
                        0 => replicas.link_to(*victim, link),
                        // Only the link between the victim and one other replica is cut.
                        1 => replicas.link(*victim, others[0], link),
                        _ => {
                            for other in &others {
                                replicas.link(*victim, *other, link);
                            }
                        }
                    }
                }
            };
            let direction = ["inwards", "from one", "from all"][usize::try_from(how).unwrap()];
            eprintln!("round {round}: {victims:?} are cut off {direction}, {cut:?}");
            set(cut);
            sleep(span).await;
            set(Link::Up);
        }
    }
}

/// Checks the invariants after the last round.
async fn check_invariants(replicas: &Replicas, clock: &LogicalClock, mut histories: Histories, rounds: u64) {
    let times = |action| {
        let acknowledged =
            |operation: &&Operation| operation.action == action && operation.returned.is_some();
        histories.values().flatten().filter(acknowledged).count() as u64
    };
    let (issued, claims, releases) = (times(Action::Issue), times(Action::Claim), times(Action::Release));
    eprintln!("acknowledged: {issued} certificates, {claims} claims, {releases} releases of one");
    assert!(issued.min(claims).min(releases) > rounds, "too few operations to prove anything");

    let hash = eventually("equal states", async || replicas.common_state_hash().await).await;
    assert!(!hash.is_empty());
    let mut roots = BTreeSet::new();
    for replica in 0..replicas.count {
        let called = clock.next();
        let states = replicas.states(replica).await;
        let returned = Some(clock.next());
        for (serial, history) in &mut histories {
            // The first of a pod's certificates that are refused are forgotten, which refuses them as
            // well.
            let refused = history.iter().any(|operation| operation.action == Action::Release);
            let absent = if refused { State::Released } else { State::Absent };
            let state = states.get(serial).copied().unwrap_or(absent);
            assert!(
                state != State::Absent,
                "replica {replica} has lost the certificate {serial}: {history:?}"
            );
            history.push(Operation { called, returned, action: Action::Read(state) });
        }
        let status: pb::GetCaStatusResponse = replicas.ca_status(replica).await.unwrap();
        roots.extend(status.roots.into_iter().map(|root| root.serial));
    }
    assert_eq!(roots.len(), 1, "there is more than one root");
    for (serial, history) in histories {
        assert!(
            is_linearizable(&history),
            "the history of the certificate {serial} is not linearizable: {history:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_with_a_lost_disk_rejoins_and_leadership_is_transferred() {
    let replicas = Replicas::start(REPLICAS, Random::seed() & 0xffff).await;
    let serial = eventually("a certificate", async || replicas.bootstrap(1, 0).await).await.serial;
    replicas.kill(0);
    replicas.lose_disk(0);
    replicas.run(0);
    replicas.settle().await;
    eventually("the lost certificate", async || replicas.states(0).await.contains_key(&serial).then_some(()))
        .await;
    let leader = replicas.leader().await;
    let next = (leader + 1) % REPLICAS;
    let moved = eventually("a transfer", async || replicas.transfer(leader, next).await).await;
    assert_eq!(moved, next);
    eventually("a certificate", async || replicas.bootstrap(leader, 1).await).await;
    replicas.passed.store(true, Ordering::Relaxed);
}

/// Reads all files below a directory.
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

/// Copies all files below a directory.
fn copy(from: &Path, to: &Path) {
    for (path, bytes) in contents(from) {
        let copy = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::write(copy, bytes).unwrap();
    }
}

/// The expected error, and the action that causes it.
type Fault<'a> = (&'a str, Box<dyn Fn() + 'a>);

/// Damages the database's first file; the tests of `raft` cover the others.
fn damage(ledger: &Path) {
    std::fs::write(ledger.join("db/CURRENT"), "MANIF").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_with_an_unusable_disk_stops_with_the_reason_and_others_run() {
    let replicas = Replicas::start(REPLICAS, Random::seed() & 0xffff).await;
    for pod in 0..40 {
        eventually("a certificate", async || replicas.bootstrap(pod % REPLICAS, pod).await).await;
    }
    replicas.kill(2);
    let (ledger, aside) = (replicas.ledger(2), replicas.ledger(2).with_extension("aside"));
    std::fs::rename(&ledger, &aside).unwrap();
    let faults: [Fault<'_>; 3] = [
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
    for (reason, cause) in faults {
        copy(&aside, &ledger);
        cause();
        let before = contents(&ledger);
        replicas.run(2);
        let failure = replicas.failure(2).await;
        assert!(failure.contains(reason), "{failure:?} does not contain {reason:?}");
        let after = contents(&ledger);
        // The replica takes its lock first, and a RocksDB reader writes its own log files. Those
        // may be new.
        let changed: Vec<_> =
            before.iter().filter(|(path, bytes)| after.get(*path) != Some(*bytes)).collect();
        assert!(
            changed.is_empty(),
            "it changed {:?}",
            changed.iter().map(|(path, _)| path).collect::<Vec<_>>()
        );
        eventually("a certificate", async || replicas.bootstrap(0, 50).await).await;
        std::fs::remove_dir_all(&ledger).unwrap();
    }
    std::fs::rename(&aside, &ledger).unwrap();
    replicas.run(2);
    replicas.settle().await;
    replicas.passed.store(true, Ordering::Relaxed);
}
