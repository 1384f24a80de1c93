//! openraft's test suite for storage, on both databases.

use std::io::{BufRead, BufReader};
use std::process::{Command as Process, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use openraft::StorageError as RaftStorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::state::machine::StateMachine;
use crate::state::shared::SharedLedger;
use crate::state::waiters::Waiters;
use crate::storage::database::{Database, Family, Write};
use crate::storage::disk::Disk;
use crate::storage::log::LogStore;
use crate::storage::memory::MemoryDisk;
use crate::storage::rocks::RocksDisk;
use crate::types::TypeConfig;

/// Must live as long as a store.
struct Kept {
    _dir: Option<TempDir>,
    _flusher: JoinSet<()>,
}

fn build(database: Arc<dyn Database>, dir: Option<TempDir>) -> (Kept, LogStore, StateMachine) {
    let disk = Disk::new(database);
    let (log, flusher) = LogStore::new(disk.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(flusher.run());
    let machine = StateMachine::open(disk, SharedLedger::default(), Waiters::default()).unwrap();
    (Kept { _dir: dir, _flusher: tasks }, log, machine)
}

struct InMemory;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, Kept> for InMemory {
    async fn build(&self) -> Result<(Kept, LogStore, StateMachine), RaftStorageError<TypeConfig>> {
        Ok(build(Arc::new(MemoryDisk::default()), None))
    }
}

struct InRocks;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, Kept> for InRocks {
    async fn build(&self) -> Result<(Kept, LogStore, StateMachine), RaftStorageError<TypeConfig>> {
        let dir = TempDir::new().unwrap();
        Ok(build(Arc::new(RocksDisk::open(dir.path(), None).unwrap()), Some(dir)))
    }
}

#[tokio::test]
async fn the_memory_store_passes_openrafts_suite() {
    Suite::test_all(InMemory).await.unwrap();
}

#[tokio::test]
async fn the_rocksdb_store_passes_openrafts_suite() {
    Suite::test_all(InRocks).await.unwrap();
}

/// The variable with the directories that the victim opens before it is killed.
const VICTIM: &str = "SMC_TEST_STORES_OF_THE_VICTIM";

/// The number of these directories.
const STORES: usize = 32;

/// Builds stores whose process was killed with `kill -9` while it had them open.
#[derive(Default)]
struct Killed {
    left: Mutex<Vec<TempDir>>,
}

impl Killed {
    fn kill_some() -> Vec<TempDir> {
        let directories: Vec<_> = (0..STORES).map(|_| TempDir::new().unwrap()).collect();
        let paths = std::env::join_paths(directories.iter().map(TempDir::path)).unwrap();
        let name = "tests::suite::the_rocksdb_store_passes_openrafts_suite_after_kill_9";
        let mut victim = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(VICTIM, paths)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "open"), "the victim died early");
        victim.kill().unwrap();
        victim.wait().unwrap();
        directories
    }
}

impl StoreBuilder<TypeConfig, LogStore, StateMachine, Kept> for Killed {
    async fn build(&self) -> Result<(Kept, LogStore, StateMachine), RaftStorageError<TypeConfig>> {
        let dir = {
            let mut left = self.left.lock().unwrap();
            if left.is_empty() {
                *left = Self::kill_some();
            }
            left.pop().unwrap()
        };
        let disk = RocksDisk::open(dir.path(), None).unwrap();
        assert!(disk.get(Family::State, b"kept").unwrap().is_some(), "a synced record is gone");
        disk.write(vec![Write::Delete(Family::State, b"kept".into())]).unwrap();
        Ok(build(Arc::new(disk), Some(dir)))
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "how the two processes find each other")]
async fn the_rocksdb_store_passes_openrafts_suite_after_kill_9() {
    if let Some(paths) = std::env::var_os(VICTIM) {
        let mut stores = Vec::new();
        for path in std::env::split_paths(&paths) {
            let store = RocksDisk::open(&path, None).unwrap();
            store.write(vec![Write::Put(Family::State, b"kept".into(), Bytes::from_static(b"yes"))]).unwrap();
            store.sync().await.unwrap();
            stores.push(store);
        }
        println!("\nopen");
        std::future::pending::<()>().await;
    }
    Suite::test_all(Killed::default()).await.unwrap();
}
