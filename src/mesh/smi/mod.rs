//! SMI objects and MeshConfig as domain types, and how their published wire forms are read.
//!
//! Owns the parsing rules of the Service Mesh Interface (v0.6.0: access v1alpha3, specs v1alpha4, split
//! v1alpha1 to v1alpha4) and of OSM's MeshConfig. Refuses to decide what policy they make together: that
//! is [`crate::policy`].
//!
//! The wire forms are `serde` types; a source hands each object's `spec` to the matching `read` function
//! and gets the domain object and the problems found in it. An object that cannot be read at all is an
//! `Err` with the problems.

mod http_route_group;
mod mesh_config;
mod port_routes;
mod traffic_split;
mod traffic_target;

pub use http_route_group::{HttpMatch, HttpRouteGroup, MethodSet, Pattern};
pub use mesh_config::MeshConfig;
pub use port_routes::{TcpRoute, UdpRoute};
pub use traffic_split::{Backend, SplitVersion, TrafficSplit};
pub use traffic_target::{Rule, RuleKind, TrafficTarget};
