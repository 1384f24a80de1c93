//! A database in memory, for simulations and tests. What was not synced is lost in a [`MemoryDisk::crash`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::database::{Database, Family, Write};
use crate::error::StorageError;
use crate::replicated::Pending;

type Tables = BTreeMap<(Family, Vec<u8>), Bytes>;

/// The disk of one simulated replica. Clones are the same disk; it outlives the replica, as disks do.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    disk: Arc<Mutex<Disk>>,
    latency: Option<Latency>,
}

/// How long the next sync takes.
type Latency = Arc<dyn Fn() -> Duration + Send + Sync>;

#[derive(Debug, Default)]
struct Disk {
    /// What readers see.
    seen: Tables,
    /// What a crash leaves.
    durable: Tables,
    /// How many writes there were since the disk was new.
    written: u64,
    /// What a sync has yet to do to `durable`, each with the number of its write.
    unsynced: VecDeque<(u64, Vec<Write>)>,
}

impl MemoryDisk {
    /// A disk whose syncs take as long as `latency` says. A crash meanwhile loses what they were to make durable, as it does
    /// on a real disk. Without it they take no time, and nothing can happen during one.
    pub fn with_latency(latency: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { disk: Arc::default(), latency: Some(Arc::new(latency)) }
    }

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
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDisk").finish_non_exhaustive()
    }
}

impl Database for MemoryDisk {
    fn write(&self, batch: Vec<Write>) -> Result<(), StorageError> {
        let mut disk = self.disk();
        apply(&mut disk.seen, batch.clone());
        disk.written += 1;
        let number = disk.written;
        disk.unsynced.push_back((number, batch));
        Ok(())
    }

    fn sync(&self) -> Pending<'_, Result<(), StorageError>> {
        let last = self.disk().written;
        Box::pin(async move {
            if let Some(latency) = &self.latency {
                sleep(latency()).await;
            }
            let mut disk = self.disk();
            // Nothing that was written since: a sync promises only what came before it.
            while let Some((_, batch)) = disk.unsynced.pop_front_if(|(number, _)| *number <= last) {
                apply(&mut disk.durable, batch);
            }
            Ok(())
        })
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
