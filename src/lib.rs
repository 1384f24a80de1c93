//! SMC, the Service Mesh Controller: the shell around [`smc_mesh`].
//!
//! Owns sockets, streams, files, processes and tasks: everything that touches the world. Refuses to decide: who may
//! talk to whom, what an Envoy is told and who is let in are functions of [`smc_mesh`]. Time, randomness and
//! storage are passed in ([`env::Env`], [`server::Storage`]), so a whole replica can run inside a test.

pub mod admin;
pub mod ca;
pub mod cli;
pub mod config;
pub mod env;
mod error;
pub mod init;
mod publisher;
pub mod server;
pub mod sources;
pub mod telemetry;
pub mod xds;
