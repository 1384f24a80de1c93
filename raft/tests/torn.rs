//! A loss of power during writes: of what was not synced, any sectors may be on the disk and any not.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::files::{copy_tree, files};
use crate::storage::database::{Database, Family, Write, chunk_key};
use crate::storage::error::StorageError;
use crate::storage::rocks::RocksDisk;

/// A disk writes so many bytes whole or not at all.
const SECTOR: usize = 512;

/// Writes chunks of these sizes, the first of them numbered `from`.
fn write(disk: &RocksDisk, from: usize, sizes: &[usize]) {
    for (number, size) in (from..).zip(sizes) {
        let value = Bytes::from(vec![0xa5; *size]);
        disk.write(vec![Write::Put(Family::Snapshot, chunk_key(1, number as u64), value)]).unwrap();
    }
}

/// The number of chunks; there must be none after a gap.
fn chunks(disk: &RocksDisk) -> usize {
    let found = disk.scan(Family::Snapshot, chunk_key(0, 0)..chunk_key(9, 0), usize::MAX).unwrap();
    let keys: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
    let expected: Vec<_> = (0..keys.len() as u64).map(|number| chunk_key(1, number)).collect();
    assert_eq!(keys, expected, "the chunks are not a prefix of what was written");
    keys.len()
}

fn open(path: &Path) -> Result<RocksDisk, StorageError> {
    RocksDisk::open(path, None)
}

/// The newest log, and how much of it was synced.
fn newest(path: &Path) -> (PathBuf, usize) {
    let note = fs::read_to_string(path.join("synced")).unwrap();
    let (log, length) = note.trim().split_once(' ').unwrap();
    let log: u64 = log.parse().unwrap();
    (path.join(format!("db/{log:06}.log")), length.parse().unwrap())
}

/// Sizes that end within a sector, that fill several of RocksDB's blocks of 32 KiB, and that leave no room
/// for a header in one.
fn sizes(most: usize) -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1..600_usize, 30_000..70_000_usize, 32_700..32_760_usize];
    prop::collection::vec(size, 1..most)
}

/// What a loss of power leaves of a log that is synced up to `synced`.
fn left(log: &[u8], synced: usize, lost: &[bool], length: prop::sample::Index) -> Vec<u8> {
    let length = synced + length.index(log.len() - synced + 1);
    let mut left = log[..length].to_vec();
    for (sector, lost) in (synced / SECTOR..).zip(lost.iter().cycle()) {
        let (from, to) = ((sector * SECTOR).max(synced), ((sector + 1) * SECTOR).min(length));
        if from >= to {
            break;
        }
        if *lost {
            left[from..to].fill(0);
        }
    }
    left
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// The ledger opens with all that was synced, and a prefix of what was written after it.
    #[test]
    fn any_part_of_the_unsynced_log_may_survive_a_loss_of_power(
        synced in sizes(5),
        unsynced in sizes(8),
        lost in prop::collection::vec(prop::bool::weighted(0.1), 1..300),
        length in any::<prop::sample::Index>(),
        again in prop::collection::vec(1..600_usize, 0..3),
    ) {
        let dir = TempDir::new().unwrap();
        let (path, copy) = (dir.path().join("ledger"), dir.path().join("copy"));
        let runtime = Runtime::new().unwrap();
        let disk = open(&path).unwrap();
        write(&disk, 0, &synced);
        runtime.block_on(disk.sync()).unwrap();
        write(&disk, synced.len(), &unsynced);
        // While it is open: closing could write.
        copy_tree(&path, &copy);
        drop(disk);
        let (log, end) = newest(&copy);
        let whole = fs::read(&log).unwrap();
        prop_assert!(whole.len() > end);
        fs::write(&log, left(&whole, end, &lost, length)).unwrap();

        let torn = files(&copy);
        let found = chunks(&RocksDisk::examine(&copy).unwrap());
        prop_assert_eq!(files(&copy), torn, "reading changed something");
        let disk = open(&copy).unwrap();
        prop_assert_eq!(chunks(&disk), found);
        prop_assert!((synced.len()..=synced.len() + unsynced.len()).contains(&found), "{found} of {}", synced.len());
        prop_assert!(!copy.join("scratch").exists());
        // Writing continues from there.
        write(&disk, found, &again);
        runtime.block_on(disk.sync()).unwrap();
        drop(disk);
        prop_assert_eq!(chunks(&open(&copy).unwrap()), found + again.len());
    }
}

