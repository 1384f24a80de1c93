//! Tests on real files: durability through `kill -9`, replay, refusals.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use tempfile::TempDir;

use super::commands::{commit, found, hash, holds, issue};
use super::group::{open, try_open};
use crate::group::{Group, GroupError};
use crate::replicated::{ProposeError, ReplicatedLedger};
use crate::storage::Storage;
use crate::storage::error::StorageError;

/// The number of entries in a test with a snapshot in the middle.
const MANY: u32 = 60;

async fn directory(path: &Path) -> Group {
    open(Storage::Directory(path.to_owned())).await
}

/// The error that opening `path` gives.
async fn refusal(path: &Path) -> std::sync::Arc<StorageError> {
    match try_open(Storage::Directory(path.to_owned())).await {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(GroupError::Storage(error)) => error,
        Err(error) => panic!("not an error of the storage: {error}"),
    }
}

/// Takes a snapshot and waits for it.
async fn snapshot(group: &Group) {
    let before = group.status().applied;
    group.snapshot().await.unwrap();
    while group.status().snapshot < before {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_was_committed_is_there_after_reopening() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger");
    let ledger = directory(&path).await;
    commit(&ledger, vec![found()]).await;
    commit(&ledger, (2..50).map(issue).collect()).await;
    snapshot(&ledger).await;
    commit(&ledger, (50..70).map(issue).collect()).await;
    let before = hash(&ledger);
    ledger.stop().await;
    drop(ledger);

    let ledger = directory(&path).await;
    assert_eq!(hash(&ledger), before);
    assert_eq!(ledger.propose(vec![found()]).await.unwrap().len(), 1);
    ledger.stop().await;
}

#[tokio::test]
async fn the_directory_is_closed_to_other_users() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a/b");
    directory(&path).await.stop().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    directory(&path).await.stop().await;
    assert_eq!(mode(&path), 0o700);
}

#[tokio::test]
async fn a_second_opener_is_refused_until_the_first_closes() {
    let dir = TempDir::new().unwrap();
    let first = directory(dir.path()).await;
    assert!(matches!(*refusal(dir.path()).await, StorageError::Locked { .. }));
    commit(&first, vec![found()]).await;
    first.stop().await;
    drop(first);
    directory(dir.path()).await.stop().await;
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    directory(dir.path()).await.stop().await;
    for format in [2, 4] {
        fs::write(dir.path().join("format"), format!("smc-ledger {format}\n")).unwrap();
        let before = files(dir.path());
        let error = refusal(dir.path()).await;
        let other = matches!(*error, StorageError::OtherFormat { found, .. } if found == format);
        assert!(other, "{error}");
        assert_eq!(files(dir.path()), before);
    }
}

#[tokio::test]
async fn the_directory_of_another_replica_is_refused() {
    let dir = TempDir::new().unwrap();
    directory(dir.path()).await.stop().await;
    let mine = Storage::Directory(dir.path().to_owned());
    match super::group::try_open_as(1, mine).await {
        Err(GroupError::Storage(error)) => {
            assert!(matches!(*error, StorageError::OtherReplica { .. }), "{error}");
        }
        _ => panic!("it was opened"),
    }
}

#[tokio::test]
async fn a_directory_of_something_else_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("thesis.txt"), "important").unwrap();
    let before = files(dir.path());
    let error = refusal(dir.path()).await;
    assert!(error.to_string().contains("thesis.txt"), "{error}");
    assert_eq!(files(dir.path()), before);
}

#[tokio::test]
async fn an_interrupted_creation_is_started_over() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("db")).unwrap();
    fs::write(dir.path().join("format.new"), "smc").unwrap();
    let ledger = directory(dir.path()).await;
    commit(&ledger, vec![found()]).await;
    ledger.stop().await;
    drop(ledger);
    // A ledger with entries is not an interrupted creation.
    fs::remove_file(dir.path().join("format")).unwrap();
    assert!(matches!(*refusal(dir.path()).await, StorageError::Corrupt { .. }));
}

