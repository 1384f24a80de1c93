//! The semantics of access policy: what a TrafficTarget grants, an IngressBackend, and an Egress.
//!
//! Owns the reading of SMI's access v1alpha3, and of OSM's ingress and egress, as pure functions over the
//! objects of [`smc_api`]. The catalog decides which of them count ([`crate::catalog`]); [`crate::translate`]
//! writes the result for Envoy.
//!
//! Three rules hold everywhere. Policy is additive: what any rule allows is allowed, and nothing else is.
//! The destination enforces; a source is configured only with what it needs to connect. What cannot
//! be read or found narrows what is allowed, never widens it.

mod bounds;
mod egress;
#[cfg(test)]
pub(crate) mod fixtures;
mod grants;
mod ingress;
mod ingress_check;
mod suggestion;

pub(crate) use bounds::match_bytes;
pub use bounds::{
    AUTHORIZATION_BYTES, Estimate, Fit, GrantSizes, MAX_IDENTITY, MAX_MESH, MAX_NAMESPACE, RECORDS_BYTES,
    TLS_BYTES, TRACING_BYTES,
};
pub use egress::{EgressSurvey, GroupSizes, MAX_EGRESS, egress_ports};
pub use grants::{Routes, allows_something, grant, grants};
pub use ingress::{Opening, bytes as opening_bytes, chains as ingress_chains};
pub use ingress_check::{DENIED, IngressAttempt, IngressCheck, IngressObstacle, check_ingress};
pub use suggestion::{Call, Destinations, PortServers, Suggestion};
