//! The order in which types follow one another on an aggregated stream: make before break.
//!
//! Owns two questions: may this type's news go out now, and may this type's removals? Refuses to know
//! what is in a response.
//!
//! 1. **Make.** Secrets, clusters and endpoints go out at once, in this order, and never wait for one
//!    another's answers: while a cluster warms, Envoy holds back the answer to CDS until EDS and SDS have
//!    delivered (`ClusterManagerImpl::updateClusterCounts`), so to wait would be to deadlock.
//! 2. **Switch.** Listeners and routes go out after the clusters in the stream, and, if those have names
//!    that are new to the client, after the answer to them. By 1. that answer means "warm": no request
//!    meets a cluster that is not ready. Clusters that merely changed are not waited for, since the old one
//!    serves until the new one is warm.
//! 3. **Break.** What is gone is removed when nothing refers to it any more at the client: routes when
//!    listeners are answered, clusters when listeners and routes are, endpoints and secrets when clusters
//!    are as well.
//!
//! A stream may begin while a cluster warms at the client, if the one before broke between a changed cluster and
//! its endpoints. Envoy then states all it holds but the clusters: CDS is held back as a whole until all are
//! warm. Such a client holds clusters that it has not told of, and may lack those that listeners and routes
//! name by now. Who resumes and states endpoints before clusters is one; until it has answered something, so may be
//! whoever resumes without clusters.
//!
//! Nothing waits for ever: answers come within the `initial_fetch_timeout` of endpoints (15 s) whatever happens, a
//! switch waits for [`PATIENCE`] answers at most, and a type nobody asked for is not waited for, unless the client
//! resumes with endpoints, which are of no use without clusters. The price: a listener that takes a permission away
//! waits as long, if it comes together with new clusters. Where that is too long, `initial_fetch_timeout` on EDS is
//! the bound to lower.

use super::track::Novelty;
use crate::resource::ResourceType;

/// For how many answers to CDS a switch waits while each makes room for yet newer clusters. Beyond that it
/// goes out right behind the clusters: they may be warming still, but the client has them.
pub(super) const PATIENCE: u8 = 3;

/// What one type's track tells the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// The client has asked for the type on this stream.
    pub(super) registered: bool,
    /// Nothing is unanswered and nothing waits.
    pub(super) quiet: bool,
    /// An older version is still in force since the newer one was refused.
    pub(super) stuck: bool,
}

impl Progress {
    /// Whether nothing of this type at the client refers to what the view no longer has.
    fn has_let_go(self) -> bool {
        !self.registered || (self.quiet && !self.stuck)
    }
}

/// Whether news of `kind` may go out, by how far the client is with new clusters.
pub(super) fn may_send(kind: ResourceType, clusters: impl FnOnce() -> Novelty, waited: u8) -> bool {
    match kind {
        ResourceType::Secret | ResourceType::Cluster | ResourceType::Endpoint => true,
        ResourceType::Listener | ResourceType::Route => match clusters() {
            Novelty::Known => true,
            Novelty::Unanswered => waited >= PATIENCE,
            Novelty::Unsent => false,
        },
    }
}

/// Whether removals of `kind` may go out.
///
/// `settled`: the client has answered something on this stream. Before that it may have more to say about
/// what it holds: Envoy begins a stream by stating all its subscriptions, clusters first, and answers
/// nothing before that.
pub(super) fn may_remove(
    kind: ResourceType,
    settled: bool,
    progress: impl Fn(ResourceType) -> Progress,
) -> bool {
    let referrers: &[ResourceType] = match kind {
        ResourceType::Listener => return true,
        ResourceType::Route => &[ResourceType::Listener],
        ResourceType::Cluster => &[ResourceType::Listener, ResourceType::Route],
        ResourceType::Endpoint | ResourceType::Secret => {
            &[ResourceType::Listener, ResourceType::Route, ResourceType::Cluster]
        }
    };
    settled && referrers.iter().all(|&referrer| progress(referrer).has_let_go())
}
