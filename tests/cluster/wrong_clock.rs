//! A replica whose clock is wrong, as a process among others whose clocks are right.

use std::sync::atomic::Ordering;
use std::time::Duration;

use smc_proto::admin::v1 as pb;
use tokio::time::sleep;

use crate::REPLICAS;
use crate::probe::probe;
use crate::replicas::{Issued, Random, Replicas, eventually};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// How long the clock is wrong after the replica has noticed it. At 53 entries a second, what a wrong clock
/// once cost would be far above [`MOST_ENTRIES`].
const WRONG: Duration = Duration::from_secs(6);

/// The entries of one fault: those of the certificates that are asked for meanwhile, of a root that is begun
/// and given up, of acknowledgements, and of an election.
const MOST_ENTRIES: u64 = 40;

/// How long a root that is begun may wait: no longer than the service certificates from before live, which is
/// two days and their jitter.
const LONGEST_WAIT: i64 = 4 * DAY;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Ahead,
    Behind,
    /// To and fro, as of a host with two time daemons.
    Jumping,
    /// Thirty seconds each second.
    Drifting,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_a_wrong_clock_says_so_and_costs_the_others_nothing() {
    let replicas = Replicas::start_with_clocks(REPLICAS, Random::seed() & 0xffff).await;
    eventually("an agreed time everywhere", async || all_agree(&replicas).await).await;
    let issued = eventually("a certificate", async || replicas.bootstrap(0, 0).await).await;
    eventually("service", async || replicas.is_served(0, &issued.bootstrap).await.then_some(())).await;
    for (fault, victim) in [(Fault::Behind, 0), (Fault::Jumping, 1), (Fault::Drifting, 2), (Fault::Ahead, 0)]
    {
        // The first victim leads, and the last: a leader whose clock is wrong blocks no work of others.
        let wrong = (replicas.leader().await + victim) % REPLICAS;
        be_wrong(&replicas, fault, wrong, &issued).await;
        if fault == Fault::Behind {
            start_wrong(&replicas, wrong).await;
        }
        if fault == Fault::Ahead {
            root_signs(&replicas, (wrong + 1) % REPLICAS).await;
        }
        replicas.set_clock(wrong, 0, 0);
        eventually("a right clock", async || all_agree(&replicas).await).await;
        let again = eventually("a certificate", async || replicas.bootstrap(wrong, 1).await).await;
        eventually("service", async || replicas.is_served(wrong, &again.bootstrap).await.then_some(())).await;
        eventually("equal states", async || replicas.common_state_hash().await).await;
    }
    replicas.passed.store(true, Ordering::Relaxed);
}

/// docs/operation.md#a-group-that-was-off-for-years, step by step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_root_has_ended_is_founded_again_as_the_page_says() {
    let replicas = Replicas::start_with_clocks(REPLICAS, Random::seed() & 0xffff).await;
    let root = async || Some(replicas.ca_status(0).await?.roots.first()?.serial.clone());
    let former = eventually("a root", root).await;
    for replica in 0..REPLICAS {
        replicas.kill(replica);
        replicas.set_clock(replica, 11 * 365 * DAY, 0);
    }
    for replica in 0..REPLICAS {
        replicas.run(replica);
    }
    // A majority: when these have ended, the last one waits for a leader.
    let reason = format!("the root {former} cannot sign");
    eventually("replicas that say so", async || {
        let ended = (0..REPLICAS).filter(|replica| replicas.log_text(*replica).contains(&reason)).count();
        (2 * ended > REPLICAS.try_into().unwrap()).then_some(())
    })
    .await;
    for replica in 0..REPLICAS {
        replicas.kill(replica);
        let log = replicas.log_text(replica);
        assert_eq!(
            log.contains(&reason),
            log.contains("docs/operation.md#a-group-that-was-off-for-years"),
            "{log}"
        );
    }
    for replica in 0..REPLICAS {
        std::fs::remove_dir_all(replicas.ledger(replica)).unwrap();
        replicas.run(replica);
    }
    // The first founds nothing as long as the note says that there has been an authority.
    let note = replicas.key().with_extension("founded");
    let refused = replicas.failure(0).await;
    assert!(refused.contains(&format!("remove {} to found a new authority", note.display())), "{refused}");
    std::fs::remove_file(note).unwrap();
    replicas.run(0);
    eventually("an agreed time everywhere", async || all_agree(&replicas).await).await;
    assert_ne!(eventually("a root", root).await, former);
    eventually("a certificate", async || replicas.bootstrap(1, 0).await).await;
    replicas.passed.store(true, Ordering::Relaxed);
}

