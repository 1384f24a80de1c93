//! The Kubernetes API: the connection to it, for all parts of a replica that use it.
//!
//! Owns the client and its time limits ([`client`]), and the narrow door through which objects are read
//! ([`api`]), so that a test or a simulation can stand in for an API server.

pub mod api;
pub mod client;
pub(crate) mod event;
