//! What a controller replica is configured with.
//!
//! Owns the settings and their meaning, once they have been read. Refuses to read them: that is [`crate::cli`]'s, or
//! a simulation's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use smc_mesh::bootstrap::ControllerAddress;
use smc_mesh::ids::TrustDomain;
use smc_mesh::smi::MeshNamespace;

/// Settings of one replica, fixed while it runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where proxies connect to; port 0 takes a free one.
    pub xds_listen: SocketAddr,
    /// Where bootstraps tell proxies to connect; `None` means where the replica listens, which must then not be
    /// the unspecified address.
    pub xds_address: Option<ControllerAddress>,
    /// Where bootstraps tell proxies to connect, if the controller has several replicas: each by its ordinal. Empty
    /// means this replica alone.
    pub xds_replicas: BTreeMap<u64, ControllerAddress>,
    /// The unix socket of the administration; `None` serves none, and only this process administrates.
    pub admin_socket: Option<PathBuf>,
    /// Where `/metrics`, `/healthz` and `/readyz` are served; `None` serves none.
    pub metrics_listen: Option<SocketAddr>,
    /// The domain that every identity belongs to.
    pub trust_domain: TrustDomain,
    /// The namespace whose MeshConfig counts.
    pub mesh_namespace: MeshNamespace,
    /// How long service certificates live, before jitter, where no MeshConfig says so.
    pub service_cert_lifetime: Duration,
    /// How long a pod must be gone, or of another service account, before the certificates of its proxy are released,
    /// for good; see [`RELEASE_GRACE`].
    pub release_grace: Duration,
    /// Connections of proxies held at once; see [`smc_mesh::connections::max_connections`].
    pub max_connections: usize,
    /// How long a proxy may leave a response unanswered before its connection is cut; see [`ANSWER_LIMIT`].
    pub answer_limit: Duration,
    /// How long a connection may be without a stream of an admitted proxy before it is closed; see [`IDLE_LIMIT`].
    pub idle_limit: Duration,
}

/// Long enough for a person to put back a directory that was moved away, or for a platform's API to recover; short
/// enough that a copied key of a pod that is gone is of no use for long.
pub const RELEASE_GRACE: Duration = Duration::from_mins(10);

/// Envoy answers in milliseconds, or, while clusters warm, after 15 seconds at most (`initial_fetch_timeout`). What has
/// not done so for a minute does not read, and holds memory for nothing.
pub const ANSWER_LIMIT: Duration = Duration::from_mins(1);

/// Envoy opens its stream with its connection, and tries again within seconds whenever it ends, by default within 30 at the
/// most; and a pod that is not known yet is waited for. What has had no stream for longer is not a proxy that is about to
/// be served.
pub const IDLE_LIMIT: Duration = Duration::from_secs(30);
