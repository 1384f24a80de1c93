//! How far the write-ahead log is known to be on the disk: the note beside the database that tells, after a loss of power, what
//! may be missing from what must not.
//!
//! The note is written after each sync, and not synced itself but when RocksDB begins another log: it is at most as far
//! as what it speaks of, and after a loss of power as far as the system had written it back (half a minute, as a rule). It
//! survives the end of the process however that ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::directory::replace;
use crate::error::StorageError;

pub(super) const SYNCED: &str = "synced";

/// A place in the write-ahead log, which is several files that follow on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    /// The number of the file.
    pub(super) log: u64,
    /// So many bytes into it, at the end of a record.
    pub(super) length: u64,
}

impl Position {
    /// The end of the newest log in the directory of the database. No record may be on its way into it.
    pub(super) fn end(database: &Path) -> io::Result<Self> {
        let Some((log, path)) = logs(database)?.pop() else { return Ok(Self::default()) };
        Ok(Self { log, length: fs::metadata(path)?.len() })
    }
}

/// The logs in the directory of the database, with their numbers, in the order in which they were written.
pub(super) fn logs(database: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(database)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse().ok());
        logs.extend(number.map(|number| (number, entry.path())));
    }
    logs.sort_unstable();
    Ok(logs)
}

/// The note, open to be written.
#[derive(Debug)]
pub(super) struct Synced {
    path: PathBuf,
    file: File,
    noted: Position,
}

impl Synced {
    /// Puts a note into the directory `path` of a ledger, in place of any that is there, durably.
    pub(super) fn begin(path: &Path, position: Position) -> Result<Self, StorageError> {
        replace(path, SYNCED, &text(position))?;
        let note = path.join(SYNCED);
        let file = OpenOptions::new().write(true).open(&note).map_err(StorageError::io("open", &note))?;
        Ok(Self { path: note, file, noted: position })
    }

    /// Notes that everything up to `position` is on the disk. A position before the noted one changes nothing.
    pub(super) fn note(&mut self, position: Position) -> Result<(), StorageError> {
        if position <= self.noted {
            return Ok(());
        }
        // Always as long, and less than a sector: it is there whole or not at all.
        let mut written = self.file.write_all_at(text(position).as_bytes(), 0);
        if position.log > self.noted.log {
            // The log before it may be removed from now on, and will not be missed.
            written = written.and_then(|()| self.file.sync_data());
        }
        written.map_err(StorageError::io("write", &self.path))?;
        self.noted = position;
        Ok(())
    }
}

/// Reads the note of the ledger in the directory `path`; `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Position>, StorageError> {
    let note = path.join(SYNCED);
    match fs::read_to_string(&note) {
        Ok(text) => parse(&text).map(Some).ok_or_else(|| {
            StorageError::corrupt(path, format!("{} does not name a place in the log", note.display()))
        }),
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StorageError::io("read", &note)(source)),
    }
}

fn text(Position { log, length }: Position) -> String {
    format!("{log:020} {length:020}\n")
}

fn parse(text: &str) -> Option<Position> {
    let (log, length) = text.strip_suffix('\n')?.split_once(' ')?;
    Some(Position { log: log.parse().ok()?, length: length.parse().ok()? })
}
