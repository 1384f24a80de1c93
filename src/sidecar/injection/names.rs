//! The names that injection gives and reads: labels, annotations, containers, volumes, Secrets.

use smc_types::ids::ProxyUuid;

/// Whether pods get a sidecar, on a Namespace or on a Pod, which wins (OSM).
pub const INJECTION_ANNOTATION: &str = "openservicemesh.io/sidecar-injection";

/// Whether Prometheus is asked to scrape the sidecars, on a Namespace or on a Pod, which wins (OSM).
pub const METRICS_ANNOTATION: &str = "openservicemesh.io/metrics";

/// The label with the UUID of a pod's sidecar (OSM).
pub const PROXY_UUID_LABEL: &str = "osm-proxy-uuid";

/// The label by which objects that SMC writes are found.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY_VALUE: &str = "smc";

/// The key in a bootstrap Secret, and the name of its file.
pub const BOOTSTRAP_KEY: &str = "bootstrap.json";

/// How the name of every bootstrap Secret begins. The UUID of the proxy follows.
pub const SECRET_PREFIX: &str = "smc-bootstrap-";

/// The sidecar's container.
pub const ENVOY: &str = "envoy";

/// The init container that sets up interception.
pub(super) const INIT: &str = "smc-init";

/// The containers that injection adds.
pub const CONTAINERS: [&str; 2] = [INIT, ENVOY];

/// The volume with the bootstrap.
pub(super) const VOLUME: &str = "smc-bootstrap";

/// Where the volume is mounted in the sidecar.
pub(super) const MOUNT: &str = "/etc/envoy";

/// The name of the Secret with the bootstrap of this proxy.
pub fn secret_name(uuid: ProxyUuid) -> String {
    format!("{SECRET_PREFIX}{uuid}")
}
