//! Open Service Mesh's configuration and policy APIs.

pub mod egress;
pub mod extension_service;
pub mod ingress_backend;
pub mod mesh_config;
pub mod mesh_root_certificate;
mod outside_server;
pub mod policy;
pub mod retry;
pub mod telemetry;
pub mod upstream_traffic_setting;

use crate::kind::CustomKind;

pub use egress::{Egress, read_egress};
pub use extension_service::{ExtensionService, read_extension_service};
pub use ingress_backend::{IngressBackend, read_ingress_backend};
pub use mesh_config::{MeshConfig, read_mesh_config};
pub use mesh_root_certificate::{MeshRootCertificate, read_mesh_root_certificate};
pub use retry::{Retry, read_retry};
pub use telemetry::{Telemetry, read_telemetry};
pub use upstream_traffic_setting::{UpstreamTrafficSetting, read_upstream_traffic_setting};

/// The kinds.
pub const KINDS: &[CustomKind] = &[
    mesh_config::KIND,
    mesh_root_certificate::KIND,
    egress::KIND,
    extension_service::KIND,
    ingress_backend::KIND,
    retry::KIND,
    telemetry::KIND,
    upstream_traffic_setting::KIND,
];
