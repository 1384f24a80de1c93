//! The mark in a data directory whose replica has left the group for good.
//!
//! Owns the mark and what follows from it. A replica that was removed may not come back with its disk: it
//! would not be asked for anything, and what it holds grows old. Once its removal is committed it marks its
//! directory; at its next start, after the set was scaled up again, it begins without what it knew and joins.
//! A replica that was removed while it did not run marks its directory once the leader has confirmed it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use smc_host::files::sync_name;
use thiserror::Error;
use tracing::info;

const MARK: &str = "left-the-group";

/// The mark cannot be made, or not be followed.
#[derive(Debug, Error)]
#[error("cannot {action} {}", .path.display())]
pub struct LeftError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Marks `data_dir` durably. Blocks.
pub(super) fn mark(data_dir: &Path) -> Result<(), LeftError> {
    let path = data_dir.join(MARK);
    let made = File::create(&path).and_then(|file| file.sync_all()).and_then(|()| sync_name(&path));
    made.map_err(|source| LeftError { action: "mark the end of the membership in", path, source })
}

/// Whether `data_dir` is marked. Blocks.
pub fn has_left(data_dir: &Path) -> Result<bool, LeftError> {
    let path = data_dir.join(MARK);
    path.try_exists().map_err(|source| LeftError { action: "look for", path, source })
}

/// Takes the mark away, durably: a person makes the ledger of this directory that of a new group. Blocks.
pub fn stay(data_dir: &Path) -> Result<(), LeftError> {
    let path = data_dir.join(MARK);
    let removed = match fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        removed => removed.and_then(|()| sync_name(&path)),
    };
    removed.map_err(|source| LeftError { action: "remove", path, source })
}

/// Deletes what a marked directory knows, and then the mark: the ledger, a directory, and the last known
/// mesh, a file. Blocks.
pub fn sweep(data_dir: &Path, ledger: &Path, last_known: &Path) -> Result<(), LeftError> {
    if !has_left(data_dir)? {
        return Ok(());
    }
    for (path, deleted) in [(last_known, fs::remove_file(last_known)), (ledger, fs::remove_dir_all(ledger))] {
        let deleted = match deleted {
            Err(source) if source.kind() != ErrorKind::NotFound => Err(source),
            _ => sync_name(path),
        };
        deleted.map_err(|source| LeftError { action: "delete", path: path.to_owned(), source })?;
    }
    stay(data_dir)?;
    info!("this replica had left the group: it begins with an empty ledger");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_marked_directory_loses_what_it_knows_and_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger");
        fs::create_dir(&ledger).unwrap();
        fs::write(ledger.join("CURRENT"), "x").unwrap();
        let last_known = dir.path().join("last-known-mesh");
        fs::write(&last_known, "x").unwrap();
        sweep(dir.path(), &ledger, &last_known).unwrap();
        assert!(ledger.join("CURRENT").exists() && last_known.exists(), "without a mark nothing is deleted");
        mark(dir.path()).unwrap();
        sweep(dir.path(), &ledger, &last_known).unwrap();
        assert!(!ledger.exists() && !last_known.exists());
        fs::create_dir(&ledger).unwrap();
        sweep(dir.path(), &ledger, &last_known).unwrap();
        assert!(ledger.exists(), "the mark is gone");
        mark(dir.path()).unwrap();
        assert!(has_left(dir.path()).unwrap());
        stay(dir.path()).unwrap();
        stay(dir.path()).unwrap();
        sweep(dir.path(), &ledger, &last_known).unwrap();
        assert!(ledger.exists(), "a person made it that of a new group");
        // Cut short between the two deletions.
        fs::remove_dir(&ledger).unwrap();
        mark(dir.path()).unwrap();
        sweep(dir.path(), &ledger, &last_known).unwrap();
    }
}
