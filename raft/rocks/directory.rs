//! The directory around the database: its permissions, its lock, the format it declares.
//!
//! Everything here is checked before the database is opened, since opening one writes to it.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::FORMAT_VERSION;
use super::synced::SYNCED;
use super::tear::TRIAL;
use crate::durable::make_directory;
use crate::error::StorageError;
use crate::private_file;

const LOCK: &str = "lock";
const FORMAT: &str = "format";
const FORMAT_BEING_WRITTEN: &str = "format.new";
const SYNCED_BEING_WRITTEN: &str = "synced.new";
const DATABASE: &str = "db";

/// The first word of the format file.
const MAGIC: &str = "smc-ledger";

/// Whether a ledger is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// One of a format that we read.
    Ledger,
    /// None yet; at most what is left of a creation that did not finish, and thus acknowledged nothing.
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
        // Closing the file is not enough: a process that was just started by this one has it too until it runs its own program.
        let _ = self.0.unlock();
    }
}

impl Directory {
    /// Takes the directory, made with mode 0700 if it is missing, for this process alone.
    pub(super) fn take(path: &Path) -> Result<Self, StorageError> {
        make_directory(path)?;
        // First whether it is ours at all, before a lock file is put there.
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
        // Again, now that nobody else can be making one.
        let found = if found == Found::Nothing { look(path)? } else { found };
        Ok(Self { path: path.to_owned(), lock, found })
    }

    /// Where the database is.
    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Takes away the permissions of others, should somebody have given them.
    pub(super) fn restrict(&self) -> Result<(), StorageError> {
        let error = |source| StorageError::io("restrict the permissions of", &self.path)(source);
        let others = fs::metadata(&self.path).map_err(error)?.permissions().mode() & 0o077;
        if others == 0 {
            return Ok(());
        }
        fs::set_permissions(&self.path, Permissions::from_mode(0o700))
            .map_err(StorageError::io("restrict the permissions of", &self.path))
    }

    /// Declares the format, durably: from here on there is a ledger.
    pub(super) fn declare(&self) -> Result<(), StorageError> {
        replace(&self.path, FORMAT, &format!("{MAGIC} {FORMAT_VERSION}\n"))
    }
}

/// Writes the file `name` into the directory `path`, durably, in one step.
pub(super) fn replace(path: &Path, name: &str, text: &str) -> Result<(), StorageError> {
    let file = path.join(name);
    let replaced = private_file::replace(&file, text.as_bytes()).and_then(|()| File::open(path)?.sync_all());
    replaced.map_err(StorageError::io("write", &file))
}

/// Looks without touching.
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
        if ![LOCK, FORMAT_BEING_WRITTEN, SYNCED, SYNCED_BEING_WRITTEN, TRIAL, DATABASE]
            .iter()
            .any(|&ours| name == *ours)
        {
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
