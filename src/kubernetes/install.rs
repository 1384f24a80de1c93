//! Installing SMC into a cluster, and judging whether it works there.
//!
//! Owns the objects of an installation ([`manifests`]), which are those of the chart `charts/smc`, how they
//! are applied ([`apply`]), which installations are left alone ([`ownership`]), and the checks of `smc check`
//! ([`check`]).

pub mod apply;
pub mod check;
pub mod controllers;
pub mod conversion;
pub mod manifests;
pub mod ownership;
#[cfg(test)]
mod rights;
pub mod settings;
