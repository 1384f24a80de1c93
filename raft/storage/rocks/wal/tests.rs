//! The reader on logs that RocksDB itself wrote, with each option that changes their format: it reads such
//! a log exactly to its end, or refuses it.

use std::cmp::Ordering;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use rocksdb::{Cache, DB, DBCompressionType, Env, Options, TransactionDB, TransactionDBOptions, WriteBatch};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::super::RocksDisk;
use super::super::synced::logs;
use super::*;
use crate::storage::database::{Database, Family, Write, index_key};
use crate::storage::error::StorageError;

/// The release of `librocksdb-sys`, and of RocksDB in it, that [`super`] was checked against.
const CHECKED: &str = "0.19.0+11.8.1";

/// Sizes of values: within a block, with no room for a header at its end, and over several blocks.
const SIZES: [usize; 8] = [0, 10, 700, 32_700, 32_720, 32_728, 70_000, 200_000];

/// What becomes of a log.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It is read to its end. The number of changes in it.
    Exact(u64),
    Refused(UnknownContent),
}

/// Reads the logs of an open database, one after the other; closing it could write.
fn outcome(database: &Path) -> Outcome {
    let (mut next, mut first) = (None, None);
    for (number, file) in logs(database).unwrap() {
        let log = fs::read(file).unwrap();
        match readable(&log, next) {
            Ok(readable) => {
                assert_eq!(readable.length, log.len(), "log {number} is neither read to its end nor refused");
                next = readable.next;
            }
            Err(unknown) => return Outcome::Refused(unknown),
        }
        if first.is_none() && !log.is_empty() {
            first = Some(u64::from_le_bytes(log[HEADER..HEADER + 8].try_into().unwrap()));
        }
    }
    Outcome::Exact(next.zip(first).map_or(0, |(next, first)| next - first))
}

/// Puts values of all [`SIZES`], deletes, deletes a range, and writes an empty batch. Returns the number of
/// changes.
fn write_everything(db: &DB) -> u64 {
    for (number, size) in SIZES.iter().enumerate() {
        db.put(index_key(number as u64), vec![0xa5; *size]).unwrap();
    }
    db.delete(index_key(0)).unwrap();
    let mut batch = WriteBatch::default();
    batch.delete_range(index_key(1), index_key(3));
    batch.put(index_key(9), b"and another change in the same record");
    db.write(batch).unwrap();
    db.write(WriteBatch::default()).unwrap();
    db.flush_wal(true).unwrap();
    SIZES.len() as u64 + 3
}

/// The outcome for what a database with these options wrote.
fn outcome_with(set: impl FnOnce(&mut Options)) -> (Outcome, u64) {
    let dir = TempDir::new().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    set(&mut options);
    let db = DB::open(&options, dir.path()).unwrap();
    let changes = write_everything(&db);
    (outcome(dir.path()), changes)
}

/// Options that the crate cannot set, but RocksDB reads from a file.
fn options_with(directory: &Path, option: &str) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    drop(DB::open(&options, directory).unwrap());
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let file = entries.filter(|path| path.to_str().unwrap().contains("OPTIONS-")).max().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let off = format!("  {option}=false\n");
    assert!(text.contains(&off), "RocksDB has no option {option} that is off");
    fs::write(&file, text.replace(&off, &format!("  {option}=true\n"))).unwrap();
    let cache = Cache::new_lru_cache(1 << 20);
    Options::load_latest(directory, Env::new().unwrap(), false, cache).unwrap().0
}

/// An intact fragment.
fn fragment_of(kind: u8, header: usize, payload: &[u8]) -> Vec<u8> {
    let mut checked = vec![kind];
    checked.extend(vec![7; header - HEADER]);
    checked.extend(payload);
    let checksum = CRC32C.checksum(&checked).rotate_right(15).wrapping_add(0xa282_ead8);
    let length = u16::try_from(payload.len()).unwrap();
    [&checksum.to_le_bytes()[..], &length.to_le_bytes(), &checked].concat()
}

#[test]
fn the_format_is_checked_for_this_release_of_rocksdb() {
    let lock = std::fs::read_to_string("../Cargo.lock").unwrap();
    let (_, after) = lock.split_once("name = \"librocksdb-sys\"\nversion = \"").unwrap();
    let (version, _) = after.split_once('"').unwrap();
    assert_eq!(
        version, CHECKED,
        "another release of RocksDB: compare RecordType in its db/log_format.h, ValueType in db/dbformat.h, \
         EmitPhysicalRecord in db/log_writer.cc and the options that log::Writer is made with in \
         db/db_impl/db_impl_open.cc with those of {CHECKED}; extend wal.rs and these tests for what is new; then \
         change CHECKED"
    );
}

