//! Open Service Mesh's configuration API.

mod mesh_config;

pub use mesh_config::{LocalProxyMode, MeshConfig, read_mesh_config};
