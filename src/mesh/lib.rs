//! The mesh as pure logic: the catalog of declared objects, access policy, and the configuration of each
//! Envoy.
//!
//! Owns what the objects mean together. It does no I/O and has no clock, randomness or tasks: time,
//! serial numbers and key material come in as values, and results go out as values. The package's
//! `Cargo.toml` guards that: it names no runtime, no Kubernetes client and no storage.
//!
//! ```text
//! policy → catalog → translate → lint → ServedState
//! ```

pub mod catalog;
pub mod coalescing;
pub mod lint;
pub mod policy;
pub mod translate;
pub mod validation;
