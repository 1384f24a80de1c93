//! The Service Mesh Interface v0.6.0: access v1alpha3, specs v1alpha4, split v1alpha1 to v1alpha4.
//!
//! Owns the objects' fields and the parsing of their published wire forms.

pub mod http_route_group;
pub mod port_routes;
mod split_conversion;
pub mod traffic_split;
pub mod traffic_target;

use crate::kind::CustomKind;

pub use http_route_group::{Completed, HttpRouteGroup, MAX_STEPS, RouteGroup, read_http_route_group};
pub use port_routes::{TcpRoute, UdpRoute, read_tcp_route, read_udp_route};
pub use split_conversion::{MATCHES_ANNOTATION, Unconvertible, convert_traffic_split};
pub use traffic_split::{Backend, SplitVersion, TrafficSplit, read_traffic_split};
pub use traffic_target::{Rule, RuleKind, TrafficTarget, read_traffic_target};

/// The kinds.
pub const KINDS: &[CustomKind] =
    &[traffic_target::KIND, http_route_group::KIND, port_routes::TCP, port_routes::UDP, traffic_split::KIND];
