//! The policy oracle: what may be done in a mesh, according to SMI and docs/smi.md alone.
//!
//! Owns a second reading of policy, from the YAML to the verdict on one request. It shares no code with the
//! mesh, which Cargo enforces, and knows no Envoy: `tests/oracle/` compares it with what real Envoys do. It
//! is written for reading, and reads only meshes that are well formed: malformed objects have tests of
//! their own where they are read.

mod access;
mod calls;
mod ingress;
mod objects;
mod request;
mod splits;
mod workloads;

pub use calls::{Leaf, To};
pub use ingress::{Handshake, Outsider};
pub use objects::{Match, Name, Port, Protocol, Target, Workload, World};
pub use request::{AUTHORITY, Request, Version, joined_header, normalized_path};
