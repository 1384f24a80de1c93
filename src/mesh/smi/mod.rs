//! SMI objects and MeshConfig as domain types, and how their published wire forms are read.
//!
//! Owns the parsing rules of the Service Mesh Interface (v0.6.0: access v1alpha3, specs v1alpha4, split
//! v1alpha1 to v1alpha4) and of OSM's MeshConfig. Refuses to decide what policy they make together: that
//! is [`crate::policy`].
//!
//! A source hands each object's `spec`, as JSON, to the matching `read_…` function and gets the domain object
//! and the problems found in it. Three habits keep reading safe. What cannot be read narrows what is
//! allowed, so each reader says which part falls with it. `null` is a wrong type, not an absent field. Every
//! list has a bound.

mod http_route_group;
mod mesh_config;
mod pattern;
mod port_routes;
#[cfg(test)]
mod properties;
mod reading;
mod traffic_split;
mod traffic_target;

pub use http_route_group::{HttpMatch, HttpRouteGroup, MethodSet, read_http_route_group};
pub use mesh_config::{MeshConfig, MeshNamespace, read_mesh_config};
pub use pattern::{InvalidPattern, Pattern};
pub use port_routes::{TcpRoute, UdpRoute, read_tcp_route, read_udp_route};
pub use reading::Reading;
pub use traffic_split::{Backend, SplitVersion, TrafficSplit, read_traffic_split};
pub use traffic_target::{Rule, RuleKind, TrafficTarget, read_traffic_target};