/// A change of any synced byte is damage, and nothing is written.
#[test]
fn a_gap_in_the_synced_log_is_never_taken_for_a_torn_tail() {
    let dir = TempDir::new().unwrap();
    let (path, copy) = (dir.path().join("ledger"), dir.path().join("copy"));
    let disk = open(&path).unwrap();
    write(&disk, 0, &[10, 40_000, 500]);
    Runtime::new().unwrap().block_on(disk.sync()).unwrap();
    write(&disk, 3, &[700]);
    copy_tree(&path, &copy);
    drop(disk);
    let (log, synced) = newest(&copy);
    let whole = fs::read(&log).unwrap();
    assert!(synced > 40_000 && whole.len() > synced + 700);
    let refused = |what: &str, bytes: Vec<u8>| {
        fs::write(&log, bytes).unwrap();
        let before = files(&copy);
        let error = open(&copy).err().unwrap_or_else(|| panic!("opened with {what}"));
        assert!(matches!(error, StorageError::Corrupt { .. }), "{what}: {error}");
        assert_eq!(files(&copy), before, "{what}");
    };
    TestRunner::deterministic()
        .run(&(0..synced), |at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            refused(&format!("byte {at} flipped"), bytes);
            refused(&format!("{at} bytes"), whole[..at].to_vec());
            Ok(())
        })
        .unwrap();
    fs::remove_file(&log).unwrap();
    let error = open(&copy).err().expect("a refusal");
    assert!(error.to_string().contains("is missing"), "{error}");
}

/// A log file whose end never reached the disk may be followed by one that did.
#[test]
fn a_log_file_after_a_gap_is_not_read() {
    follow_on_a_gap(true);
    follow_on_a_gap(false);
}

/// The first two of five chunks are synced, or nothing is.
fn follow_on_a_gap(some_synced: bool) {
    let dir = TempDir::new().unwrap();
    let (path, copy) = (dir.path().join("ledger"), dir.path().join("copy"));
    let disk = open(&path).unwrap();
    let empty = fs::metadata(newest(&path).0).unwrap().len();
    write(&disk, 0, &[10, 20]);
    if some_synced {
        Runtime::new().unwrap().block_on(disk.sync()).unwrap();
    }
    let up_to_two = fs::metadata(newest(&path).0).unwrap().len();
    let (first, synced) = newest(&path);
    assert_eq!(synced as u64, if some_synced { up_to_two } else { empty });
    write(&disk, 2, &[30]);
    let up_to_three = fs::metadata(&first).unwrap().len();
    write(&disk, 3, &[40]);
    copy_tree(&path, &copy);
    drop(disk);
    let disk = open(&path).unwrap();
    write(&disk, 4, &[50]);
    let second = newest(&path).0;
    assert_ne!(first, second);
    fs::copy(&second, copy.join(second.strip_prefix(&path).unwrap())).unwrap();
    drop(disk);

    let first = copy.join(first.strip_prefix(&path).unwrap());
    for (length, expected) in [(u64::MAX, 5), (up_to_three, 3), (up_to_two, 2), (empty, 0)] {
        if length < synced as u64 {
            continue;
        }
        let again = dir.path().join("again");
        copy_tree(&copy, &again);
        // Left by a process that was killed after it had cut the log, or before; and by one of an older
        // version.
        for left in ["scratch", "trial"] {
            fs::create_dir(again.join(left)).unwrap();
        }
        let log = again.join(first.strip_prefix(&copy).unwrap());
        let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
        let whole = file.metadata().unwrap().len();
        file.set_len(whole.min(length)).unwrap();
        assert_eq!(chunks(&open(&again).unwrap()), expected);
        assert!(!again.join("scratch").exists() && !again.join("trial").exists());
        assert_eq!(chunks(&open(&again).unwrap()), expected);
        fs::remove_dir_all(&again).unwrap();
    }
}
