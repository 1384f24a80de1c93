//! Snapshots on a [`Disk`]: written and received in chunks, kept in one atomic step.
//!
//! Each snapshot has a generation of its own. Its chunks count for nothing until a header names the generation, so
//! a crash at any point leaves either the old snapshot or the new one, and chunks of a reception that was cut short
//! are found again when the same snapshot is offered again.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use smc_proto::raft::v1 as pb;

use crate::database::{Family, Write, chunk_key};
use crate::disk::{Disk, INCOMING, SNAPSHOT, put_fact};
use crate::types::SnapshotMeta;
use crate::wire::{Malformed, snapshot_meta};

/// The length of all chunks but the last: far below [`crate::transport::MAX_MESSAGE`], and few enough writes.
pub(crate) const CHUNK: usize = 1024 * 1024;

/// The longest snapshot that is taken from another replica. A ledger that is full to all its bounds
/// ([`smc_mesh::ledger`]) stays below it.
const MAX_SNAPSHOT: u64 = 8 << 30;

/// Where snapshots are kept. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Snapshots {
    disk: Disk,
    next: Arc<AtomicU64>,
    /// Held while one takes the place of another: they are built beside the state machine, which may install one.
    replacing: Arc<Mutex<()>>,
}

/// A complete snapshot on the disk.
pub(crate) struct StoredSnapshot {
    disk: Disk,
    pub(crate) header: pb::SnapshotHeader,
}

/// A snapshot that is being written here.
pub(crate) struct Writing {
    disk: Disk,
    generation: u64,
    chunk: BytesMut,
    chunks: u64,
    bytes: u64,
    hash: Sha256,
}

/// A snapshot that is being received.
pub(crate) struct Receiving {
    disk: Disk,
    header: pb::SnapshotHeader,
    /// The chunk that comes next.
    pub(crate) next: u64,
}

