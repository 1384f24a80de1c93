//! The sidecar as pure logic: which pods get one, what injection makes of them, and how it starts.
//!
//! Owns Envoy's bootstrap ([`bootstrap`]), the changes to a Pod ([`injection`]), the rules of interception
//! ([`interception`]), the systemd units of a machine ([`machine_files`]) and what a sidecar counts
//! ([`statistics`]) and does not count (`omitted_statistics`). It knows no policy, no catalog and no Envoy
//! message: what a running sidecar is sent is the mesh's.

pub mod bootstrap;
pub mod injection;
pub mod interception;
mod json_object;
pub mod machine_files;
mod omitted_statistics;
pub mod statistics;
