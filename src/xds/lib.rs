//! The xDS protocol as pure logic: resources, versions, sessions and shards.
//!
//! Owns what a proxy is sent and when, not what its configuration means: a resource is a name, a version and
//! bytes. It knows no Envoy message, no policy and no catalog; the package's `Cargo.toml` guards that.
//!
//! ```text
//! resource → ServedState → session → response
//! ```

pub mod connections;
pub mod following;
pub mod missing;
pub mod names;
pub mod resource;
pub mod revision;
pub mod served_state;
pub mod session;
pub mod shard;
