//! Snapshots on a [`Disk`]: written and received in chunks, made current in one atomic step.
//!
//! Each snapshot has a generation. Its chunks are ignored until a header names the generation, so a crash
//! at any point leaves either the old snapshot or the new one. The chunks of an interrupted transfer are
//! reused when the same snapshot is offered again.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use smc_host::sync::lock;
use smc_proto::raft::v1 as pb;

use crate::storage::database::{Family, Write, chunk_key};
use crate::storage::disk::{Disk, INCOMING, SNAPSHOT, put_record};
use crate::types::SnapshotMeta;
use crate::wire::{Malformed, snapshot_meta};

/// The length in bytes of all chunks but the last: far below [`crate::transport::MAX_MESSAGE`], and few
/// enough writes.
pub(crate) const CHUNK: usize = 1024 * 1024;

/// The longest snapshot, in bytes, that is accepted from another replica. A ledger at all its bounds
/// ([`smc_authority::ledger`]) stays below it.
const MAX_SNAPSHOT: u64 = 8 << 30;

/// The snapshots on a disk. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Snapshots {
    disk: Disk,
    next: Arc<AtomicU64>,
    /// Locked while the current snapshot is replaced: a build runs beside the state machine, which may
    /// install one.
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

/// Why a snapshot was not received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("the snapshot is refused: {0}")]
    Refused(&'static str),
    #[error(transparent)]
    Storage(#[from] io::Error),
}

impl Snapshots {
    /// Reads which snapshots there are, and changes nothing.
    pub(crate) fn open(disk: Disk) -> io::Result<Self> {
        let next = generations(&disk)?.last().map_or(0, |last| last + 1);
        Ok(Self { disk, next: Arc::new(AtomicU64::new(next)), replacing: Arc::default() })
    }

    /// Deletes chunks that no header names. Must run before the first snapshot is written, which takes the
    /// next generation.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        let mut batch = Vec::new();
        let mut from = 0;
        for generation in generations(&self.disk)?.into_iter().chain([u64::MAX]) {
            batch.push(Write::DeleteRange(Family::Snapshot, chunk_key(from, 0)..chunk_key(generation, 0)));
            from = generation.saturating_add(1);
        }
        self.disk.write(batch)
    }

    pub(crate) fn current(&self) -> io::Result<Option<StoredSnapshot>> {
        let header = self.disk.record(SNAPSHOT)?;
        Ok(header.map(|header| StoredSnapshot { disk: self.disk.clone(), header }))
    }

    /// Begins to write a snapshot.
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

    /// Begins to receive the snapshot that `offered` describes, or resumes an interrupted transfer of it.
    pub(crate) fn receive(&self, offered: &pb::SnapshotHeader) -> Result<Receiving, ReceiveError> {
        let chunks = offered.bytes.div_ceil(CHUNK as u64);
        if offered.bytes > MAX_SNAPSHOT || offered.chunks != chunks || offered.hash.len() != 32 {
            return Err(ReceiveError::Refused("its header is not one that a replica writes"));
        }
        let disk = self.disk.clone();
        let begun: Option<pb::SnapshotHeader> = disk.record(INCOMING)?;
        if let Some(begun) = begun {
            if (pb::SnapshotHeader { generation: begun.generation, ..offered.clone() }) == begun {
                let next = self.chunks_of(begun.generation)?;
                return Ok(Receiving { disk, header: begun, next });
            }
            // Another snapshot is offered now.
            disk.write(vec![delete(begun.generation)])?;
        }
        let header = pb::SnapshotHeader { generation: self.generation(), ..offered.clone() };
        disk.write(vec![put_record(INCOMING, &header)])?;
        Ok(Receiving { disk, header, next: 0 })
    }

    /// Copies the snapshot to this disk, unless it is on it already. Returns the header of the copy.
    pub(crate) fn import(&self, snapshot: &StoredSnapshot) -> io::Result<pb::SnapshotHeader> {
        if Arc::ptr_eq(snapshot.disk.database(), self.disk.database()) {
            return Ok(snapshot.header.clone());
        }
        let mut writing = self.write();
        io::Write::write_all(&mut writing, &snapshot.read()?)?;
        let generation = writing.finish()?.generation;
        Ok(pb::SnapshotHeader { generation, ..snapshot.header.clone() })
    }

    /// Makes this the current snapshot, durably, in one step. If the current one includes later entries,
    /// this one is deleted instead, since the log may begin only after those.
    pub(crate) async fn keep(&self, header: &pb::SnapshotHeader) -> io::Result<()> {
        {
            // Each write is one atomic step, so a panic elsewhere leaves nothing half done.
            let _replacing = lock(&self.replacing);
            let end = |header: &pb::SnapshotHeader| header.last.as_ref().map(|last| last.index);
            let current = self.disk.record::<pb::SnapshotHeader>(SNAPSHOT)?;
            if current.is_some_and(|current| end(&current) > end(header)) {
                self.disk.write(vec![delete(header.generation)])?;
            } else {
                self.disk.write(self.replacing(header)?)?;
            }
        }
        self.disk.sync().await
    }

    /// The writes that make this the current snapshot.
    pub(crate) fn replacing(&self, header: &pb::SnapshotHeader) -> io::Result<Vec<Write>> {
        let mut batch = vec![put_record(SNAPSHOT, header)];
        if let Some(old) = self.disk.record::<pb::SnapshotHeader>(SNAPSHOT)?
            && old.generation != header.generation
        {
            batch.push(delete(old.generation));
        }
        if let Some(begun) = self.disk.record::<pb::SnapshotHeader>(INCOMING)?
            && begun.generation == header.generation
        {
            batch.push(Write::Delete(Family::State, INCOMING.into()));
        }
        Ok(batch)
    }

    /// The writes that give up an incomplete transfer.
    pub(crate) fn delete_incoming(&self) -> io::Result<Vec<Write>> {
        let begun = self.disk.record::<pb::SnapshotHeader>(INCOMING)?;
        let forgotten =
            begun.map(|begun| [delete(begun.generation), Write::Delete(Family::State, INCOMING.into())]);
        Ok(forgotten.into_iter().flatten().collect())
    }

    fn generation(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of chunks of a generation, from the first one on without a gap.
    fn chunks_of(&self, generation: u64) -> io::Result<u64> {
        let mut next = 0;
        while self.disk.chunk(generation, next)?.is_some() {
            next += 1;
        }
        Ok(next)
    }
}

/// The generations that have a header, in order.
fn generations(disk: &Disk) -> io::Result<Vec<u64>> {
    let mut generations = Vec::new();
    for name in [SNAPSHOT, INCOMING] {
        generations.extend(disk.record::<pb::SnapshotHeader>(name)?.map(|header| header.generation));
    }
    generations.sort_unstable();
    Ok(generations)
}

fn delete(generation: u64) -> Write {
    Write::DeleteRange(Family::Snapshot, chunk_key(generation, 0)..chunk_key(generation.saturating_add(1), 0))
}

impl Disk {
    fn chunk(&self, generation: u64, number: u64) -> io::Result<Option<Bytes>> {
        let found = self.database().get(Family::Snapshot, &chunk_key(generation, number));
        found.map_err(|error| self.fail(error))
    }
}

impl StoredSnapshot {
    /// The snapshot's metadata, for openraft.
    pub(crate) fn meta(&self) -> io::Result<SnapshotMeta> {
        snapshot_meta(&self.header).map_err(|Malformed(what)| self.disk.malformed(what))
    }

    /// A chunk; `None` if there is no such chunk, or if a newer snapshot has replaced this one.
    pub(crate) fn chunk(&self, number: u64) -> io::Result<Option<Bytes>> {
        self.disk.chunk(self.header.generation, number)
    }

    /// The whole snapshot, checked against its hash.
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
            return Err(self.disk.malformed("the snapshot does not match its hash"));
        }
        Ok(bytes)
    }
}

impl Writing {
    /// Writes the last chunk. The returned header lacks only Raft's metadata.
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
    /// Stores the next chunk.
    pub(crate) fn put(&mut self, chunk: Bytes) -> Result<(), ReceiveError> {
        let before = self.next * CHUNK as u64;
        let expected = self.header.bytes.saturating_sub(before).min(CHUNK as u64);
        if self.next >= self.header.chunks || chunk.len() as u64 != expected {
            return Err(ReceiveError::Refused("a chunk does not have the length that the header gives"));
        }
        let key = chunk_key(self.header.generation, self.next);
        self.disk.write(vec![Write::Put(Family::Snapshot, key, chunk)])?;
        self.next += 1;
        Ok(())
    }

    /// The whole snapshot, once all chunks are stored. If it does not match its hash, all chunks are
    /// deleted, so that the next attempt starts over.
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
            self.disk.write(vec![delete(generation), Write::Delete(Family::State, INCOMING.into())])?;
            return Err(ReceiveError::Refused("it does not match the hash in its header"));
        }
        Ok(StoredSnapshot { disk: self.disk, header: self.header })
    }
}
