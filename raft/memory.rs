//! A database in memory, for simulations and tests. What was not synced is lost in a [`MemoryDisk::crash`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::database::{Database, Family, Write};
use crate::error::StorageError;
use crate::replicated::Pending;

type Tables = BTreeMap<(Family, Vec<u8>), Bytes>;

/// The disk of one simulated replica. Clones are the same disk; it outlives the replica, as disks do.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    /// What readers see.
    seen: Tables,
    /// What a crash leaves.
    durable: Tables,
    /// What a sync has yet to do to `durable`.
    unsynced: Vec<Vec<Write>>,
}

impl MemoryDisk {
    /// Power is lost: everything after the last sync is gone.
    pub fn crash(&self) {
        let mut disk = self.disk();
        disk.unsynced.clear();
        disk.seen = disk.durable.clone();
    }

    /// Every byte that is on the disk, synced or not, for a search of what must not be there.
    pub fn bytes(&self) -> Vec<u8> {
        let disk = self.disk();
        disk.seen.iter().flat_map(|((_, key), value)| key.iter().chain(value.iter())).copied().collect()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        // Changes are plain inserts and removals: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Database for MemoryDisk {
    fn write(&self, batch: Vec<Write>) -> Result<(), StorageError> {
        let mut disk = self.disk();
        apply(&mut disk.seen, batch.clone());
        disk.unsynced.push(batch);
        Ok(())
    }

    fn sync(&self) -> Pending<'_, Result<(), StorageError>> {
        let mut disk = self.disk();
        for batch in std::mem::take(&mut disk.unsynced) {
            apply(&mut disk.durable, batch);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Ok(self.disk().seen.get(&(family, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        family: Family,
        range: Range<Vec<u8>>,
        max_bytes: usize,
    ) -> Result<Vec<(Vec<u8>, Bytes)>, StorageError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let mut bytes = 0;
        let mut found = Vec::new();
        for ((_, key), value) in self.disk().seen.range((family, range.start)..(family, range.end)) {
            if bytes >= max_bytes {
                break;
            }
            bytes += value.len();
            found.push((key.clone(), value.clone()));
        }
        Ok(found)
    }

    fn last(&self, family: Family) -> Result<Option<(Vec<u8>, Bytes)>, StorageError> {
        let disk = self.disk();
        let mut of_family = disk.seen.iter().rev().skip_while(|((of, _), _)| *of > family);
        let last = of_family.next().filter(|((of, _), _)| *of == family);
        Ok(last.map(|((_, key), value)| (key.clone(), value.clone())))
    }

    /// Nobody cuts a simulated log short but [`MemoryDisk::crash`], and that loses only what nobody relies on.
    fn set_floor(&self, _index: u64) -> Result<(), StorageError> {
        Ok(())
    }

    fn blocks(&self) -> bool {
        false
    }
}

fn apply(tables: &mut Tables, batch: Vec<Write>) {
    for write in batch {
        match write {
            Write::Put(family, key, value) => {
                tables.insert((family, key), value);
            }
            Write::Delete(family, key) => {
                tables.remove(&(family, key));
            }
            Write::DeleteRange(family, range) => {
                tables.retain(|(of, key), _| *of != family || !range.contains(key));
            }
        }
    }
}
