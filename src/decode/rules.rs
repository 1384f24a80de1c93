//! What the reading of an object depends on beside the object.
//!
//! Owns the two things that differ between sources: whose mesh is read, and which platform wrote the object.

use smc_types::ids::MeshName;

/// Who wrote the objects that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    /// People, as files. A pod with an address and without conditions is ready, since no kubelet probes it
    /// and a stated address is deliberate.
    #[default]
    Files,
    /// An API server. A pod is ready once its kubelet says so. A Namespace of another mesh is no mistake.
    ApiServer,
}

/// What the reading of an object depends on. The default reads files of the mesh `smc`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// The mesh that is read.
    pub mesh: MeshName,
    /// The objects' author.
    pub platform: Platform,
}

impl Rules {
    /// The rules for files that declare this mesh.
    pub fn files(mesh: MeshName) -> Self {
        Self { mesh, platform: Platform::Files }
    }

    /// The rules for objects of an API server.
    pub fn api_server(mesh: MeshName) -> Self {
        Self { mesh, platform: Platform::ApiServer }
    }
}
