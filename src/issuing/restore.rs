//! Whether a backup can be the beginning of a new group.
//!
//! Owns the check that every private key in a backup can be opened with the configured key-encryption keys. A
//! controller would find a missing one only at its start, when the operator may have deleted it already.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use smc_raft::{Backup, BackupError, read_backup};
use thiserror::Error;

use crate::seal::{KeyEncryption, KeyRing, missing_key};

/// A backup that cannot be restored.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// The file is missing, damaged, or sealed with a key-encryption key that is not configured.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        #[source]
        source: BackupError,
    },
    /// A private key in the backup is sealed with the key-encryption key of this id.
    #[error(
        "private keys in the backup are sealed with the key-encryption key {0}, which is not configured; give its file with \
         --also-kek-file"
    )]
    OtherKey(String),
}

/// Reads the backup in `path`, of which no more than `length` bytes if that is given, and checks that
/// `keys` open all private keys in it. Blocks.
pub fn read_restorable(path: &Path, length: Option<u64>, keys: &KeyRing) -> Result<Backup, RestoreError> {
    let read = || {
        let file = File::open(path)?.take(length.unwrap_or(u64::MAX));
        read_backup(&keys.group_secret(), BufReader::new(file))
    };
    let backup = read().map_err(|source| RestoreError::Read { path: path.to_owned(), source })?;
    match missing_key(&backup.ledger, keys) {
        Some(key) => Err(RestoreError::OtherKey(key)),
        None => Ok(backup),
    }
}
