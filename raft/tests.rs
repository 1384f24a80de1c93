//! What the files promise, tried on real files: durability through `kill -9`, replay, pruning, refusals.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use smc_mesh::ids::{ProxyName, ProxyUuid, ServiceAccountId, TrustDomain};
use smc_mesh::ledger::{Authority, CaCertificate, Command, Ledger, Operation, Rejection, Reply, StateHash};
use smc_mesh::pki::{Fingerprint, SealedKey, SerialNumber, Validity};
use smc_mesh::time::Timestamp;
use tempfile::TempDir;

use crate::error::StorageError;
use crate::local::{LocalLedger, MAX_COMMANDS};
use crate::replicated::{ProposeError, ReplicatedLedger};

const NOW: Timestamp = Timestamp(1_800_000_000);

/// A log short enough that tests see many snapshots.
const SMALL: u64 = 4 * 1024;

fn serial(n: u32) -> SerialNumber {
    let mut octets = [0; 16];
    octets[12..].copy_from_slice(&n.to_be_bytes());
    SerialNumber::draw(octets)
}

fn year() -> Validity {
    Validity { not_before: NOW, not_after: NOW.plus(Duration::from_hours(365 * 24)) }
}

fn found() -> Command {
    let ca = |n| CaCertificate {
        serial: serial(n),
        validity: year(),
        certificate_pem: "PEM".to_owned(),
        key: SealedKey { encryption_key: "k".to_owned(), sealed: vec![1] },
    };
    let trust_domain = TrustDomain::new("cluster.local").unwrap();
    let authority = Authority { trust_domain, root: ca(0), issuing: ca(1) };
    Command { at: NOW, operation: Operation::InitAuthority(Box::new(authority)) }
}

/// Issues certificate `n`, from 2 on, to a proxy of its own.
fn issue(n: u32) -> Command {
    let operation = Operation::RecordProxyCertificate {
        serial: serial(n),
        proxy: ProxyName::new(ProxyUuid(uuid::Uuid::from_u128(n.into())), "bookstore").unwrap(),
        service_account: Some(ServiceAccountId::new("bookstore", "v1").unwrap()),
        validity: year(),
        issuer: serial(1),
        fingerprint: Fingerprint::of(&n.to_be_bytes()),
    };
    Command { at: NOW, operation }
}

fn hash(ledger: &LocalLedger) -> StateHash {
    ledger.local().read(Ledger::state_hash).unwrap()
}

fn holds(ledger: &LocalLedger, n: u32) -> bool {
    ledger.local().read(|ledger| ledger.proxy_certificate(&serial(n)).is_some())
}

async fn commit(ledger: &LocalLedger, commands: Vec<Command>) {
    for outcome in ledger.propose(commands).await.unwrap() {
        outcome.unwrap();
    }
}

