//! What decides how sidecars are made, other than the pod itself.

use std::sync::Arc;

use smc_model::sidecar_settings::{LocalProxyMode, SidecarSettings};

/// The settings of the injector. MeshConfig's go before the controller's flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The image of Envoy.
    pub envoy_image: String,
    /// The image with `smc`, for the init container.
    pub init_image: String,
    /// The Secrets, in the pod's namespace, with which both images are pulled. The kubelet goes on without
    /// one that does not exist.
    pub pull_secrets: Vec<String>,
    /// Where the sidecar reaches its application.
    pub local_proxy_mode: LocalProxyMode,
    /// What MeshConfig says.
    pub sidecar: Arc<SidecarSettings>,
}

impl Settings {
    /// The image of Envoy in force.
    pub(super) fn envoy_image(&self) -> &str {
        self.sidecar.envoy_image.as_deref().unwrap_or(&self.envoy_image)
    }

    /// The image of the init container in force.
    pub(super) fn init_image(&self) -> &str {
        self.sidecar.init_image.as_deref().unwrap_or(&self.init_image)
    }
}
