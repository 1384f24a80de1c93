//! The order of types on an aggregated stream: make before break.
//!
//! Owns two decisions: may updates of a type go out now, and may its removals?
//!
//! 1. **Make.** Secrets, clusters, endpoints and configurations of filters go out at once, in this order, and
//!    never wait for each other's answers: while a cluster warms, Envoy holds back its answer to CDS until
//!    EDS and SDS have delivered (`ClusterManagerImpl::updateClusterCounts`), so waiting would deadlock.
//! 2. **Switch.** Listeners and routes go out after the clusters in the stream, and after the answer to
//!    those if they have names that are new to the client. By 1. that answer means "warm": no request
//!    meets a cluster that is not ready. A changed cluster is not waited for: the old version serves
//!    until the new one is warm.
//! 3. **Break.** A resource is removed when nothing at the client refers to it: routes after the answer
//!    to listeners, clusters after the answers to listeners and routes, endpoints and secrets after
//!    those to clusters as well. What filters are configured with is not removed at all: the client drops
//!    configurations ([`ResourceType::outlasts_its_removal`]).
//!
//! **Unstated clusters.** A stream may begin while a cluster warms at the client, if the previous
//! stream broke between a changed cluster and its endpoints. Envoy then states all it holds except the
//! clusters: it pauses CDS until all clusters are warm. Such a client holds clusters that the session
//! does not know, and may lack those that listeners and routes name by now. The session infers this
//! state if a resuming client subscribes to EDS before CDS, or has answered nothing yet and has not
//! subscribed to CDS.
//!
//! **Bounds.** Every wait ends: an answer arrives within the `initial_fetch_timeout` of endpoints (15
//! s), a switch waits for at most [`PATIENCE`] answers, and a type without a subscription is not waited
//! for, except unstated clusters of a client that resumes with endpoints. The price: a listener that
//! revokes a permission waits as long if it comes together with new clusters. Lower
//! `initial_fetch_timeout` on EDS if that is too long.

use super::type_state::ClusterProgress;
use crate::resource::ResourceType;

/// For how many answers to CDS a switch waits while each answer makes room for still newer clusters.
/// After that it goes out right behind the clusters: they may still be warming, but the client has
/// them.
pub(super) const PATIENCE: u8 = 3;

/// What the order needs to know of one type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// The client has subscribed to the type on this stream.
    pub(super) registered: bool,
    /// No response is unanswered and nothing waits to be sent.
    pub(super) idle: bool,
    /// The client rejected a newer version and keeps an older one in force.
    pub(super) kept_old: bool,
}

impl Progress {
    /// Returns true if no resource of this type at the client refers to one that the view no longer has.
    fn has_released_references(self) -> bool {
        !self.registered || (self.idle && !self.kept_old)
    }
}

/// Returns true if updates of `kind` may go out. `waited` counts the answers to CDS that they waited for.
pub(super) fn may_send(kind: ResourceType, clusters: impl FnOnce() -> ClusterProgress, waited: u8) -> bool {
    match kind {
        ResourceType::Secret
        | ResourceType::Cluster
        | ResourceType::Endpoint
        | ResourceType::ExtensionConfig => true,
        ResourceType::Listener | ResourceType::Route => match clusters() {
            ClusterProgress::Known => true,
            ClusterProgress::Unanswered => waited >= PATIENCE,
            ClusterProgress::Unsent => false,
        },
    }
}

/// Returns true if removals of `kind` may go out.
///
/// `has_answered`: the client has answered a response on this stream. Before that it may not have
/// stated all it holds: Envoy begins a stream with all its subscriptions, clusters first, and answers
/// nothing before that.
pub(super) fn may_remove(
    kind: ResourceType,
    has_answered: bool,
    progress: impl Fn(ResourceType) -> Progress,
) -> bool {
    let referrers: &[ResourceType] = match kind {
        ResourceType::Listener => return true,
        ResourceType::Route | ResourceType::ExtensionConfig => &[ResourceType::Listener],
        ResourceType::Cluster => &[ResourceType::Listener, ResourceType::Route],
        ResourceType::Endpoint | ResourceType::Secret => {
            &[ResourceType::Listener, ResourceType::Route, ResourceType::Cluster]
        }
    };
    has_answered && referrers.iter().all(|&referrer| progress(referrer).has_released_references())
}
