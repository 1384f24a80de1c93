//! What every xDS stream of a replica needs, and the peer that a stream belongs to.

use std::sync::Arc;
use std::time::Duration;

use smc_authority::rules::PeerCertificate;
use smc_host::env::Env;
use smc_xds::served_state::ServedState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::proxies::{Connection, Proxies};
use crate::followers::Followers;
use crate::metrics::Metrics;
use crate::problems::Problems;
use crate::registry::admission::ProxyAdmission;
use crate::sidecars::Refusals;

/// What streams need of the replica.
pub(crate) struct Context {
    /// The latest state of the mesh; `None` until the sources have synced.
    pub(crate) served: watch::Receiver<Option<Arc<ServedState>>>,
    /// Wakes the streams that a state concerns.
    pub(crate) followers: Followers,
    pub(crate) admission: ProxyAdmission,
    /// The connections and streams of the replica.
    pub(crate) proxies: Proxies,
    /// Notes peers that have another CA.
    pub(crate) refusals: Refusals,
    /// The problems of the mesh, of which rejected resources are some.
    pub(crate) problems: Problems,
    /// The clock.
    pub(crate) env: Env,
    /// The counters.
    pub(crate) metrics: Metrics,
    /// The tasks of the open streams.
    pub(crate) tasks: TaskTracker,
    /// How long a proxy may leave a response unanswered, or the queue of responses full.
    pub(crate) answer_limit: Duration,
    /// How long a connection may be without a stream.
    pub(crate) idle_limit: Duration,
    /// Cancelled to end all streams with OK and to refuse new ones.
    pub(crate) draining: CancellationToken,
}

/// The client of a connection. The extensions of each of its requests carry this.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Its certificate, which the ledger has as issued and not released.
    pub(super) certificate: Arc<PeerCertificate>,
    pub(super) connection: Connection,
}
