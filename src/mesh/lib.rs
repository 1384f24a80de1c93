//! The mesh as pure logic: what was declared, what runs where, who may talk to whom, and what each Envoy
//! must therefore be told.
//!
//! Owns every decision of SMC. Refuses to do anything: no I/O, no clock, no randomness, no tasks. Time,
//! serial numbers and key material come in as values; what should be done goes out as values. The
//! package's `Cargo.toml` is the guard: it names no runtime, no Kubernetes client, no storage.
//!
//! ```text
//! SourceEvent → catalog → policy → translate → lint → World → session → responses
//! request → Command → ledger::apply → Effect
//! ```

pub mod bootstrap;
pub mod catalog;
pub mod connections;
pub mod ids;
pub mod interception;
pub mod ledger;
pub mod lint;
pub mod pki;
pub mod policy;
pub mod problem;
pub mod resource;
pub mod session;
pub mod smi;
pub mod time;
pub mod translate;
pub mod world;
