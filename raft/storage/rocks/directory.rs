//! The directory around the database: its permissions, its lock, its format.
//!
//! Owns the checks before the database is opened, since opening it writes to it.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use smc_host::files::make_directory;

use super::FORMAT_VERSION;
use super::layout::{DATABASE, FORMAT, LOCK, NAMES_BEFORE_FORMAT, replace};
use crate::storage::error::StorageError;

/// The first word of the format file.
const MAGIC: &str = "smc-ledger";

/// Whether a ledger is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A ledger in the format that this version reads.
    Ledger,
    /// None yet; at most the files of an interrupted creation, which has acknowledged nothing.
    Nothing,
}

/// A locked directory.
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) lock: Lock,
    pub(super) found: Found,
}

/// A lock on a directory. The operating system releases it when the process ends, however it ends.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that was just forked has it open too, until it runs its
        // program.
        let _ = self.0.unlock();
    }
}

impl Directory {
    /// Locks the directory for this process. Makes it, with mode 0700, if it is missing.
    pub(super) fn take(path: &Path) -> Result<Self, StorageError> {
        make_directory(path)?;
        // Checked before the lock file is made there, as it may be the directory of something else.
        let found = look(path)?;
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(StorageError::io("open the lock file", &lock_path))?;
        let lock = match lock.try_lock() {
            Ok(()) => Lock(lock),
            Err(TryLockError::WouldBlock) => return Err(StorageError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => {
                return Err(StorageError::io("lock", &lock_path)(source));
            }
        };
        // Again under the lock: another process may have made a ledger meanwhile.
        let found = if found == Found::Nothing { look(path)? } else { found };
        Ok(Self { path: path.to_owned(), lock, found })
    }

    /// The directory of the database.
    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Removes the permissions of other users, if there are any.
    pub(super) fn restrict(&self) -> Result<(), StorageError> {
        let error = |source| StorageError::io("restrict the permissions of", &self.path)(source);
        let others = fs::metadata(&self.path).map_err(error)?.permissions().mode() & 0o077;
        if others == 0 {
            return Ok(());
        }
        fs::set_permissions(&self.path, Permissions::from_mode(0o700))
            .map_err(StorageError::io("restrict the permissions of", &self.path))
    }

    /// Writes the format file, durably: from then on there is a ledger.
    pub(super) fn declare(&self) -> Result<(), StorageError> {
        replace(&self.path, FORMAT, &format!("{MAGIC} {FORMAT_VERSION}\n"))
    }
}

/// Determines what the directory holds, and changes nothing.
pub(super) fn look(path: &Path) -> Result<Found, StorageError> {
    let format = path.join(FORMAT);
    match fs::read(&format) {
        Ok(bytes) => {
            let found = version(&bytes).ok_or_else(|| {
                StorageError::corrupt(path, format!("{} does not name a format", format.display()))
            })?;
            if found != FORMAT_VERSION {
                let (path, supported) = (path.to_owned(), FORMAT_VERSION);
                return Err(StorageError::OtherFormat { path, found, supported });
            }
            return Ok(Found::Ledger);
        }
        Err(source) if source.kind() == ErrorKind::NotFound => {}
        Err(source) => return Err(StorageError::io("read", &format)(source)),
    }
    for entry in fs::read_dir(path).map_err(StorageError::io("list", path))? {
        let name = entry.map_err(StorageError::io("list", path))?.file_name();
        if NAMES_BEFORE_FORMAT.iter().all(|&ours| name != *ours) {
            let entry = name.to_string_lossy().into_owned();
            return Err(StorageError::NotALedger { path: path.to_owned(), entry });
        }
    }
    Ok(Found::Nothing)
}

fn version(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    text.strip_prefix(MAGIC)?.strip_prefix(' ')?.parse().ok()
}
