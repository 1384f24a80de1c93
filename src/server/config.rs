//! The settings of a controller replica.
//!
//! Owns their meaning and defaults. `smc controller` reads them from the command line.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use smc_mesh::translate::{REQUEST_RETRIES, STREAM_DURATION};
use smc_sidecar::bootstrap::INBOUND_CONNECTIONS;
use smc_types::host_port::HostPort;
use smc_types::ids::{MeshNamespace, ReplicaId, TrustDomain};

pub use smc_xds::missing::TIME_TO_CONNECT;

/// The settings of one replica, fixed while it runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address of the xDS port; port 0 takes a free one.
    pub xds_listen: SocketAddr,
    /// The address in bootstraps; `None` means the address that the replica listens on, which must then not
    /// be the unspecified one.
    pub xds_address: Option<HostPort>,
    /// The addresses in bootstraps by replica, if the controller has several. Empty means this replica alone.
    pub xds_replicas: BTreeMap<ReplicaId, HostPort>,
    /// The path of the administration's unix socket; `None` serves the administration only within the
    /// process.
    pub admin_socket: Option<PathBuf>,
    /// The address of `/metrics`, `/healthz` and `/readyz`; `None` serves none.
    pub metrics_listen: Option<SocketAddr>,
    /// The trust domain of all identities.
    pub trust_domain: TrustDomain,
    /// The control plane's namespace, the only one whose MeshConfig is used.
    pub mesh_namespace: MeshNamespace,
    /// The lifetime of service certificates before jitter, if MeshConfig sets none.
    pub service_cert_lifetime: Duration,
    /// How long a pod must be gone, or have another service account, before its proxy certificates are
    /// released, which is irreversible; see [`RELEASE_GRACE`].
    pub release_grace: Duration,
    /// What sidecars let others do.
    pub sidecars: SidecarLimits,
    /// The limit of open connections of proxies; see [`smc_xds::connections::max_connections`].
    pub max_connections: usize,
    /// How long a proxy may leave a response unanswered before its connection is closed; see
    /// [`ANSWER_LIMIT`].
    pub answer_limit: Duration,
    /// How long a connection may have no stream of an admitted proxy before it is closed; see [`IDLE_LIMIT`].
    pub idle_limit: Duration,
    /// How long a sidecar may be away from all replicas before that is a problem; see
    /// [`TIME_TO_CONNECT`].
    pub time_to_connect: Duration,
}

/// How often sidecars try, and what they let others do, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidecarLimits {
    /// Connections to the inbound port, of strangers, too. Holds for new bootstraps.
    pub inbound_connections: u32,
    /// How long a request may take. Zero means without end; a year is the most.
    pub stream_duration: Duration,
    /// How often a request is sent again that was certainly not processed; 0 for never. At most
    /// [`smc_mesh::translate::MAX_REQUEST_RETRIES`].
    pub request_retries: u32,
}

impl Default for SidecarLimits {
    fn default() -> Self {
        Self {
            inbound_connections: INBOUND_CONNECTIONS,
            stream_duration: STREAM_DURATION,
            request_retries: REQUEST_RETRIES,
        }
    }
}

/// The default grace: long enough for an operator to restore a directory that was moved away, or for a
/// platform's API to recover; short enough to limit the use of a copied key of a deleted pod.
pub const RELEASE_GRACE: Duration = Duration::from_mins(10);

/// The default limit for answers. Envoy answers in milliseconds, or within 15 seconds while clusters warm
/// (`initial_fetch_timeout`). A client that has not answered for a minute does not read, and holds memory
/// for nothing.
pub const ANSWER_LIMIT: Duration = Duration::from_mins(1);

/// The default limit for connections without a stream. Envoy opens its stream with its connection, and
/// reopens an ended stream within 30 seconds by default; the server waits for a pod that is not known yet.
/// A connection without a stream for longer is not about to be served.
pub const IDLE_LIMIT: Duration = Duration::from_secs(30);
