//! openraft's own suite for storage, on both databases.

use std::sync::Arc;

use openraft::StorageError as RaftStorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::database::Database;
use crate::disk::Disk;
use crate::log::LogStore;
use crate::machine::StateMachine;
use crate::memory::MemoryDisk;
use crate::rocks::RocksDisk;
use crate::shared::SharedLedger;
use crate::types::TypeConfig;
use crate::waiters::Waiters;

/// What has to live as long as a store.
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
        Ok(build(Arc::new(RocksDisk::open(dir.path()).unwrap()), Some(dir)))
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