#[test]
fn the_logs_of_this_program_are_read_to_their_end() {
    let dir = TempDir::new().unwrap();
    let runtime = Runtime::new().unwrap();
    for round in 0..3_u64 {
        let disk = RocksDisk::open(dir.path(), None).unwrap();
        for (number, size) in (round * 100..).zip(SIZES) {
            let value = Bytes::from(vec![0xa5; size]);
            disk.write(vec![Write::Put(Family::Log, index_key(number), value)]).unwrap();
        }
        let range = index_key(round * 100)..index_key(round * 100 + 1000);
        disk.write(vec![
            Write::Delete(Family::State, b"none".into()),
            Write::DeleteRange(Family::Log, range),
        ])
        .unwrap();
        disk.write(Vec::new()).unwrap();
        runtime.block_on(disk.sync()).unwrap();
        let read = outcome(&dir.path().join("db"));
        // More, if the log of the last round is still there.
        let changes = SIZES.len() as u64 + 2;
        assert!(matches!(read, Outcome::Exact(found) if found >= changes), "round {round}: {read:?}");
    }
}

#[test]
fn options_that_keep_the_format_are_read_to_the_end_of_the_log() {
    type Set = fn(&mut Options);
    let options: [(&str, Set); 6] = [
        ("none", |_| {}),
        ("manual_wal_flush", |options| options.set_manual_wal_flush(true)),
        ("enable_pipelined_write", |options| options.set_enable_pipelined_write(true)),
        ("unordered_write", |options| {
            options.set_unordered_write(true);
            options.set_allow_concurrent_memtable_write(true);
        }),
        ("track_and_verify_wals_in_manifest", |options| {
            options.set_track_and_verify_wals_in_manifest(true);
        }),
        ("wal_bytes_per_sync", |options| options.set_wal_bytes_per_sync(4096)),
    ];
    for (name, set) in options {
        let (read, changes) = outcome_with(set);
        assert_eq!(read, Outcome::Exact(changes), "{name}");
    }
}

/// RocksDB compresses logs with zstd alone. What is shipped is built without it and ignores the option; the
/// official library has it.
#[test]
fn logs_that_are_compressed_are_refused() {
    let dir = TempDir::new().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::Zstd);
    let compresses = DB::open(&options, dir.path()).is_ok();
    let (read, changes) = outcome_with(|options| options.set_wal_compression_type(DBCompressionType::Zstd));
    let refused = Outcome::Refused(UnknownContent::Record { kind: 9, at: 0 });
    assert_eq!(read, if compresses { refused } else { Outcome::Exact(changes) });
}

#[test]
fn logs_that_are_recycled_are_refused() {
    let (read, _) = outcome_with(|options| options.set_recycle_log_file_num(2));
    assert!(matches!(read, Outcome::Refused(UnknownContent::Record { kind: 5..=8, at: 0 })), "{read:?}");
}

#[test]
fn logs_that_name_their_predecessor_are_refused() {
    let dir = TempDir::new().unwrap();
    let options = options_with(dir.path(), "track_and_verify_wals");
    let db = DB::open(&options, dir.path()).unwrap();
    write_everything(&db);
    // The next log has a predecessor in any case.
    db.flush().unwrap();
    write_everything(&db);
    let read = outcome(dir.path());
    assert!(matches!(read, Outcome::Refused(UnknownContent::Record { kind: 130, .. })), "{read:?}");
}

#[test]
fn logs_with_sizes_of_timestamps_are_refused() {
    fn without(key: &[u8], has_timestamp: bool) -> &[u8] {
        if has_timestamp { &key[..key.len() - 8] } else { key }
    }
    fn compare(one: &[u8], other: &[u8]) -> Ordering {
        without(one, true).cmp(without(other, true)).then(other.cmp(one))
    }
    let dir = TempDir::new().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let mut timestamped = Options::default();
    timestamped.set_comparator_with_ts(
        "with-timestamps",
        8,
        Box::new(compare),
        Box::new(<[u8]>::cmp),
        Box::new(|one, one_has, other, other_has| without(one, one_has).cmp(without(other, other_has))),
    );
    let db = DB::open_cf_with_opts(&options, dir.path(), [("timestamped", timestamped)]).unwrap();
    db.put_cf_with_ts(db.cf_handle("timestamped").unwrap(), b"key", 1_u64.to_le_bytes(), b"value").unwrap();
    db.flush_wal(true).unwrap();
    let read = outcome(dir.path());
    assert!(matches!(read, Outcome::Refused(UnknownContent::Record { kind: 10, .. })), "{read:?}");
}

