//! The process and its surroundings: clock, randomness, network, files, locks, rates, back-off.
//!
//! Owns the only calls to the system's clock and random generator, the sockets, and how private and
//! durable files are written. Other packages receive these as values ([`env::Env`]), so that a test
//! or a simulation can replace them. Does not know meshes or certificates.

pub mod accept;
pub mod backoff;
pub mod env;
pub mod files;
pub mod gcra;
pub mod log_limit;
pub mod network;
pub mod sync;
pub mod tasks;
pub mod timer;
