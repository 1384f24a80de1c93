//! The objects that sources read, as domain types, and how the custom ones are read.
//!
//! Owns one module per API group family: [`core`] for Kubernetes' own kinds, [`smi`] for the Service Mesh
//! Interface, [`osm`] for MeshConfig; and the one kind of our own, [`mesh_workload`]. Does not decide what
//! the objects mean together: [`crate::policy`] and [`crate::catalog`] do.
//!
//! A source passes each object's `spec`, as JSON, to the matching `read_…` function and gets the domain
//! object and its problems. Three rules keep reading safe. What cannot be read narrows what is allowed, so
//! each reader says which part loses its effect. `null` is a wrong type, not an absent field. Every list
//! has a bound.

pub mod address;
pub mod core;
pub mod mesh_workload;
pub mod osm;
mod reading;
pub mod smi;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod properties;