/// A snapshot that cannot be taken: the fault of who sent it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("the snapshot is refused: {0}")]
    Refused(&'static str),
    #[error(transparent)]
    Storage(#[from] io::Error),
}

impl Snapshots {
    /// Takes up what is there, and changes nothing.
    pub(crate) fn open(disk: Disk) -> io::Result<Self> {
        let next = named(&disk)?.last().map_or(0, |last| last + 1);
        Ok(Self { disk, next: Arc::new(AtomicU64::new(next)), replacing: Arc::default() })
    }

    /// Forgets chunks that no header names: before the first one is written, since it takes the next generation.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        let mut batch = Vec::new();
        let mut from = 0;
        for generation in named(&self.disk)?.into_iter().chain([u64::MAX]) {
            batch.push(Write::DeleteRange(Family::Snapshot, chunk_key(from, 0)..chunk_key(generation, 0)));
            from = generation.saturating_add(1);
        }
        self.disk.write(batch)
    }

    /// The current snapshot.
    pub(crate) fn current(&self) -> io::Result<Option<StoredSnapshot>> {
        let header = self.disk.fact(SNAPSHOT)?;
        Ok(header.map(|header| StoredSnapshot { disk: self.disk.clone(), header }))
    }

    /// Begins to write one.
    pub(crate) fn write(&self) -> Writing {
        Writing {
            disk: self.disk.clone(),
            generation: self.generation(),
            chunk: BytesMut::new(),
            chunks: 0,
            bytes: 0,
            hash: Sha256::new(),
        }
    }

    /// Begins to receive the one that `offered` describes, or goes on where it was left.
    pub(crate) fn receive(&self, offered: &pb::SnapshotHeader) -> Result<Receiving, ReceiveError> {
        let chunks = offered.bytes.div_ceil(CHUNK as u64);
        if offered.bytes > MAX_SNAPSHOT || offered.chunks != chunks || offered.hash.len() != 32 {
            return Err(ReceiveError::Refused("its header is not one that a replica writes"));
        }
        let disk = self.disk.clone();
        let begun: Option<pb::SnapshotHeader> = disk.fact(INCOMING)?;
        if let Some(begun) = begun {
            if (pb::SnapshotHeader { generation: begun.generation, ..offered.clone() }) == begun {
                let next = self.chunks_of(begun.generation)?;
                return Ok(Receiving { disk, header: begun, next });
            }
            // Another one is wanted now.
            disk.write(vec![forget(begun.generation)])?;
        }
        let header = pb::SnapshotHeader { generation: self.generation(), ..offered.clone() };
        disk.write(vec![put_fact(INCOMING, &header)])?;
        Ok(Receiving { disk, header, next: 0 })
    }

    /// The header of this snapshot's copy on the disk here; of itself, if it is here already.
    pub(crate) fn import(&self, snapshot: &StoredSnapshot) -> io::Result<pb::SnapshotHeader> {
        if Arc::ptr_eq(snapshot.disk.database(), self.disk.database()) {
            return Ok(snapshot.header.clone());
        }
        let mut writing = self.write();
        io::Write::write_all(&mut writing, &snapshot.read()?)?;
        let generation = writing.finish()?.generation;
        Ok(pb::SnapshotHeader { generation, ..snapshot.header.clone() })
    }

    /// Makes this the current snapshot, durably, in one step; unless the current one goes further, and then this one is
    /// forgotten: the log may begin only after that.
    pub(crate) async fn keep(&self, header: &pb::SnapshotHeader) -> io::Result<()> {
        {
            // Poisoned or not, what is written is written in one step.
            let _alone = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
            let end = |header: &pb::SnapshotHeader| header.last.as_ref().map(|last| last.index);
            let current = self.disk.fact::<pb::SnapshotHeader>(SNAPSHOT)?;
            if current.is_some_and(|current| end(&current) > end(header)) {
                self.disk.write(vec![forget(header.generation)])?;
            } else {
                self.disk.write(self.replacing(header)?)?;
            }
        }
        self.disk.sync().await
    }

    /// The writes that make this the current snapshot.
    pub(crate) fn replacing(&self, header: &pb::SnapshotHeader) -> io::Result<Vec<Write>> {
        let mut batch = vec![put_fact(SNAPSHOT, header)];
        if let Some(old) = self.disk.fact::<pb::SnapshotHeader>(SNAPSHOT)?
            && old.generation != header.generation
        {
            batch.push(forget(old.generation));
        }
        if let Some(begun) = self.disk.fact::<pb::SnapshotHeader>(INCOMING)?
            && begun.generation == header.generation
        {
            batch.push(Write::Delete(Family::State, INCOMING.into()));
        }
        Ok(batch)
    }

    /// The writes that give up what is being received.
    pub(crate) fn forget_incoming(&self) -> io::Result<Vec<Write>> {
        let begun = self.disk.fact::<pb::SnapshotHeader>(INCOMING)?;
        let forgotten =
            begun.map(|begun| [forget(begun.generation), Write::Delete(Family::State, INCOMING.into())]);
        Ok(forgotten.into_iter().flatten().collect())
    }

    fn generation(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// How many chunks of a generation are there, from the first on without a gap.
    fn chunks_of(&self, generation: u64) -> io::Result<u64> {
        let mut next = 0;
        while self.disk.chunk(generation, next)?.is_some() {
            next += 1;
        }
        Ok(next)
    }
}

/// The generations that have a header, in order.
fn named(disk: &Disk) -> io::Result<Vec<u64>> {
    let mut named = Vec::new();
    for name in [SNAPSHOT, INCOMING] {
        named.extend(disk.fact::<pb::SnapshotHeader>(name)?.map(|header| header.generation));
    }
    named.sort_unstable();
    Ok(named)
}

fn forget(generation: u64) -> Write {
    Write::DeleteRange(Family::Snapshot, chunk_key(generation, 0)..chunk_key(generation.saturating_add(1), 0))
}

impl Disk {
    fn chunk(&self, generation: u64, number: u64) -> io::Result<Option<Bytes>> {
        let found = self.database().get(Family::Snapshot, &chunk_key(generation, number));
        found.map_err(|error| self.fail(error))
    }
}

impl StoredSnapshot {
    /// What Raft knows of it.
    pub(crate) fn meta(&self) -> io::Result<SnapshotMeta> {
        snapshot_meta(&self.header).map_err(|Malformed(what)| self.disk.malformed(what))
    }

    /// A chunk; `None` if there is no such chunk, or if a newer snapshot has taken the place of this one.
    pub(crate) fn chunk(&self, number: u64) -> io::Result<Option<Bytes>> {
        self.disk.chunk(self.header.generation, number)
    }

    /// All of it, checked against its hash.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.header.bytes).unwrap_or_default());
        for number in 0..self.header.chunks {
            match self.chunk(number)? {
                Some(chunk) => bytes.extend_from_slice(&chunk),
                None => {
                    return Err(self.disk.malformed(format!("chunk {number} of the snapshot is missing")));
                }
            }
        }
        if Sha256::digest(&bytes)[..] != self.header.hash[..] {
            return Err(self.disk.malformed("the snapshot does not have the hash it was written with"));
        }
        Ok(bytes)
    }
}

