//! The end of a write-ahead log that a loss of power, or the end of the process, left torn.
//!
//! What was written and not synced may be there in any part: the beginning of a record without its end, a record without the
//! one before it, sectors of zeros between others. RocksDB itself either refuses such a log, or reads on behind a hole as if
//! nothing were missing there. So the log is cut here, before RocksDB sees it, where it is first interrupted; and
//! only what nobody was told is durable is cut.
//!
//! Owns where a log is cut. Refuses to cut what was synced: that is damage.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::synced::{Position, logs};
use super::wal::{Readable, readable};
use crate::error::StorageError;

/// Where the copy of the log is, as it is without its torn end, until it is known that the rest is sound.
pub(super) const TRIAL: &str = "trial";

/// A torn end. Dropping it takes away the copy of the log.
#[derive(Debug)]
pub(super) struct Tear {
    /// What is torn, and everything before it is not.
    at: Position,
    database: PathBuf,
    trial: PathBuf,
}

impl Tear {
    /// Looks for a torn end of the log in the directory `database`, which is known to be sound up to `synced`. Changes nothing
    /// there, and makes a copy of the log as it is without that end in the directory `path`, if there is one. Reads what was
    /// written after `synced`'s log was begun: some megabytes.
    pub(super) fn find(path: &Path, database: &Path, synced: Position) -> Result<Option<Self>, StorageError> {
        let logs = logs(database).map_err(StorageError::io("list", database))?;
        let trial = path.join(TRIAL);
        let Some(at) = look(&logs, synced).map_err(|trouble| trouble.of(path))? else {
            // There may be one of a process that was killed when it had cut the log.
            clear(&trial).map_err(StorageError::io("remove", &trial))?;
            return Ok(None);
        };
        let tear = Self { at, database: database.to_owned(), trial };
        tear.copy(&logs).map_err(StorageError::io("copy the log to", &tear.trial))?;
        Ok(Some(tear))
    }

    /// A directory with the log as it is without its end.
    pub(super) fn trial(&self) -> &Path {
        &self.trial
    }

    /// Cuts the end off, durably. How many bytes that were.
    pub(super) fn cut(self) -> Result<u64, StorageError> {
        let cut = || {
            let mut bytes = 0;
            // From the end: what a crash leaves of this is cut at the same place again.
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
        cut().map_err(StorageError::io("cut the torn end off the log in", &self.database))
    }

    fn copy(&self, logs: &[(u64, PathBuf)]) -> io::Result<()> {
        clear(&self.trial)?;
        fs::create_dir(&self.trial)?;
        for (number, log) in logs {
            let Some(name) = log.file_name() else { continue };
            let copy = self.trial.join(name);
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

impl Drop for Tear {
    fn drop(&mut self) {
        // If it stays, the next one begins with taking it away.
        let _ = clear(&self.trial);
    }
}

fn clear(trial: &Path) -> io::Result<()> {
    match fs::remove_dir_all(trial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Why a log cannot be judged, or is damaged.
enum Trouble {
    Unreadable(PathBuf, io::Error),
    Damaged(String),
}

impl Trouble {
    fn of(self, path: &Path) -> StorageError {
        match self {
            Self::Unreadable(log, source) => StorageError::io("read", &log)(source),
            Self::Damaged(what) => StorageError::corrupt(path, what),
        }
    }
}

/// Where the log is first interrupted, if it is. What is before `synced` must be there.
fn look(logs: &[(u64, PathBuf)], synced: Position) -> Result<Option<Position>, Trouble> {
    // A log before that of `synced` was synced with it, whole. If that one is gone, all that it held went into tables, which is
    // why there is one after it.
    let mut unsynced = logs.iter().filter(|(number, _)| *number >= synced.log).peekable();
    if unsynced.peek().is_none() && synced != Position::default() {
        return Err(Trouble::Damaged(format!("its log {:06} is missing", synced.log)));
    }
    let mut next = None;
    // A log without a record; RocksDB begins no other one after such a log.
    let mut empty = None;
    for (number, path) in unsynced {
        let log = fs::read(path).map_err(|error| Trouble::Unreadable(path.clone(), error))?;
        let Readable { length, next: following } = readable(&log, next);
        let end = Position { log: *number, length: length as u64 };
        if end < synced {
            let Position { length, .. } = synced;
            return Err(Trouble::Damaged(format!(
                "its log {number:06} can be read up to byte {}, and had been synced up to byte {length}",
                end.length,
            )));
        }
        if length < log.len() {
            return Ok(Some(empty.unwrap_or(end)));
        }
        if empty.is_some() && following.is_some() {
            return Ok(empty);
        }
        if following.is_none() {
            empty.get_or_insert(end);
        }
        next = following;
    }
    Ok(None)
}
