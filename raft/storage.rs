//! Where a replica keeps its log and state.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::database::Database;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::memory::MemoryDisk;
use crate::rocks::RocksDisk;
use crate::types::ReplicaId;

/// See the module.
#[derive(Debug, Clone)]
pub enum Storage {
    /// In a directory, made if it is missing.
    Directory(PathBuf),
    /// In memory: for simulations and tests.
    Memory(MemoryDisk),
}

impl Storage {
    /// Opens it, for this replica alone if one is named: nothing of another one's is touched.
    pub(crate) async fn open(self, replica: Option<ReplicaId>) -> Result<Disk, Arc<StorageError>> {
        self.with(move |path| RocksDisk::open(path, replica)).await
    }

    /// Opens what is there, to be read and not changed.
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
