//! Where the mesh comes from: sources watch a platform and tell the catalog, in the mesh's own words.
//!
//! Owns the contract between a source and whoever feeds the catalog ([`Source`], [`Batch`]), and the
//! sources themselves. Refuses to decide anything about policy: a source converts, reports what it could
//! not convert, and says what changed.
//!
//! # One trait for two kinds of knowledge
//!
//! The original design has two interfaces: `MeshSpec` says what was *declared* (namespaces, services,
//! service accounts, SMI, mesh configuration), `EndpointsProvider` says what *runs where* (pods, machines,
//! endpoint slices). Both were made of queries. Here sources push events and the catalog answers the
//! queries, so the two would be the same trait twice: "tell me what changed, until I stop you". What
//! remains of the distinction is which events a source sends, and the catalog joins them whoever sent
//! them. A directory declares both at once, and so does a Kubernetes API server; a source that knows only
//! machines simply never sends anything else. Hence one trait.
//!
//! Two sources that speak of the same object are not arbitrated here: whoever runs several gives each its
//! own kinds or namespaces.

pub mod directory;
pub mod kubernetes;
pub mod manifest;

use std::path::PathBuf;

use smc_mesh::catalog::SourceEvent;
use smc_mesh::problem::Problem;
use smc_raft::Pending;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use directory::DirectorySource;

/// What a source tells at one moment: a consistent step from its last state to its present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What changed since the batch before, removals first, each in the order of [`ObjectRef`]; the first
    /// batch is the whole state. Never holds two events for one object.
    ///
    /// [`ObjectRef`]: smc_mesh::catalog::ObjectRef
    pub events: Vec<SourceEvent>,
    /// Everything that is wrong now, as the source sees it (not only what is new): it replaces what the
    /// batch before said. Sorted, without duplicates.
    pub problems: Vec<Problem>,
    /// Whether the source has told everything it knows at least once. Until then the mesh is incomplete,
    /// and no proxy may be answered from it. Once true it stays true.
    pub synced: bool,
}

/// Something that knows the mesh, or a part of it, and keeps telling.
pub trait Source: Send {
    /// Watches until `shutdown` is cancelled or nobody listens at `batches` any more; both are `Ok`.
    ///
    /// The channel is bounded and the source waits for room, so a slow catalog slows the source down
    /// instead of piling up batches: what changes meanwhile is folded into the next batch. A passing
    /// failure of the platform is no error: the source keeps what it told, reports the failure among its
    /// problems and tries again. It is an error only where there has never been anything to tell.
    fn run(
        self: Box<Self>,
        batches: mpsc::Sender<Batch>,
        shutdown: CancellationToken,
    ) -> Pending<'static, Result<(), SourceError>>;
}

/// Why a source could not begin. Trying again helps only after somebody changed something.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The mesh directory cannot be listed.
    #[error("cannot read the mesh directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// Reading the directory broke off: a defect of this program, or the runtime is shutting down.
    #[error("reading the mesh directory {} broke off", path.display())]
    Aborted {
        /// The directory.
        path: PathBuf,
        /// What became of the reading task.
        #[source]
        source: tokio::task::JoinError,
    },
}
