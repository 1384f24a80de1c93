//! What a Kubernetes source reports about itself in metrics.

use smc_server::metrics::Metrics;
use smc_types::object_ref::Kind;
use smc_types::time::Timestamp;

/// The source's metrics; none are kept where no replica takes them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct SourceMetrics(pub(super) Option<Metrics>);

impl SourceMetrics {
    /// A kind was listed once more.
    pub(super) fn listed_again(&self, kind: Kind) {
        if let Some(metrics) = &self.0 {
            metrics.source_listed_again(kind.as_str());
        }
    }

    /// A watch was opened once more.
    pub(super) fn watched_again(&self, kind: Kind) {
        if let Some(metrics) = &self.0 {
            metrics.source_watched_again(kind.as_str());
        }
    }

    /// The API server went back to an older state.
    pub(super) fn went_back(&self) {
        if let Some(metrics) = &self.0 {
            metrics.source_went_back();
        }
    }

    /// The API server said something.
    pub(super) fn heard(&self, now: Timestamp) {
        if let Some(metrics) = &self.0 {
            metrics.source_heard(now);
        }
    }

    /// How good the state is.
    pub(super) fn state(&self, synced: bool, stale: bool) {
        if let Some(metrics) = &self.0 {
            metrics.source_state(synced, stale);
        }
    }
}
