//! The names of the files in a ledger's directory, and how such a file is replaced.

use std::fs::File;
use std::path::Path;

use smc_host::files::private;

use crate::storage::error::StorageError;

/// Locked while the replica runs.
pub(super) const LOCK: &str = "lock";

/// The version of the format of all other files; written last when the directory is made.
pub(super) const FORMAT: &str = "format";

/// [`FORMAT`] before it is renamed.
pub(super) const FORMAT_BEING_WRITTEN: &str = "format.new";

/// How far RocksDB's log is known to be synced.
pub(super) const SYNCED: &str = "synced";

/// [`SYNCED`] before it is renamed.
pub(super) const SYNCED_BEING_WRITTEN: &str = "synced.new";

/// The directory of RocksDB.
pub(super) const DATABASE: &str = "db";

/// A copy of the log without its torn end, while it is not known yet whether the rest is sound.
pub(super) const SCRATCH: &str = "scratch";

/// The former name of [`SCRATCH`], which a killed process of an older version may have left.
pub(super) const FORMER_SCRATCH: &str = "trial";

/// The names that may be in a directory whose creation was interrupted.
pub(super) const NAMES_BEFORE_FORMAT: [&str; 7] =
    [LOCK, FORMAT_BEING_WRITTEN, SYNCED, SYNCED_BEING_WRITTEN, SCRATCH, FORMER_SCRATCH, DATABASE];

/// Writes the file `name` in the directory `path`, durably, in one atomic step.
pub(super) fn replace(path: &Path, name: &str, text: &str) -> Result<(), StorageError> {
    let file = path.join(name);
    let replaced = private::replace(&file, text.as_bytes()).and_then(|()| File::open(path)?.sync_all());
    replaced.map_err(StorageError::io("write", &file))
}
