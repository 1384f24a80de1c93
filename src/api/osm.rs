//! Open Service Mesh's configuration and policy APIs.

mod mesh_config;
mod policy;

pub use mesh_config::{MeshConfig, read_mesh_config};
pub use policy::{
    NOT_ENFORCED, read_egress, read_ingress_backend, read_retry, read_telemetry,
    read_upstream_traffic_setting,
};