impl Writing {
    /// Writes what is left. The header is complete but for what Raft knows of the snapshot.
    pub(crate) fn finish(mut self) -> io::Result<pb::SnapshotHeader> {
        self.put_chunk()?;
        Ok(pb::SnapshotHeader {
            last: None,
            membership: None,
            bytes: self.bytes,
            chunks: self.chunks,
            hash: Bytes::copy_from_slice(&self.hash.finalize()),
            generation: self.generation,
        })
    }

    fn put_chunk(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = self.chunk.split().freeze();
        self.disk.write(vec![Write::Put(
            Family::Snapshot,
            chunk_key(self.generation, self.chunks),
            chunk,
        )])?;
        self.chunks += 1;
        Ok(())
    }
}

impl io::Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (now, _) = bytes.split_at(bytes.len().min(CHUNK - self.chunk.len()));
        self.hash.update(now);
        self.bytes += now.len() as u64;
        self.chunk.extend_from_slice(now);
        if self.chunk.len() == CHUNK {
            self.put_chunk()?;
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Receiving {
    /// Takes the next chunk.
    pub(crate) fn put(&mut self, chunk: Bytes) -> Result<(), ReceiveError> {
        let before = self.next * CHUNK as u64;
        let expected = self.header.bytes.saturating_sub(before).min(CHUNK as u64);
        if self.next >= self.header.chunks || chunk.len() as u64 != expected {
            return Err(ReceiveError::Refused("a chunk has not the length that the header says"));
        }
        let key = chunk_key(self.header.generation, self.next);
        self.disk.write(vec![Write::Put(Family::Snapshot, key, chunk)])?;
        self.next += 1;
        Ok(())
    }

    /// The whole snapshot, once all chunks are there. If its bytes are not what the header says, all is forgotten,
    /// so that the next attempt begins anew.
    pub(crate) fn finish(self) -> Result<StoredSnapshot, ReceiveError> {
        if self.next != self.header.chunks {
            return Err(ReceiveError::Refused("it ended early"));
        }
        let mut hash = Sha256::new();
        for number in 0..self.header.chunks {
            hash.update(self.disk.chunk(self.header.generation, number)?.unwrap_or_default());
        }
        if hash.finalize()[..] != self.header.hash[..] {
            let generation = self.header.generation;
            self.disk.write(vec![forget(generation), Write::Delete(Family::State, INCOMING.into())])?;
            return Err(ReceiveError::Refused("its bytes do not have the hash that the header says"));
        }
        Ok(StoredSnapshot { disk: self.disk, header: self.header })
    }
}
