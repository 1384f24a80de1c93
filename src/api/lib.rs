//! The custom kinds in which a mesh is declared, and how each is read.
//!
//! Owns one module per API group family: [`smi`] for the Service Mesh Interface, [`osm`] for MeshConfig and
//! OSM's policies; and the one kind of our own, [`mesh_workload`]. Does not decide what the objects mean
//! together: the packages that use this one do.
//!
//! A source passes each object's `spec`, as JSON, to the matching `read_…` function and gets the domain
//! object and its problems. Three rules keep reading safe. What cannot be read narrows what is allowed, so
//! each reader says which part loses its effect. `null` is a wrong type, not an absent field. Every list
//! has a bound.

pub mod address;
pub mod mesh_workload;
pub mod osm;
mod reading;
pub mod smi;

#[cfg(test)]
mod properties;
