//! The mesh as pure logic: declared objects, workloads, access policy, and the configuration of each Envoy.
//!
//! Owns every decision about the mesh. It does no I/O and has no clock, randomness or tasks: time,
//! serial numbers and key material come in as values, and results go out as values. The package's
//! `Cargo.toml` guards that: it names no runtime, no Kubernetes client and no storage.
//!
//! ```text
//! api → policy → catalog → translate → lint → ServedState → session
//! ```

pub mod api;
pub mod bootstrap;
pub mod catalog;
pub mod class;
pub mod coalescing;
pub mod connections;
pub mod injection;
pub mod interception;
pub mod lint;
pub mod machine_files;
pub mod names;
mod object;
pub mod policy;
pub mod resource;
pub mod revision;
pub mod served_state;
pub mod session;
pub mod shard;
pub mod translate;
pub mod validation;
