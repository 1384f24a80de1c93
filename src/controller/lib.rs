//! SMC, the Service Mesh Controller: the shell around the pure packages.
//!
//! Owns sockets, streams, files, processes and tasks: all I/O. Policy, the xDS protocol, injection and
//! admission are pure functions of [`smc_mesh`], [`smc_xds`], [`smc_sidecar`] and [`smc_authority`]. Time,
//! randomness and storage are passed in ([`smc_host::env::Env`], [`server::Storage`]), so that a whole
//! replica can run inside a test.

pub mod admin;
pub mod ca;
pub mod cli;
pub mod config;
pub mod crds;
pub mod decode;
mod enroll;
pub mod group_time;
pub mod install;
pub mod interception;
pub mod kubernetes;
mod probes;
mod problems;
mod publisher;
mod registry;
pub mod restore;
pub mod server;
pub mod shards;
pub mod sources;
mod stateful_set;
mod status;
mod tasks;
pub mod telemetry;
mod uptake;
pub mod webhook;
pub mod xds;
