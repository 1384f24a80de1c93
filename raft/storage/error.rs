//! Errors of the storage.

use std::error::Error as StdError;
use std::io;
#[cfg(feature = "rocks")]
use std::path::Path;
use std::path::PathBuf;

use smc_host::files::FileError;
use smc_types::ids::ReplicaId;
use thiserror::Error;

use crate::foreign_disk::OTHER_REPLICA;

/// Why the storage cannot be used, or no longer. The files are neither repaired nor removed: the operator
/// decides.
#[derive(Debug, Error)]
pub enum StorageError {
    /// Another process has it open.
    #[error("the ledger in {} is in use by another process", .path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The ledger has the format of another version of SMC.
    #[error("the ledger in {} has format {found}; this version of SMC reads format {supported}", .path.display())]
    OtherFormat {
        /// The directory.
        path: PathBuf,
        /// The format found.
        found: u64,
        /// The format that can be read.
        supported: u64,
    },
    /// The directory holds files of something else.
    #[error("{} is not empty and holds no ledger: it has {entry:?}", .path.display())]
    NotALedger {
        /// The directory.
        path: PathBuf,
        /// One of these files.
        entry: String,
    },
    /// The files are not what was written.
    #[error("the ledger in {} is damaged: {what}", .path.display())]
    Corrupt {
        /// The directory.
        path: PathBuf,
        /// The damage.
        what: String,
        /// The error that showed it.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// An operation of the file system failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An operation of the database failed, for example because the disk is full.
    #[error("cannot {action} the ledger in {}", .path.display())]
    Database {
        /// The operation.
        action: &'static str,
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// This program keeps no ledger in a directory.
    #[error("there can be no ledger in {}: this program is built without RocksDB", .path.display())]
    WithoutRocksDb {
        /// The directory.
        path: PathBuf,
    },
    /// There has been an authority, and its ledger is not here.
    #[error(
        "an authority was founded with this key-encryption key, as {note} notes, and this replica has no ledger and finds \
         no group that has one; restore the ledger, name the other replicas, or remove {note} to found a new authority: \
         every sidecar that there is will then need a new bootstrap"
    )]
    FoundedBefore {
        /// The file that notes it.
        note: String,
    },
    /// The files belong to another replica.
    #[error("{} {found}, and this is replica {expected}", OTHER_REPLICA)]
    OtherReplica {
        /// The replica that the files belong to.
        found: ReplicaId,
        /// The replica that opened them.
        expected: ReplicaId,
    },
    /// A stored or received record is not what was written.
    #[error("the ledger's storage is damaged: {what}")]
    Damaged {
        /// The damage.
        what: String,
    },
    /// An operation on the files was interrupted, as at a shutdown.
    #[error("an operation on the ledger's files was interrupted")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl From<FileError> for StorageError {
    fn from(FileError { operation, path, source }: FileError) -> Self {
        Self::Io { action: operation, path, source }
    }
}

/// What an operation on files is about.
#[cfg(feature = "rocks")]
impl StorageError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn database(action: &'static str, path: &Path) -> impl FnOnce(rocksdb::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| match source.kind() {
            rocksdb::ErrorKind::Corruption => Self::Corrupt {
                path,
                what: format!("the database cannot {action} it"),
                source: Some(Box::new(source)),
            },
            _ => Self::Database { action, path, source: Box::new(source) },
        }
    }

    pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), what: what.into(), source: None }
    }
}

impl StorageError {
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    pub(crate) fn interrupted(source: tokio::task::JoinError) -> Self {
        Self::Interrupted(source)
    }
}
