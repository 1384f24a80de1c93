//! Kubernetes objects and YAML documents as domain objects.
//!
//! Owns the reading rules that the directory source and a watch of the Kubernetes API share: the table of
//! kinds and versions ([`kinds`]), the core and discovery kinds ([`mod@core`]) and files of YAML
//! ([`manifest`]). Pure: no I/O, no state.

pub mod core;
mod fields;
pub mod kinds;
pub mod manifest;
mod rules;

pub use rules::{Platform, Rules};
