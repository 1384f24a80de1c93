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

#[cfg(test)]
mod tests;
