//! SMC, the Service Mesh Controller: the program `smc`.
//!
//! Owns the command line, and which parts a process is made of: it is the only package that names all others.
//! A controller is a [`smc_server::Server`] over a source ([`smc_directory`], [`smc_kubernetes`]), and, in a
//! cluster, what [`smc_kubernetes::replica`] adds.

pub mod cli;
pub mod interception;
mod log_args;
#[cfg(test)]
mod tests;
