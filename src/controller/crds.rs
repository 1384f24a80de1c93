//! The custom resources that SMC reads, as CustomResourceDefinitions generated from Rust types.
//!
//! Owns the schemas: field types, bounds, CEL rules, printer columns and versions. A schema refuses only what
//! the readers in [`smc_api`] refuse in every version of the object; what it lets through is judged by
//! the readers, and reported in `status`. [`definitions`] is what `smc crds` prints and what the chart
//! `charts/smc-crds` holds.

pub mod access;
pub mod config;
pub mod mesh_workload;
pub mod policy;
pub mod specs;
pub mod split;
pub mod status;

mod definition;
mod schema;

pub use definition::{Definition, DefinitionError, definitions};

#[cfg(test)]
mod tests;
