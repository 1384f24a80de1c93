//! Tests the life of a group, operated with `smc cluster`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::contents;
use crate::replicas::{CommandOutput, Random, Replicas, eventually};

/// Parses `smc cluster status`: replica id → role.
async fn roles(replicas: &Replicas, asked: u64) -> BTreeMap<u64, String> {
    let output = replicas.ask(asked, &["status"]).await.unwrap();
    let table = output.lines().skip(1).take_while(|line| !line.is_empty());
    let role = |line: &str| {
        let line = line.replace(" (asked)", "");
        let mut columns = line.split_whitespace();
        let id = columns.next().unwrap().parse().unwrap();
        (id, columns.nth(1).unwrap().to_owned())
    };
    table.map(role).collect()
}

/// Parses the number that follows `word` in a command's output.
fn number(output: &str, word: &str) -> u64 {
    let (_, after) = output.split_once(word).unwrap_or_else(|| panic!("no {word:?} in {output}"));
    let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Issues a certificate for each pod; returns the serial numbers.
async fn issue(replicas: &Replicas, pods: std::ops::Range<u64>) -> BTreeSet<String> {
    let mut serials = BTreeSet::new();
    for pod in pods {
        let issued = eventually("a certificate", async || replicas.bootstrap(pod % 3, pod).await).await;
        serials.insert(issued.serial);
    }
    serials
}

/// Waits until every replica has these certificates.
async fn eventually_know(replicas: &Replicas, serials: &BTreeSet<String>) {
    for replica in 0..replicas.count {
        eventually("every certificate", async || {
            let states = replicas.states(replica).await;
            serials.iter().all(|serial| states.contains_key(serial)).then_some(())
        })
        .await;
    }
    eventually("equal states", async || replicas.common_state_hash().await).await;
}

fn refused(output: CommandOutput, reason: &str) {
    let output = output.expect_err("a refusal");
    assert!(output.contains(reason), "{output:?} does not contain {reason:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_show_a_group_transfer_its_leader_and_change_its_members() {
    let replicas = Replicas::start(3, Random::seed() & 0xffff).await;
    let before = issue(&replicas, 0..3).await;
    let leader = replicas.leader().await;
    let (next, last) = ((leader + 1) % 3, (leader + 2) % 3);
    // On a busy machine an election may change the leader at any moment.
    eventually("a transfer", async || {
        replicas.ask(last, &["transfer", &next.to_string()]).await.ok()?;
        (roles(&replicas, last).await[&next] == "leader").then_some(())
    })
    .await;
    refused(replicas.ask(next, &["transfer", "7"]).await, "replica 7 does not vote");

    replicas.ask(last, &["snapshot"]).await.unwrap();
    eventually("a snapshot", async || {
        let output = replicas.ask(last, &["status"]).await.unwrap();
        (number(&output, "applied,") > 1).then_some(())
    })
    .await;

    // Removes a replica, and adds it again with an empty disk. It starts with the address of an
    // unknown member only; the others contact it.
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
    replicas.run_with_members(last, &[format!("{last}={address}"), "9=127.0.0.1:1".to_owned()]);
    eventually("an addition", async || {
        replicas.ask(leader, &["add", &last.to_string(), &address]).await.ok()
    })
    .await;
    replicas.settle().await;
    eventually("another epoch", async || Some(epoch(leader).await).filter(|now| *now > of_two)).await;
    eventually_know(&replicas, &before).await;
    replicas.passed.store(true, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_recovered_from_one_disk_or_from_a_backup() {
    let replicas = Replicas::start(3, Random::seed() & 0xffff).await;
    let all = issue(&replicas, 0..4).await;

    // All replicas stop, and two lose their disks.
    for replica in 0..3 {
        replicas.kill(replica);
    }
    let mut furthest = ((0, 0), 0);
    for replica in 0..3 {
        let files = || -> BTreeMap<PathBuf, Vec<u8>> {
            let mut files = contents(&replicas.ledger(replica));
            // RocksDB's own log files.
            files.retain(|path, _| {
                !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LOG"))
            });
            files
        };
        let before = files();
        let data = replicas.data(replica).display().to_string();
        let output = replicas.command(&["recover", "--data-dir", &data]).await.unwrap();
        assert_eq!(files(), before, "without --confirm nothing changes");
        furthest = furthest.max(((number(&output, "\nterm"), number(&output, "entry")), replica));
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
    eventually_know(&replicas, &all).await;

    // Makes a backup in the middle of a change of the key-encryption key: the mesh's keys are still
    // sealed with the old one.
    let (old, new) = (replicas.key(), replicas.new_key("08"));
    for keys in [[&old, &new], [&new, &old]] {
        replicas.set_keys(&keys.map(PathBuf::as_path));
        for replica in 0..3 {
            replicas.kill(replica);
            replicas.run(replica);
            replicas.settle().await;
        }
    }
    let backup = replicas.directory().join("backup");
    let file = backup.display().to_string();
    replicas.ask(1, &["backup", &file]).await.unwrap();
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    refused(replicas.ask(1, &["backup", &file]).await, "is there already");
    let later = issue(&replicas, 4..5).await;
    let restore = async |file: &str, keys: &[&str]| {
        replicas.command(&[&["restore", file, "--data-dir", &data, "--kek-file"], keys].concat()).await
    };
    let (old, new) = (old.display().to_string(), new.display().to_string());
    let both = [new.as_str(), "--also-kek-file", &old];
    refused(restore(&file, &both).await, "in use by another process");

    // All replicas lose their disks.
    for replica in 0..3 {
        replicas.kill(replica);
    }
    refused(restore(&file, &both).await, "into an empty one");
    for replica in 0..3 {
        replicas.lose_disk(replica);
    }
    let half = replicas.directory().join("half");
    let whole = std::fs::read(&backup).unwrap();
    std::fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    refused(restore(&half.display().to_string(), &both).await, "half: the backup is damaged or incomplete");
    let stranger = replicas.new_key("09").display().to_string();
    refused(restore(&file, &[&stranger]).await, "another key-encryption key");
    refused(restore(&file, &[&new]).await, "--also-kek-file");
    let id = survivor.to_string();
    let address = replicas.raft_address(survivor);
    let here = ["--replica-id", &id, "--raft-address", &address];
    restore(&file, &[&both[..], &here].concat()).await.unwrap();
    for replica in 0..3 {
        replicas.run(replica);
    }
    replicas.settle().await;
    eventually_know(&replicas, &all).await;
    let states = replicas.states(0).await;
    assert!(later.iter().all(|serial| !states.contains_key(serial)), "the backup is from before");
    replicas.passed.store(true, Ordering::Relaxed);
}

/// Disk 0 is restored, and 1 and 2, a majority of the former group, are not emptied: both groups would issue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_former_group_end_beside_a_restored_one() {
    let replicas = Replicas::start(3, Random::seed() & 0xffff).await;
    let all = issue(&replicas, 0..2).await;
    let file = replicas.directory().join("backup").display().to_string();
    replicas.ask(1, &["backup", &file]).await.unwrap();
    for replica in 0..3 {
        replicas.kill(replica);
    }
    replicas.lose_disk(0);
    let data = replicas.data(0).display().to_string();
    let (kek, address) = (replicas.key().display().to_string(), replicas.raft_address(0));
    let restore = ["restore", &file, "--data-dir", &data, "--kek-file", &kek, "--raft-address", &address];
    replicas.command(&restore).await.unwrap();
    // Those of the former group have a leader before the restored one runs.
    for replica in [1, 2] {
        replicas.run(replica);
    }
    replicas.ready(1).await;
    replicas.run(0);
    for replica in [1, 2] {
        eventually("the end of a former member", async || {
            replicas.log_text(replica).contains("a person restored or recovered the group").then_some(())
        })
        .await;
        refused(replicas.ask(replica, &["status"]).await, "admin.sock");
        replicas.kill(replica);
        replicas.lose_disk(replica);
        replicas.run(replica);
    }
    replicas.settle().await;
    eventually_know(&replicas, &all).await;
    replicas.passed.store(true, Ordering::Relaxed);
}