fn error(path: &Path) -> StorageError {
    match LocalLedger::open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn what_was_committed_is_there_after_reopening() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger");
    let ledger = LocalLedger::open(&path).unwrap();
    commit(&ledger, vec![found()]).await;
    commit(&ledger, (2..50).map(issue).collect()).await;
    let before = hash(&ledger);
    ledger.close();

    let ledger = LocalLedger::open(&path).unwrap();
    assert_eq!(hash(&ledger), before);
    assert_eq!(ledger.propose(vec![found()]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_rejection_is_an_answer_and_replays_as_one() {
    let dir = TempDir::new().unwrap();
    let ledger = LocalLedger::open(dir.path()).unwrap();
    let outcomes = ledger.propose(vec![issue(2), found(), issue(2), issue(2)]).await.unwrap();
    let expected = [
        Err(Rejection::NotFounded),
        Ok(Reply::Founded),
        Ok(Reply::Recorded),
        Err(Rejection::DuplicateSerial(serial(2))),
    ];
    assert_eq!(outcomes, expected);
    let before = hash(&ledger);
    ledger.close();
    assert_eq!(hash(&LocalLedger::open(dir.path()).unwrap()), before);
}

#[tokio::test]
async fn snapshots_bound_the_log_and_lose_nothing() {
    let dir = TempDir::new().unwrap();
    let ledger = LocalLedger::open_with(dir.path(), SMALL).unwrap();
    commit(&ledger, vec![found()]).await;
    for n in 2..400 {
        commit(&ledger, vec![issue(n)]).await;
    }
    let before = hash(&ledger);
    ledger.close();

    let (store, state) = crate::store::LedgerStore::open(dir.path(), SMALL).unwrap();
    assert_eq!(state.state_hash().unwrap(), before);
    let (log, snapshot) = store.sizes();
    assert!(snapshot > 0 && log <= snapshot.max(SMALL) + 1024, "{log} bytes of log, {snapshot} of snapshot");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_proposals_are_all_committed_and_each_gets_its_own_answer() {
    let dir = TempDir::new().unwrap();
    let ledger = std::sync::Arc::new(LocalLedger::open(dir.path()).unwrap());
    commit(&ledger, vec![found()]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..32u32 {
        let ledger = std::sync::Arc::clone(&ledger);
        tasks.spawn(async move {
            for n in 0..16 {
                // Neighbours propose the same serials: exactly one of each pair is recorded.
                let outcomes = ledger.propose(vec![issue(2 + client / 2 * 16 + n)]).await.unwrap();
                assert_eq!(outcomes.len(), 1);
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    assert_eq!(ledger.local().read(|ledger| ledger.proxy_certificates().count()), 256);
}

#[tokio::test]
async fn an_oversized_proposal_is_refused_and_the_next_one_taken() {
    let dir = TempDir::new().unwrap();
    let ledger = LocalLedger::open(dir.path()).unwrap();
    let many = vec![issue(2); MAX_COMMANDS + 1];
    assert!(matches!(ledger.propose(many).await, Err(ProposeError::TooLarge { .. })));
    let mut huge = issue(2);
    if let Operation::RecordProxyCertificate { proxy, .. } = &mut huge.operation {
        proxy.namespace = "x".repeat(2 * 1024 * 1024).into();
    }
    assert!(matches!(ledger.propose(vec![huge]).await, Err(ProposeError::TooLarge { .. })));
    commit(&ledger, vec![found()]).await;
    ledger.barrier().await.unwrap();
}

#[tokio::test]
async fn the_directory_is_closed_to_others() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a/b");
    drop(LocalLedger::open(&path).unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    drop(LocalLedger::open(&path).unwrap());
    assert_eq!(mode(&path), 0o700);
}

#[tokio::test]
async fn a_second_opener_is_refused_until_the_first_closes() {
    let dir = TempDir::new().unwrap();
    let first = LocalLedger::open(dir.path()).unwrap();
    assert!(matches!(error(dir.path()), StorageError::Locked { .. }));
    commit(&first, vec![found()]).await;
    first.close();
    LocalLedger::open(dir.path()).unwrap();
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    drop(LocalLedger::open(dir.path()).unwrap());
    fs::write(dir.path().join("format"), "smc-ledger 2\n").unwrap();
    let before = files(dir.path());
    let error = error(dir.path());
    assert!(matches!(error, StorageError::NewerFormat { found: 2, supported: 1, .. }), "{error}");
    assert_eq!(files(dir.path()), before);
}

#[tokio::test]
async fn a_directory_of_something_else_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("thesis.txt"), "important").unwrap();
    let before = files(dir.path());
    let error = error(dir.path());
    assert!(error.to_string().contains("thesis.txt"), "{error}");
    assert_eq!(files(dir.path()), before);
}

#[tokio::test]
async fn a_creation_that_did_not_finish_is_begun_again() {
    let dir = TempDir::new().unwrap();
    drop(LocalLedger::open(dir.path()).unwrap());
    fs::remove_file(dir.path().join("format")).unwrap();
    let ledger = LocalLedger::open(dir.path()).unwrap();
    commit(&ledger, vec![found()]).await;
    ledger.close();
    // With entries in it, it was not a creation that did not finish.
    fs::remove_file(dir.path().join("format")).unwrap();
    assert!(matches!(error(dir.path()), StorageError::Corrupt { .. }));
}

/// Breaks every file of a ledger in turn. Opening must find either everything or the damage: never panic,
/// and never a ledger with something missing from its middle.
#[tokio::test]
async fn damage_is_reported_and_the_damaged_files_are_left_alone() {
    let dir = TempDir::new().unwrap();
    let original = dir.path().join("original");
    let ledger = LocalLedger::open_with(&original, SMALL).unwrap();
    commit(&ledger, vec![found()]).await;
    for n in 2..100 {
        commit(&ledger, vec![issue(n)]).await;
    }
    let intact = hash(&ledger);
    ledger.close();

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
            match LocalLedger::open_with(&copy, SMALL) {
                Ok(ledger) => {
                    let torn = is_wal(&file) && damage != "flipped";
                    assert!(torn || hash(&ledger) == intact, "{} {damage}", file.display());
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

fn is_wal(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "log")
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
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
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

fn copy_tree(from: &Path, to: &Path) {
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

/// A process that may write only so much to one file meets the same error as one whose disk is full.
#[tokio::test]
#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "how the two processes find each other")]
async fn a_full_disk_stops_the_ledger_and_takes_nothing_that_was_acknowledged() {
    if let Some(path) = std::env::var_os(VICTIM) {
        let ledger = LocalLedger::open(Path::new(&path)).unwrap();
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
    let name = "tests::a_full_disk_stops_the_ledger_and_takes_nothing_that_was_acknowledged";
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
    let ledger = LocalLedger::open(&path).unwrap();
    for n in 2..=acknowledged {
        assert!(holds(&ledger, n), "{n} of {acknowledged} is lost");
    }
    commit(&ledger, vec![issue(200_000)]).await;
}

/// The writer that is killed, and the one who kills it: the test starts its own binary again with this
/// variable set, and that process commits until it is gone.
const VICTIM: &str = "SMC_TEST_LEDGER_OF_THE_VICTIM";

#[tokio::test]
#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "how the two processes find each other")]
async fn every_acknowledged_command_survives_kill_9() {
    if let Some(path) = std::env::var_os(VICTIM) {
        let ledger = LocalLedger::open_with(Path::new(&path), SMALL).unwrap();
        let next = ledger.local().read(|ledger| ledger.proxy_certificates().count());
        if next == 0 {
            commit(&ledger, vec![found()]).await;
        }
        for n in 2 + u32::try_from(next).unwrap().. {
            commit(&ledger, vec![issue(n)]).await;
            println!("\nacknowledged {n}");
        }
    }

    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger");
    let mut acknowledged = 1;
    for round in 0..8u64 {
        let mut victim = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::every_acknowledged_command_survives_kill_9", "--nocapture"])
            .env(VICTIM, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Each round lets it live for another number of commits, so that snapshots are hit as well.
        let mut left = 5 + round * 7;
        for line in BufReader::new(victim.stdout.take().unwrap()).lines() {
            let Some(n) = line.unwrap().strip_prefix("acknowledged ").map(|n| n.parse::<u32>().unwrap())
            else {
                continue;
            };
            acknowledged = n;
            left = left.saturating_sub(1);
            if left == 0 {
                // SIGKILL. What it still says before it dies counts as acknowledged too.
                victim.kill().unwrap();
            }
        }
        victim.wait().unwrap();
        let ledger = LocalLedger::open_with(&path, SMALL).unwrap();
        for n in 2..=acknowledged {
            assert!(holds(&ledger, n), "round {round}: {n} of {acknowledged} is lost");
        }
        ledger.close();
    }
    assert!(acknowledged > 100, "only {acknowledged} commits were tried");
}