/// One replica's clock is wrong for a while. It is not put right.
async fn be_wrong(replicas: &Replicas, fault: Fault, wrong: u64, issued: &Issued) {
    let right = (wrong + 1) % REPLICAS;
    let before = service_certificates(replicas, right).await;
    let written = replicas.status(right).await.unwrap().last;
    let said = replicas.log_text(wrong).len();
    match fault {
        Fault::Ahead => replicas.set_clock(wrong, 365 * DAY, 0),
        Fault::Behind => replicas.set_clock(wrong, -3 * DAY, 0),
        Fault::Drifting => replicas.set_clock(wrong, 0, 30),
        Fault::Jumping => {
            for ahead in [365 * DAY, 0, -30 * DAY, HOUR, -HOUR, 3650 * DAY] {
                replicas.set_clock(wrong, ahead, 0);
                sleep(WRONG / 6).await;
            }
        }
    }
    eventually("an unready replica", async || (!is_ready(replicas, wrong).await).then_some(())).await;
    eventually("a line in its log", async || {
        let log = replicas.log_text(wrong);
        log[said..].contains("not ready, and issuing nothing, until the clock is right").then_some(())
    })
    .await;
    // After the answer of one other replica, and before that of the next, it knows of two clocks that differ.
    eventually("its status", async || {
        replicas.status(wrong).await?.clock_problem.contains("this replica's clock is").then_some(())
    })
    .await;
    assert!(replicas.bootstrap(wrong, 2).await.is_none(), "{fault:?}: it issues by a wrong clock");
    sleep(WRONG).await;
    for other in (0..REPLICAS).filter(|other| *other != wrong) {
        assert!(is_ready(replicas, other).await, "{fault:?}: replica {other}, whose clock is right");
        eventually("a certificate", async || replicas.bootstrap(other, 3 + other).await).await;
    }
    eventually("service by what was issued before", async || {
        replicas.is_served(wrong, &issued.bootstrap).await.then_some(())
    })
    .await;

    let request = pb::RotateCaRequest { root: true, ..Default::default() };
    eventually("a next root", async || replicas.rotate_ca(right, request).await).await;
    let rotation = eventually("a rotation", async || replicas.ca_status(right).await?.root_rotation).await;
    let wait = rotation.earliest - Replicas::right_time();
    assert!(wait < LONGEST_WAIT, "{fault:?}: the root waits for {wait} s");
    let request = pb::RotateCaRequest { root: true, cancel: true, ..Default::default() };
    eventually("no next root", async || replicas.rotate_ca(right, request).await).await;

    assert_eq!(service_certificates(replicas, right).await, before, "{fault:?}: a certificate was replaced");
    let written = replicas.status(right).await.unwrap().last - written;
    assert!(written <= MOST_ENTRIES, "{fault:?}: {written} entries were written");
}

/// The replica starts with its wrong clock, and does not serve.
async fn start_wrong(replicas: &Replicas, wrong: u64) {
    let said = replicas.log_text(wrong).len();
    replicas.kill(wrong);
    replicas.run(wrong);
    eventually("a line in its log", async || {
        replicas.log_text(wrong)[said..].contains("not serving until the clocks agree").then_some(())
    })
    .await;
    assert!(!is_ready(replicas, wrong).await);
}

/// A new root signs, although a replica's clock is wrong.
async fn root_signs(replicas: &Replicas, right: u64) {
    let request = pb::RotateCaRequest { root: true, ..Default::default() };
    let next = eventually("a next root", async || replicas.rotate_ca(right, request).await).await.serial;
    let request = pb::RotateCaRequest { root: true, hasten: true, ..Default::default() };
    eventually("a hastened root", async || replicas.rotate_ca(right, request).await).await;
    eventually("a root that signs", async || {
        let rotation = replicas.ca_status(right).await?.root_rotation?;
        (rotation.root == next && rotation.signing).then_some(())
    })
    .await;
}

async fn is_ready(replicas: &Replicas, replica: u64) -> bool {
    probe(replicas.metrics(replica), "/readyz").await.as_deref() == Some("HTTP/1.1 200 OK")
}

/// Whether every replica is ready, and knows of a time that all have agreed on.
async fn all_agree(replicas: &Replicas) -> Option<()> {
    for replica in 0..REPLICAS {
        let agreed = replicas.ca_status(replica).await?.agreed_time != 0;
        let right = replicas.status(replica).await?.clock_problem.is_empty();
        if !agreed || !right || !is_ready(replicas, replica).await {
            return None;
        }
    }
    Some(())
}

/// The service certificates on record at a replica, with their validity.
async fn service_certificates(replicas: &Replicas, replica: u64) -> Vec<pb::ServiceCertificate> {
    let status = eventually("the CA's status", async || replicas.ca_status(replica).await).await;
    assert!(!status.service_certificates.is_empty());
    status.service_certificates
}
