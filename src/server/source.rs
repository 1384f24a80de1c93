//! Sources: each watches a platform and sends what changes in it to the catalog, as domain objects.
//!
//! Owns the contract between a source and the publisher ([`Source`], [`Batch`]). A source does not decide
//! policy: it converts objects, reports those that it cannot convert, and says what changed.
//!
//! # One trait for two kinds of knowledge
//!
//! The original design has two interfaces: `MeshSpec` for what is *declared* (namespaces, services, service
//! accounts, SMI, mesh configuration), `EndpointsProvider` for what *runs where* (pods, machines, endpoint
//! slices). Both consist of queries. Here sources push events and the catalog answers the queries, so both
//! traits would be "send changes until shutdown". The distinction that remains is which events a source
//! sends; the catalog joins the events of all sources. A directory and a Kubernetes API server declare both
//! at once; a source that knows only machines sends only machines. Hence one trait.
//!
//! Two sources that declare the same object are not arbitrated here: several sources must have separate
//! kinds or namespaces.

use futures_util::future::BoxFuture;
use smc_api::object::SourceEvent;
use smc_types::problem::Problem;
use smc_xds::revision::Revision;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// A consistent step from a source's previous state to its present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What changed since the previous batch, removals first, each in the order of [`ObjectRef`]. The first
    /// batch is the whole state. Never holds two events for one object.
    ///
    /// [`ObjectRef`]: smc_types::object_ref::ObjectRef
    pub events: Vec<SourceEvent>,
    /// All problems that the source sees now, not only new ones: they replace those of the previous batch.
    /// Sorted, without duplicates.
    pub problems: Vec<Problem>,
    /// Whether the source has sent its whole state at least once. Until then the mesh is incomplete and no
    /// proxy is served from it. Once true it stays true.
    pub synced: bool,
    /// How far the source has come with this batch; `None` if its versions cannot be compared with those of
    /// other replicas.
    pub revision: Option<Revision>,
}

/// A platform that declares the mesh or a part of it.
pub trait Source: Send {
    /// Hands the replica's metrics to the source before it runs. A source without metrics of its own ignores
    /// them.
    fn report_to(&mut self, _metrics: &Metrics) {}

    /// Watches until `shutdown` is cancelled or the receiver of `batches` is dropped; both are `Ok`.
    ///
    /// The channel is bounded and the source waits for room, so a slow catalog slows the source down
    /// instead of piling up batches: changes in the meantime are folded into the next batch. A temporary
    /// failure of the platform is no error: the source keeps its state, reports the failure among its
    /// problems and tries again. It is an error only if the source has never had a state.
    fn run(
        self: Box<Self>,
        batches: mpsc::Sender<Batch>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>>;
}

/// A source cannot start, or cannot go on. Retrying helps only once its configuration or its platform has
/// changed.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct SourceError(Box<dyn std::error::Error + Send + Sync>);

impl SourceError {
    /// Of the source's own error, which names what it reads.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}
