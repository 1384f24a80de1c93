//! The life of a group by `smc cluster`, as a person would lead it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::contents;
use crate::replicas::{Draw, Replicas, eventually};

/// What `smc cluster status` says of each replica: id → role.
async fn roles(replicas: &Replicas, asked: u64) -> BTreeMap<u64, String> {
    let said = replicas.ask(asked, &["status"]).await.unwrap();
    let table = said.lines().skip(1).take_while(|line| !line.is_empty());
    let role = |line: &str| {
        let line = line.replace(" (asked)", "");
        let mut columns = line.split_whitespace();
        let id = columns.next().unwrap().parse().unwrap();
        (id, columns.nth(1).unwrap().to_owned())
    };
    table.map(role).collect()
}

/// The number that follows on a word in what was said.
fn number(said: &str, word: &str) -> u64 {
    let (_, after) = said.split_once(word).unwrap_or_else(|| panic!("no {word:?} in {said}"));
    let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Issues a certificate for each pod; the answer is the serial numbers.
async fn issue(replicas: &Replicas, pods: std::ops::Range<u64>) -> BTreeSet<String> {
    let mut serials = BTreeSet::new();
    for pod in pods {
        let issued = eventually("a certificate", async || replicas.bootstrap(pod % 3, pod).await).await;
        serials.insert(issued.serial);
    }
    serials
}

/// Waits until every replica knows these certificates.
async fn know(replicas: &Replicas, serials: &BTreeSet<String>) {
    for replica in 0..replicas.count {
        eventually("every certificate", async || {
            let lives = replicas.lives(replica).await;
            serials.iter().all(|serial| lives.contains_key(serial)).then_some(())
        })
        .await;
    }
    eventually("equal states", async || replicas.common_state_hash().await).await;
}

fn refused(said: Result<String, String>, reason: &str) {
    let said = said.expect_err("a refusal");
    assert!(said.contains(reason), "{said:?} does not say {reason:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_looked_at_led_and_changed_by_commands() {
    let replicas = Replicas::start(3, Draw::seed() & 0xffff).await;
    let before = issue(&replicas, 0..3).await;
    let leader = replicas.leader().await;
    let (next, last) = ((leader + 1) % 3, (leader + 2) % 3);
    // On a busy machine another one may be elected at any moment.
    eventually("a transfer", async || {
        replicas.ask(last, &["transfer", &next.to_string()]).await.ok()?;
        (roles(&replicas, last).await[&next] == "leader").then_some(())
    })
    .await;
    refused(replicas.ask(next, &["transfer", "7"]).await, "replica 7 does not vote");

    replicas.ask(last, &["snapshot"]).await.unwrap();
    eventually("a snapshot", async || {
        let said = replicas.ask(last, &["status"]).await.unwrap();
        (number(&said, "applied,") > 1).then_some(())
    })
    .await;

    // Out, and in again with another disk, called in by the others: it knows none of them.
    let epoch = async |asked: u64| number(&replicas.ask(asked, &["status"]).await.unwrap(), "shard epoch");
    let of_three = epoch(next).await;
    eventually("a removal", async || replicas.ask(leader, &["remove", &last.to_string()]).await.ok()).await;
    let left: Vec<u64> = roles(&replicas, leader).await.into_keys().collect();
    assert!(!left.contains(&last), "{left:?}");
    let of_two =
        eventually("another epoch", async || Some(epoch(next).await).filter(|now| *now > of_three)).await;
    replicas.kill(last);
    replicas.lose_disk(last);
    let address = replicas.raft_address(last);
    replicas.run_knowing(last, &[format!("{last}={address}"), "9=127.0.0.1:1".to_owned()]);
    eventually("an addition", async || {
        replicas.ask(leader, &["add", &last.to_string(), &address]).await.ok()
    })
    .await;
    replicas.settle().await;
    assert!(epoch(leader).await > of_two);
    know(&replicas, &before).await;
    replicas.well.store(true, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_on_one_disk_or_in_a_backup_becomes_a_group_again() {
    let replicas = Replicas::start(3, Draw::seed() & 0xffff).await;
    let all = issue(&replicas, 0..4).await;

    // All stop, and two disks are lost.
    for replica in 0..3 {
        replicas.kill(replica);
    }
    let mut furthest = ((0, 0), 0);
    for replica in 0..3 {
        let files = || -> BTreeMap<PathBuf, Vec<u8>> {
            let mut files = contents(&replicas.ledger(replica));
            // What RocksDB says of itself.
            files.retain(|path, _| {
                !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LOG"))
            });
            files
        };
        let before = files();
        let data = replicas.data(replica).display().to_string();
        let said = replicas.command(&["recover", "--data-dir", &data]).await.unwrap();
        assert_eq!(files(), before, "it only looked");
        furthest = furthest.max(((number(&said, "\nterm"), number(&said, "entry")), replica));
    }
    let (_, survivor) = furthest;
    let data = replicas.data(survivor).display().to_string();
    replicas.command(&["recover", "--data-dir", &data, "--confirm"]).await.unwrap();
    for replica in (0..3).filter(|replica| *replica != survivor) {
        replicas.lose_disk(replica);
    }
    for replica in 0..3 {
        replicas.run(replica);
    }
    replicas.settle().await;
    know(&replicas, &all).await;

    // The key-encryption key is about to be changed when a backup is made; the mesh's keys are still sealed with the old one.
    let (old, new) = (replicas.key(), replicas.new_key("08"));
    replicas.set_keys(&[&old, &new]);
    for replica in 0..3 {
        replicas.kill(replica);
        replicas.run(replica);
        replicas.settle().await;
    }
    replicas.set_keys(&[&new, &old]);
    for replica in 0..3 {
        replicas.kill(replica);
        replicas.run(replica);
        replicas.settle().await;
    }
    let backup = replicas.directory().join("backup");
    let file = backup.display().to_string();
    replicas.ask(1, &["backup", &file]).await.unwrap();
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    refused(replicas.ask(1, &["backup", &file]).await, "is there already");
    let later = issue(&replicas, 4..5).await;
    let running = ["restore", &file, "--data-dir", &data, "--kek-file"];
    let restore = async |file: &str, more: &[&str]| {
        let new = new.display().to_string();
        replicas.command(&[&["restore", file, "--data-dir", &data, "--kek-file", &new], more].concat()).await
    };
    let old = old.display().to_string();
    refused(restore(&file, &["--also-kek-file", &old]).await, "in use by another process");

    // All disks are lost.
    for replica in 0..3 {
        replicas.kill(replica);
    }
    refused(restore(&file, &["--also-kek-file", &old]).await, "into an empty one");
    for replica in 0..3 {
        replicas.lose_disk(replica);
    }
    let half = replicas.directory().join("half");
    let whole = std::fs::read(&backup).unwrap();
    std::fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    refused(
        restore(&half.display().to_string(), &["--also-kek-file", &old]).await,
        "half: the backup is damaged or incomplete",
    );
    let stranger = replicas.new_key("09").display().to_string();
    refused(
        replicas.command(&[&running[..], &[stranger.as_str()]].concat()).await,
        "another key-encryption key",
    );
    refused(restore(&file, &[]).await, "--also-kek-file");
    let id = survivor.to_string();
    let address = replicas.raft_address(survivor);
    let here = ["--also-kek-file", &old, "--replica-id", &id, "--raft-address", &address];
    restore(&file, &here).await.unwrap();
    for replica in 0..3 {
        replicas.run(replica);
    }
    replicas.settle().await;
    know(&replicas, &all).await;
    let lives = replicas.lives(0).await;
    assert!(later.iter().all(|serial| !lives.contains_key(serial)), "the backup is from before");
    replicas.well.store(true, Ordering::Relaxed);
}
