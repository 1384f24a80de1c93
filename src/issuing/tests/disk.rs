//! The disk of a replica: a directory, or memory under its name where RocksDB is left out of the build.

#[cfg(not(feature = "rocks"))]
pub(super) use in_memory::{lose, storage};
#[cfg(feature = "rocks")]
pub(super) use on_disk::{lose, storage};

#[cfg(feature = "rocks")]
mod on_disk {
    use std::fs;
    use std::path::Path;

    use smc_raft::Storage;

    pub(crate) fn storage(path: &Path) -> Storage {
        Storage::Directory(path.to_owned())
    }

    /// The disk is lost.
    pub(crate) fn lose(path: &Path) {
        fs::remove_dir_all(path).unwrap();
    }
}

#[cfg(not(feature = "rocks"))]
mod in_memory {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    use smc_raft::{MemoryDisk, Storage};

    static DISKS: Mutex<BTreeMap<PathBuf, MemoryDisk>> = Mutex::new(BTreeMap::new());

    pub(crate) fn storage(path: &Path) -> Storage {
        Storage::Memory(DISKS.lock().unwrap().entry(path.to_owned()).or_default().clone())
    }

    /// The disk is lost.
    pub(crate) fn lose(path: &Path) {
        DISKS.lock().unwrap().remove(path).unwrap();
    }
}
