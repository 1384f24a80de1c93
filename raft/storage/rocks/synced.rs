//! The note beside the database of how far the write-ahead log is synced. After a loss of power it
//! distinguishes a torn tail, which may be cut, from damage.
//!
//! The note is written after each sync of the log, and synced itself only when RocksDB begins another log.
//! So it never names more than was synced; after a loss of power it may name less, by as much as the system
//! had not written back (half a minute, as a rule). It survives the end of the process, however that ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::layout::{SYNCED, replace};
use crate::storage::error::StorageError;

/// A position in the write-ahead log, which is a sequence of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    /// The number of the file.
    pub(super) log: u64,
    /// The offset in bytes, at the end of a record.
    pub(super) length: u64,
}

impl Position {
    /// The end of the newest log file in the directory of the database. No record may be written to it
    /// meanwhile.
    pub(super) fn end(database: &Path) -> Result<Self, StorageError> {
        let newest = || {
            let Some((log, path)) = logs(database)?.pop() else { return Ok(Self::default()) };
            Ok(Self { log, length: fs::metadata(path)?.len() })
        };
        newest().map_err(StorageError::io("find the end of the log in", database))
    }
}

/// The log files in the directory of the database with their numbers, in the order of writing.
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

/// The note, open for writing.
#[derive(Debug)]
pub(super) struct Synced {
    path: PathBuf,
    file: File,
    noted: Position,
}

impl Synced {
    /// Writes a new note into the directory `path` of a ledger, durably, in place of any former one.
    pub(super) fn begin(path: &Path, position: Position) -> Result<Self, StorageError> {
        replace(path, SYNCED, &text(position))?;
        let note = path.join(SYNCED);
        let file = OpenOptions::new().write(true).open(&note).map_err(StorageError::io("open", &note))?;
        Ok(Self { path: note, file, noted: position })
    }

    /// Notes that everything up to `position` is synced. A position before the noted one is ignored.
    pub(super) fn note(&mut self, position: Position) -> Result<(), StorageError> {
        if position <= self.noted {
            return Ok(());
        }
        // Of constant length, and within one sector: written whole or not at all.
        let mut written = self.file.write_all_at(text(position).as_bytes(), 0);
        if position.log > self.noted.log {
            // From now on RocksDB may remove the former log file, which the note must not name any more.
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
            StorageError::corrupt(path, format!("{} does not name a position in the log", note.display()))
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
