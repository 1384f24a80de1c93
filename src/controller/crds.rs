//! The custom resources that SMC reads, as CustomResourceDefinitions.
//!
//! Owns how the rows and schemas of [`smc_api::kinds`] become definitions. A schema refuses only what the
//! readers there refuse in every version of the object; what it lets through is judged by the readers, and
//! reported in `status`. [`definitions`] is what `smc crds` prints and what the chart `charts/smc-crds`
//! holds.

pub mod status;

mod definition;
mod schema;

pub use definition::{Definition, DefinitionError, definitions};

/// The Service of the conversion. It leads to replicas that are not ready as well: a replica that lists
/// objects which an older definition stored needs them converted before it can be ready.
pub const CONVERSION_SERVICE: &str = "smc-conversion";

#[cfg(test)]
mod tests;
