//! The custom kinds in which a mesh is declared, and how each is read.
//!
//! Owns one module per API group family: [`smi`] for the Service Mesh Interface, [`osm`] for MeshConfig and
//! OSM's policies; and the one kind of our own, [`mesh_workload`]. Does not decide what the objects mean
//! together: the packages that use this one do.
//!
//! Each kind has a row ([`CustomKind`]) beside its reader and its schema, and [`kinds`] is all of them. A
//! source passes an object to its kind's reader and gets the domain object and its problems. Three rules keep
//! reading safe. What cannot be read narrows what is allowed, so each reader says which part loses its
//! effect. `null` is a wrong type, not an absent field. Every list has a bound.

pub mod address;
pub mod kind;
pub mod mesh_workload;
pub mod object;
pub mod osm;
mod reading;
mod schema;
mod service_name;
pub mod smi;

use kind::CustomKind;
use smc_types::kind::Kind;

/// All custom kinds.
pub fn kinds() -> impl Iterator<Item = &'static CustomKind> {
    const OWN: &[CustomKind] = &[mesh_workload::KIND];
    OWN.iter().chain(smi::KINDS).chain(osm::KINDS)
}

/// The row of a kind; `None` for a kind of Kubernetes itself.
pub fn custom(kind: Kind) -> Option<&'static CustomKind> {
    kinds().find(|row| row.kind == kind)
}

#[cfg(test)]
mod properties;
