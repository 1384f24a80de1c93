//! The storage of a replica: its log, its state and its snapshots, in files or in memory.

pub(crate) mod database;
pub(crate) mod disk;
pub(crate) mod error;
pub(crate) mod group_id;
pub(crate) mod identity;
pub(crate) mod log;
pub(crate) mod memory;
#[cfg(feature = "rocks")]
pub(crate) mod rocks;
pub(crate) mod snapshots;
#[cfg(not(feature = "rocks"))]
mod without_rocks;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::database::Database;
use crate::storage::disk::Disk;
use crate::storage::error::StorageError;
use crate::storage::memory::MemoryDisk;
#[cfg(feature = "rocks")]
pub(crate) use crate::storage::rocks::RocksDisk;
#[cfg(not(feature = "rocks"))]
pub(crate) use crate::storage::without_rocks::RocksDisk;
use smc_types::ids::ReplicaId;

/// Where a replica keeps its log and state.
#[derive(Debug, Clone)]
pub enum Storage {
    /// In a directory, which is made if it is missing.
    Directory(PathBuf),
    /// In memory: for simulations and tests.
    Memory(MemoryDisk),
}

impl Storage {
    /// Opens the storage. Fails if a replica is given and the storage is another's, which is left unchanged.
    pub(crate) async fn open(self, replica: Option<ReplicaId>) -> Result<Disk, Arc<StorageError>> {
        self.with(move |path| RocksDisk::open(path, replica)).await
    }

    /// Opens existing storage read-only.
    pub(crate) async fn examine(self) -> Result<Disk, Arc<StorageError>> {
        self.with(RocksDisk::examine).await
    }

    async fn with(
        self,
        open: impl FnOnce(&Path) -> Result<RocksDisk, StorageError> + Send + 'static,
    ) -> Result<Disk, Arc<StorageError>> {
        let database: Arc<dyn Database> = match self {
            Self::Memory(disk) => Arc::new(disk),
            Self::Directory(path) => {
                let opened = tokio::task::spawn_blocking(move || open(&path)).await;
                Arc::new(opened.map_err(StorageError::interrupted).and_then(|opened| opened)?)
            }
        };
        Ok(Disk::new(database))
    }
}
