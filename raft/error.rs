//! What can go wrong with the files.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::types::ReplicaId;

/// Why the ledger's directory cannot be used, or can be used no longer. Nothing in the directory is
/// repaired or removed: that is for a person to decide.
#[derive(Debug, Error)]
pub enum StorageError {
    /// Another process has it open.
    #[error("the ledger in {} is in use by another process", .path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// Another version of SMC wrote it.
    #[error("the ledger in {} has format {found}; this version of SMC reads format {supported}", .path.display())]
    OtherFormat {
        /// The directory.
        path: PathBuf,
        /// The format found.
        found: u64,
        /// The format that can be read.
        supported: u64,
    },
    /// The directory holds something else.
    #[error("{} is not empty and holds no ledger: it has {entry:?}", .path.display())]
    NotALedger {
        /// The directory.
        path: PathBuf,
        /// Something that is in it and should not be.
        entry: String,
    },
    /// What is stored cannot be what was written.
    #[error("the ledger in {} is damaged: {what}", .path.display())]
    Corrupt {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// How it was noticed.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The file system refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The database refused, for example because the disk is full.
    #[error("cannot {action} the ledger in {}", .path.display())]
    Database {
        /// What was attempted.
        action: &'static str,
        /// The directory.
        path: PathBuf,
        /// The reason.
        #[source]
        source: rocksdb::Error,
    },
    /// There has been an authority, and what it knew is not here.
    #[error(
        "an authority was founded with this key-encryption key, as {note} notes, and this replica has no ledger and finds \
         no group that has one; restore the ledger, name the other replicas, or remove {note} to found a new authority: \
         every sidecar that there is will then need a new bootstrap"
    )]
    FoundedBefore {
        /// Where that is noted.
        note: String,
    },
    /// The files belong to another replica.
    #[error("the ledger's files are those of replica {found}, and this is replica {expected}")]
    OtherReplica {
        /// Whose they are.
        found: ReplicaId,
        /// Who opened them.
        expected: ReplicaId,
    },
    /// What is stored, or was sent, cannot be what was written.
    #[error("the ledger's storage is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// Work on the files was cut short, as at a shutdown.
    #[error("work on the ledger's files was cut short")]
    Interrupted(#[source] tokio::task::JoinError),
}

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
            _ => Self::Database { action, path, source },
        }
    }

    pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), what: what.into(), source: None }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    pub(crate) fn interrupted(source: tokio::task::JoinError) -> Self {
        Self::Interrupted(source)
    }
}