#[test]
fn logs_of_two_phase_commits_are_refused() {
    let dir = TempDir::new().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = TransactionDB::<rocksdb::SingleThreaded>::open(
        &options,
        &TransactionDBOptions::default(),
        dir.path(),
    );
    let db = db.unwrap();
    let transaction = db.transaction();
    transaction.set_name(b"two phases").unwrap();
    transaction.put(b"key", b"value").unwrap();
    transaction.prepare().unwrap();
    transaction.commit().unwrap();
    db.flush_wal(true).unwrap();
    let read = outcome(dir.path());
    assert!(matches!(read, Outcome::Refused(UnknownContent::Change { .. })), "{read:?}");
}

#[test]
fn a_log_is_readable_up_to_the_last_whole_record_wherever_it_ends() {
    let dir = TempDir::new().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, dir.path()).unwrap();
    write_everything(&db);
    let log = fs::read(&logs(dir.path()).unwrap()[0].1).unwrap();
    let mut last = 0;
    for end in (0..log.len()).step_by(211).chain([log.len()]) {
        let Readable { length, .. } = readable(&log[..end], None).unwrap();
        assert!((last..=end).contains(&length), "{length} of {end}");
        // What is readable is whole records: nothing is gained by what follows.
        assert_eq!(readable(&log[..length], None).unwrap().length, length);
        last = length;
    }
    assert_eq!(last, log.len());
}

#[test]
fn an_intact_record_of_an_unknown_type_is_refused_a_broken_one_is_a_gap() {
    let dir = TempDir::new().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, dir.path()).unwrap();
    db.put(b"key", b"value").unwrap();
    db.flush_wal(true).unwrap();
    let log = fs::read(&logs(dir.path()).unwrap()[0].1).unwrap();
    for kind in (5..=12).chain([42, 127, 128, 129, 130, 131, 132, 255]) {
        for header in [HEADER, RECYCLABLE_HEADER] {
            let unknown = fragment_of(kind, header, b"of a newer RocksDB, or of another option");
            let with = [&log[..], &unknown].concat();
            let refused = Err(UnknownContent::Record { kind, at: log.len() });
            assert_eq!(readable(&with, None), refused, "type {kind}, a header of {header}");
            let mut broken = with;
            *broken.last_mut().unwrap() ^= 1;
            assert_eq!(readable(&broken, None).unwrap().length, log.len(), "type {kind}");
        }
    }
    // Preallocated, or sectors that never reached the disk.
    let zeros = [&log[..], &[0; 2000]].concat();
    assert_eq!(readable(&zeros, None).unwrap().length, log.len());
}

/// Behind what was synced as well as in it: what it is cannot be known, so nothing is cut.
#[test]
fn a_ledger_with_an_unknown_record_in_its_log_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let disk = RocksDisk::open(dir.path(), None).unwrap();
    disk.write(vec![Write::Put(Family::State, b"vote".into(), Bytes::from_static(b"1"))]).unwrap();
    Runtime::new().unwrap().block_on(disk.sync()).unwrap();
    let (number, file) = logs(&dir.path().join("db")).unwrap().pop().unwrap();
    let log = fs::read(&file).unwrap();
    drop(disk);
    for start in [log.len(), 0] {
        let unknown = fragment_of(9, HEADER, &[7, 0, 0, 0]);
        let changed = [&log[..start], &unknown, &log[start..]].concat();
        fs::write(&file, &changed).unwrap();
        for refused in [RocksDisk::open(dir.path(), None), RocksDisk::examine(dir.path())] {
            let error = refused.err().expect("a refusal");
            assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
            let expected = format!("its log {number:06} has a record of the unknown type 9 at byte {start}");
            assert!(error.to_string().contains(&expected), "{error}");
        }
        assert_eq!(fs::read(&file).unwrap(), changed);
        assert!(!dir.path().join("scratch").exists());
    }
}
