//! The torn tail of a write-ahead log, left by a loss of power or the end of the process.
//!
//! Records that were written and not synced may be on the disk in part: the beginning of a record without
//! its end, a record without the one before it, sectors of zeros in between. RocksDB either refuses such a
//! log, or reads on after a gap as if nothing were missing there. So the log is cut at its first gap before
//! RocksDB reads it; and only records that were never acknowledged as durable are cut.
//!
//! Owns where a log is cut. Does not cut what was synced: a gap there is damage.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::layout::{FORMER_SCRATCH, SCRATCH};
use super::synced::{Position, logs};
use super::wal::{Readable, readable};
use crate::storage::error::StorageError;

/// A torn tail. Dropping it removes the copy of the log.
#[derive(Debug)]
pub(super) struct TornTail {
    /// Where it begins.
    at: Position,
    database: PathBuf,
    scratch: PathBuf,
}

impl TornTail {
    /// Finds the torn tail of the log in the directory `database`, which is known to be synced up to
    /// `synced`. Changes nothing there; if there is a tail, copies the log without it into the directory
    /// `path`. Reads the log files from that of `synced` on: some megabytes.
    pub(super) fn find(path: &Path, database: &Path, synced: Position) -> Result<Option<Self>, StorageError> {
        let logs = logs(database).map_err(StorageError::io("list", database))?;
        let gap = first_gap(path, &logs, synced)?;
        for name in [SCRATCH, FORMER_SCRATCH] {
            // A process that was killed while it had a copy leaves it.
            let left = path.join(name);
            clear(&left).map_err(StorageError::io("remove", &left))?;
        }
        let Some(at) = gap else { return Ok(None) };
        let tail = Self { at, database: database.to_owned(), scratch: path.join(SCRATCH) };
        tail.copy(&logs).map_err(StorageError::io("copy the log to", &tail.scratch))?;
        Ok(Some(tail))
    }

    /// A directory with a copy of the log without its torn tail.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Cuts the tail off, durably. Returns its length in bytes.
    pub(super) fn cut(self) -> Result<u64, StorageError> {
        let cut = || {
            let mut bytes = 0;
            // From the end, so that a crash in between leaves a tail that is cut at the same position again.
            for (number, log) in logs(&self.database)?.into_iter().rev() {
                if number < self.at.log {
                    break;
                }
                let keep = if number == self.at.log { self.at.length } else { 0 };
                let file = OpenOptions::new().write(true).open(log)?;
                bytes += file.metadata()?.len().saturating_sub(keep);
                file.set_len(keep)?;
                file.sync_all()?;
            }
            Ok(bytes)
        };
        cut().map_err(StorageError::io("cut the torn tail off the log in", &self.database))
    }

    fn copy(&self, logs: &[(u64, PathBuf)]) -> io::Result<()> {
        fs::create_dir(&self.scratch)?;
        for (number, log) in logs {
            let Some(name) = log.file_name() else { continue };
            let copy = self.scratch.join(name);
            if *number < self.at.log {
                symlink(fs::canonicalize(log)?, copy)?;
            } else if *number == self.at.log {
                let mut whole = fs::read(log)?;
                whole.truncate(usize::try_from(self.at.length).unwrap_or(usize::MAX));
                fs::write(copy, whole)?;
            }
        }
        Ok(())
    }
}

impl Drop for TornTail {
    fn drop(&mut self) {
        // If that fails, the next `find` removes it.
        let _ = clear(&self.scratch);
    }
}

fn clear(scratch: &Path) -> io::Result<()> {
    match fs::remove_dir_all(scratch) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where the log of the ledger in `path` has its first gap, if it has one. Fails if that is before
/// `synced`, or if the log has records that this program cannot read.
fn first_gap(
    path: &Path,
    logs: &[(u64, PathBuf)],
    synced: Position,
) -> Result<Option<Position>, StorageError> {
    // A log file before that of `synced` was synced whole before the next one was begun. If the file of
    // `synced` is gone, its records went into tables, and then there is one after it.
    let mut unsynced = logs.iter().filter(|(number, _)| *number >= synced.log).peekable();
    if unsynced.peek().is_none() && synced != Position::default() {
        return Err(StorageError::corrupt(path, format!("its log {:06} is missing", synced.log)));
    }
    let mut next = None;
    // The first log file without a record: RocksDB begins no other one after such a file.
    let mut empty = None;
    for (number, file) in unsynced {
        let log = fs::read(file).map_err(StorageError::io("read", file))?;
        let read = readable(&log, next);
        let Readable { length, next: following } =
            read.map_err(|unknown| StorageError::corrupt(path, format!("its log {number:06} {unknown}")))?;
        let end = Position { log: *number, length: length as u64 };
        if end < synced {
            let until = synced.length;
            return Err(StorageError::corrupt(
                path,
                format!(
                    "its log {number:06} can be read up to byte {length}, and had been synced up to byte {until}"
                ),
            ));
        }
        if length < log.len() || (empty.is_some() && following.is_some()) {
            return Ok(Some(empty.unwrap_or(end)));
        }
        if following.is_none() {
            empty.get_or_insert(end);
        }
        next = following;
    }
    Ok(None)
}
