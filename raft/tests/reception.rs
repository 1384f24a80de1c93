//! The transfer of snapshots in chunks, through crashes and changed offers.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use smc_proto::raft::v1 as pb;
use tempfile::TempDir;

use crate::storage::database::{Family, chunk_key};
use crate::storage::disk::Disk;
use crate::storage::memory::MemoryDisk;
use crate::storage::rocks::RocksDisk;
use crate::storage::snapshots::{CHUNK, ReceiveError, Snapshots};

/// A snapshot on another replica's disk: its header and its chunks. `seed` determines its content.
fn offered(seed: u8) -> (pb::SnapshotHeader, Vec<Bytes>) {
    let content: Vec<u8> = (0..=250u8).cycle().map(|byte| byte ^ seed).take(CHUNK * 3 + 7).collect();
    let mut writing = Snapshots::open(Disk::new(Arc::new(MemoryDisk::default()))).unwrap().write();
    writing.write_all(&content).unwrap();
    (writing.finish().unwrap(), content.chunks(CHUNK).map(Bytes::copy_from_slice).collect())
}

fn on(disk: &MemoryDisk) -> Snapshots {
    Snapshots::open(Disk::new(Arc::new(disk.clone()))).unwrap()
}

async fn received(snapshots: &Snapshots, header: &pb::SnapshotHeader, chunks: &[Bytes]) -> Vec<u8> {
    let mut receiving = snapshots.receive(header).unwrap();
    let missing = usize::try_from(receiving.next).unwrap();
    for chunk in &chunks[missing..] {
        receiving.put(chunk.clone()).unwrap();
    }
    let stored = receiving.finish().unwrap();
    let header = stored.header.clone();
    snapshots.keep(&header).await.unwrap();
    snapshots.current().unwrap().unwrap().read().unwrap()
}

#[tokio::test]
async fn a_snapshot_does_not_replace_one_with_later_entries() {
    let disk = MemoryDisk::default();
    let snapshots = on(&disk);
    let mut building = snapshots.write();
    building.write_all(b"built from the state of a while ago").unwrap();
    let ends = |index| Some(pb::LogId { leader: None, index });
    let built = pb::SnapshotHeader { last: ends(1000), ..building.finish().unwrap() };
    let (header, chunks) = offered(1);
    let installed = pb::SnapshotHeader { last: ends(5000), ..header };
    let content = received(&snapshots, &installed, &chunks).await;
    snapshots.keep(&built).await.unwrap();
    let current = snapshots.current().unwrap().unwrap();
    assert_eq!(current.header.last, ends(5000));
    assert_eq!(current.read().unwrap(), content);
    assert!(
        Disk::new(Arc::new(disk))
            .database()
            .scan(Family::Snapshot, chunk_key(0, 0)..chunk_key(1, 0), 1)
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_transfer_resumes_after_a_crash_from_the_chunks_on_the_disk() {
    let (header, chunks) = offered(1);
    let dir = TempDir::new().unwrap();
    for ready in 0..=chunks.len() {
        let path = dir.path().join(ready.to_string());
        {
            let disk = Disk::new(Arc::new(RocksDisk::open(&path, None).unwrap()));
            let mut receiving = Snapshots::open(disk.clone()).unwrap().receive(&header).unwrap();
            for chunk in &chunks[..ready] {
                receiving.put(chunk.clone()).unwrap();
            }
            disk.sync().await.unwrap();
        }
        let snapshots = Snapshots::open(Disk::new(Arc::new(RocksDisk::open(&path, None).unwrap()))).unwrap();
        assert!(snapshots.current().unwrap().is_none(), "an incomplete snapshot is not current");
        assert_eq!(snapshots.receive(&header).unwrap().next, ready as u64);
        assert_eq!(received(&snapshots, &header, &chunks).await, chunks.concat());
    }
}

#[tokio::test]
async fn chunks_that_a_crash_lost_are_requested_again() {
    let (header, chunks) = offered(1);
    let disk = MemoryDisk::default();
    let mut receiving = on(&disk).receive(&header).unwrap();
    for chunk in &chunks {
        receiving.put(chunk.clone()).unwrap();
    }
    // Nothing was synced.
    disk.crash();
    let snapshots = on(&disk);
    assert_eq!(snapshots.receive(&header).unwrap().next, 0);
    assert_eq!(received(&snapshots, &header, &chunks).await, chunks.concat());
    disk.crash();
    assert_eq!(on(&disk).current().unwrap().unwrap().read().unwrap(), chunks.concat());
}

#[tokio::test]
async fn another_offer_replaces_an_incomplete_transfer() {
    let (old, old_chunks) = offered(1);
    let (new, new_chunks) = offered(2);
    let snapshots = on(&MemoryDisk::default());
    let mut receiving = snapshots.receive(&old).unwrap();
    receiving.put(old_chunks[0].clone()).unwrap();
    assert_eq!(snapshots.receive(&new).unwrap().next, 0);
    assert_eq!(received(&snapshots, &new, &new_chunks).await, new_chunks.concat());
    assert_eq!(snapshots.receive(&old).unwrap().next, 0, "its chunks are gone");
    // While another one is received, the current one stays.
    assert_eq!(snapshots.current().unwrap().unwrap().read().unwrap(), new_chunks.concat());
}

#[tokio::test]
async fn a_snapshot_that_does_not_match_its_header_is_refused_and_deleted() {
    let (header, chunks) = offered(1);
    let (_, others) = offered(2);
    let snapshots = on(&MemoryDisk::default());
    let mut receiving = snapshots.receive(&header).unwrap();
    for wrong in [Bytes::new(), chunks[0].slice(1..), chunks[3].clone()] {
        assert!(matches!(receiving.put(wrong), Err(ReceiveError::Refused(_))));
    }
    for chunk in &others {
        receiving.put(chunk.clone()).unwrap();
    }
    assert!(matches!(receiving.put(Bytes::new()), Err(ReceiveError::Refused(_))), "one too many");
    assert!(matches!(receiving.finish(), Err(ReceiveError::Refused(_))));
    assert_eq!(snapshots.receive(&header).unwrap().next, 0);
    for header in [
        pb::SnapshotHeader { bytes: u64::MAX, ..header.clone() },
        pb::SnapshotHeader { chunks: 1, ..header.clone() },
        pb::SnapshotHeader { hash: Bytes::new(), ..header.clone() },
    ] {
        assert!(matches!(snapshots.receive(&header), Err(ReceiveError::Refused(_))));
    }
}
