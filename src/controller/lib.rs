//! SMC, the Service Mesh Controller: the shell around [`smc_mesh`].
//!
//! Owns sockets, streams, files, processes and tasks: all I/O. Policy, xDS resources and admission are pure
//! functions of [`smc_mesh`] and [`smc_authority`]. Time, randomness and storage are passed in
//! ([`smc_host::env::Env`], [`server::Storage`]), so that a whole replica can run inside a test.

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
