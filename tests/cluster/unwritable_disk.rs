//! A disk that is full, or read-only: its replica stops with the reason, the others go on, and when it can be written again
//! the replica is one of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::copy;
use crate::replicas::{Draw, Replicas, eventually};
use crate::small_disk::SmallDisk;

const VICTIM: u64 = 2;

/// Kills the victim, and gives it a small disk with what is on its own.
fn moved(replicas: &Replicas) -> SmallDisk {
    replicas.kill(VICTIM);
    let ledger = replicas.ledger(VICTIM);
    let disk = SmallDisk::mount(&ledger);
    copy(&ledger, &disk.path());
    disk
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_is_full_stops_with_the_reason_and_goes_on_when_there_is_room_again() {
    let replicas = Replicas::start(3, Draw::seed() & 0xffff).await;
    let disk = moved(&replicas);
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
        // Until there is not even room in what its files have reserved.
        loop {
            meanwhile.extend(replicas.bootstrap(0, 1).await.map(|issued| issued.serial));
            sleep(Duration::from_millis(20)).await;
        }
    };
    let said = tokio::select! {
        said = replicas.failure(VICTIM) => said,
        () = asking => unreachable!("it goes on for ever"),
    };
    assert!(said.contains("No space left on device"), "{said}");
    let after = eventually("a certificate", async || replicas.bootstrap(1, 2).await).await.serial;

    disk.make_room();
    replicas.run_on(VICTIM, &disk);
    replicas.settle().await;
    for serial in [before, after].into_iter().chain(meanwhile) {
        eventually("what was acknowledged", async || {
            replicas.lives(VICTIM).await.contains_key(&serial).then_some(())
        })
        .await;
    }
    eventually("equal states", async || replicas.common_state_hash().await).await;
    replicas.well.store(true, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_disk_is_read_only_does_not_start_and_the_others_go_on() {
    let replicas = Replicas::start(3, Draw::seed() & 0xffff).await;
    let disk = moved(&replicas);
    disk.set_read_only();
    replicas.run_on(VICTIM, &disk);
    let said = replicas.failure(VICTIM).await;
    assert!(said.contains("Read-only file system"), "{said}");
    let meanwhile = eventually("a certificate", async || replicas.bootstrap(0, 0).await).await.serial;

    disk.set_writable();
    replicas.run_on(VICTIM, &disk);
    replicas.settle().await;
    eventually("what was acknowledged", async || {
        replicas.lives(VICTIM).await.contains_key(&meanwhile).then_some(())
    })
    .await;
    replicas.well.store(true, Ordering::Relaxed);
}