/// Damages every file of a ledger in turn. Opening must find either all entries or the damage: it must
/// never panic, and never return a ledger with a gap.
#[tokio::test]
async fn damage_is_reported_and_the_damaged_files_are_left_alone() {
    let dir = TempDir::new().unwrap();
    let original = dir.path().join("original");
    let ledger = directory(&original).await;
    commit(&ledger, vec![found()]).await;
    for n in 2..MANY {
        commit(&ledger, vec![issue(n)]).await;
        if n == MANY / 2 {
            snapshot(&ledger).await;
        }
    }
    let intact = hash(&ledger);
    ledger.stop().await;
    drop(ledger);

    let mut refused = 0;
    for (file, bytes) in files(&original) {
        for (damage, broken) in [
            ("gone", None),
            ("empty", Some(Vec::new())),
            ("flipped", Some(flipped(&bytes))),
            ("rubbish", Some(vec![0xa5; bytes.len()])),
        ] {
            if broken.as_ref() == Some(&bytes) || (file.ends_with("lock") || file.ends_with("LOCK")) {
                continue;
            }
            let copy = dir.path().join("copy");
            copy_tree(&original, &copy);
            match broken {
                None => fs::remove_file(copy.join(&file)).unwrap(),
                Some(broken) => fs::write(copy.join(&file), broken).unwrap(),
            }
            let before = files(&copy);
            match try_open(Storage::Directory(copy.clone())).await {
                Ok(ledger) => {
                    assert_eq!(hash(&ledger), intact, "{} {damage}", file.display());
                    ledger.stop().await;
                }
                Err(error) => {
                    refused += 1;
                    let after = files(&copy);
                    let touched: Vec<_> =
                        after.keys().filter(|name| before.get(*name) != after.get(*name)).collect();
                    assert!(touched.is_empty(), "{} {damage}: {error}: {touched:?}", file.display());
                    assert_eq!(after.len(), before.len(), "{} {damage}: {error}", file.display());
                }
            }
            fs::remove_dir_all(&copy).unwrap();
        }
    }
    assert!(refused > 4, "only {refused} kinds of damage were noticed");
}

fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 0x10;
    }
    bytes
}

/// All files below `root` with their bytes, except RocksDB's own diagnostics.
pub(super) fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                todo.push(path);
            } else if name != "lock" && name != "LOG" && !name.starts_with("LOG.old") {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

pub(super) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A process with a limit on the size of a file gets the same error as one whose disk is full.
#[tokio::test]
#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "how the two processes find each other")]
async fn a_full_disk_stops_the_ledger_and_takes_nothing_that_was_acknowledged() {
    if let Some(path) = std::env::var_os(VICTIM) {
        let ledger = directory(Path::new(&path)).await;
        let failure = ledger.failure();
        commit(&ledger, vec![found()]).await;
        for n in 2..100_000 {
            if let Err(error) = ledger.propose(vec![issue(n)]).await {
                assert!(matches!(error, ProposeError::Failed(_)), "{error}");
                let again = ledger.propose(vec![issue(n)]).await;
                assert!(matches!(again, Err(ProposeError::Failed(_))), "{again:?}");
                assert!(matches!(ledger.barrier().await, Err(ProposeError::Failed(_))));
                assert!(failure.borrow().is_some());
                println!("\nacknowledged {}", n - 1);
                return;
            }
        }
        panic!("the disk was never full");
    }

    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger");
    let name = "tests::files::a_full_disk_stops_the_ledger_and_takes_nothing_that_was_acknowledged";
    let output = Process::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 400; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(VICTIM, &path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let acknowledged = said.lines().find_map(|line| line.strip_prefix("acknowledged "));
    let acknowledged: u32 = acknowledged.unwrap().parse().unwrap();
    assert!(acknowledged > 100, "only {acknowledged} commits fitted");
    let ledger = directory(&path).await;
    for n in 2..=acknowledged {
        assert!(holds(&ledger, n), "{n} of {acknowledged} is lost");
    }
    commit(&ledger, vec![issue(200_000)]).await;
    ledger.stop().await;
}

/// The test starts its own binary again with this variable set, and that process commits until it is killed.
const VICTIM: &str = "SMC_TEST_LEDGER_OF_THE_VICTIM";

#[tokio::test]
#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "how the two processes find each other")]
async fn every_acknowledged_command_survives_kill_9() {
    if let Some(path) = std::env::var_os(VICTIM) {
        let ledger = directory(Path::new(&path)).await;
        let next = ledger.local().read(|ledger| ledger.proxy_certificates().count());
        if next == 0 {
            commit(&ledger, vec![found()]).await;
        }
        for n in 2 + u32::try_from(next).unwrap().. {
            commit(&ledger, vec![issue(n)]).await;
            println!("\nacknowledged {n}");
            if n % 11 == 0 {
                ledger.snapshot().await.unwrap();
            }
        }
    }

    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger");
    let mut acknowledged = 1;
    for round in 0..8u64 {
        let mut victim = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::files::every_acknowledged_command_survives_kill_9", "--nocapture"])
            .env(VICTIM, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Each round kills it after another number of commits, so that snapshots are interrupted as well.
        let mut left = 5 + round * 7;
        for line in BufReader::new(victim.stdout.take().unwrap()).lines() {
            let Some(n) = line.unwrap().strip_prefix("acknowledged ").map(|n| n.parse::<u32>().unwrap())
            else {
                continue;
            };
            acknowledged = n;
            left = left.saturating_sub(1);
            if left == 0 {
                // SIGKILL. Lines that it still writes count as acknowledged too.
                victim.kill().unwrap();
            }
        }
        victim.wait().unwrap();
        let ledger = directory(&path).await;
        for n in 2..=acknowledged {
            assert!(holds(&ledger, n), "round {round}: {n} of {acknowledged} is lost");
        }
        ledger.stop().await;
    }
    assert!(acknowledged > 100, "only {acknowledged} commits were tried");
}
