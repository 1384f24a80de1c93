//! A database in memory, for simulations and tests. A [`MemoryDisk::crash`] loses what was not synced.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use smc_host::sync::lock;
use tokio::time::sleep;

use crate::storage::database::{Database, Family, Write};
use crate::storage::error::StorageError;

type Tables = BTreeMap<(Family, Vec<u8>), Bytes>;

/// The disk of one simulated replica. Clones are the same disk, which outlives the replica.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    disk: Arc<Mutex<Disk>>,
    latency: Option<Latency>,
}

/// Gives the duration of the next sync.
type Latency = Arc<dyn Fn() -> Duration + Send + Sync>;

#[derive(Debug, Default)]
struct Disk {
    /// What readers see.
    visible: Tables,
    /// What a crash leaves.
    durable: Tables,
    /// The number of writes so far.
    written: u64,
    /// The writes that are not in `durable` yet, with their numbers.
    unsynced: VecDeque<(u64, Vec<Write>)>,
}

impl MemoryDisk {
    /// A disk whose syncs take as long as `latency` returns. A crash during a sync loses the writes that it
    /// was to make durable, as on a real disk. Without a latency a sync is instantaneous.
    pub fn with_latency(latency: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { disk: Arc::default(), latency: Some(Arc::new(latency)) }
    }

    /// Loses everything after the last sync, as a loss of power does.
    pub fn crash(&self) {
        let mut disk = self.disk();
        disk.unsynced.clear();
        disk.visible = disk.durable.clone();
    }

    /// Another disk with what is durable on this one, as a snapshot of a volume has it.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let durable = self.disk().durable.clone();
        let disk = Disk { visible: durable.clone(), durable, ..Disk::default() };
        Self { disk: Arc::new(Mutex::new(disk)), latency: self.latency.clone() }
    }

    /// All bytes on the disk, synced or not, to be searched for what must not be there.
    pub fn bytes(&self) -> Vec<u8> {
        let disk = self.disk();
        disk.visible.iter().flat_map(|((_, key), value)| key.iter().chain(value.iter())).copied().collect()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        // Changes are plain inserts and removals, so a panic elsewhere leaves nothing half done.
        lock(&self.disk)
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
        apply(&mut disk.visible, batch.clone());
        disk.written += 1;
        let number = disk.written;
        disk.unsynced.push_back((number, batch));
        Ok(())
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        let last = self.disk().written;
        Box::pin(async move {
            if let Some(latency) = &self.latency {
                sleep(latency()).await;
            }
            let mut disk = self.disk();
            // Not the writes since the call: a sync covers only those before it.
            while let Some((_, batch)) = disk.unsynced.pop_front_if(|(number, _)| *number <= last) {
                apply(&mut disk.durable, batch);
            }
            Ok(())
        })
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Ok(self.disk().visible.get(&(family, key.to_vec())).cloned())
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
        for ((_, key), value) in self.disk().visible.range((family, range.start)..(family, range.end)) {
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
        let mut of_family = disk.visible.iter().rev().skip_while(|((of, _), _)| *of > family);
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
