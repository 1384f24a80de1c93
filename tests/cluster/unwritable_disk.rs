//! Tests full and read-only disks: the replica stops with the reason, the others continue, and the
//! replica rejoins once its disk is writable.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::copy;
use crate::replicas::{Random, Replicas, eventually};
use crate::small_disk::SmallDisk;

const VICTIM: u64 = 2;

/// Kills the victim, and moves its ledger to a small disk.
fn with_small_disk(replicas: &Replicas) -> SmallDisk {
    replicas.kill(VICTIM);
    let ledger = replicas.ledger(VICTIM);
    let disk = SmallDisk::mount(&ledger);
    copy(&ledger, &disk.path());
    disk
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_a_full_disk_stops_with_the_reason_and_restarts_with_room() {
    let replicas = Replicas::start(3, Random::seed() & 0xffff).await;
    let disk = with_small_disk(&replicas);
    replicas.run_on(VICTIM, &disk);
    replicas.settle().await;
    eventually("a leader with a small disk", async || {
        let leader = replicas.leader().await;
        (leader == VICTIM || replicas.transfer(leader, VICTIM).await == Some(VICTIM)).then_some(())
    })
    .await;
    let before = eventually("a certificate", async || replicas.bootstrap(VICTIM, 0).await).await.serial;

    assert_eq!(replicas.leader().await, VICTIM);
    disk.fill();
    let mut meanwhile = Vec::new();
    let asking = async {
        // Writes until even the space that its files have reserved is used.
        loop {
            meanwhile.extend(replicas.bootstrap(0, 1).await.map(|issued| issued.serial));
            sleep(Duration::from_millis(20)).await;
        }
    };
    let output = tokio::select! {
        output = replicas.failure(VICTIM) => output,
        () = asking => unreachable!("the loop does not end"),
    };
    assert!(output.contains("No space left on device"), "{output}");
    let after = eventually("a certificate", async || replicas.bootstrap(1, 2).await).await.serial;

    disk.make_room();
    replicas.run_on(VICTIM, &disk);
    replicas.settle().await;
    // Of one pod's unclaimed certificates the last few are remembered.
    let last = meanwhile.split_off(meanwhile.len().saturating_sub(4));
    for serial in [before, after].into_iter().chain(last) {
        eventually("every acknowledged certificate", async || {
            replicas.states(VICTIM).await.contains_key(&serial).then_some(())
        })
        .await;
    }
    eventually("equal states", async || replicas.common_state_hash().await).await;
    replicas.passed.store(true, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_with_a_read_only_disk_does_not_start_and_the_others_run() {
    let replicas = Replicas::start(3, Random::seed() & 0xffff).await;
    let disk = with_small_disk(&replicas);
    disk.set_read_only();
    replicas.run_on(VICTIM, &disk);
    let output = replicas.failure(VICTIM).await;
    assert!(output.contains("Read-only file system"), "{output}");
    let meanwhile = eventually("a certificate", async || replicas.bootstrap(0, 0).await).await.serial;

    disk.set_writable();
    replicas.run_on(VICTIM, &disk);
    replicas.settle().await;
    eventually("every acknowledged certificate", async || {
        replicas.states(VICTIM).await.contains_key(&meanwhile).then_some(())
    })
    .await;
    replicas.passed.store(true, Ordering::Relaxed);
}
