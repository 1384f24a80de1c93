//! `specs.smi-spec.io/v1alpha4` TCPRoute and UDPRoute: ports.
//!
//! Owns their fields. An empty list of ports means all of them, so a list of which no entry can be read
//! must not pass for an empty one: it takes the route out of effect.

pub mod schema;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;

use crate::kind::{CustomKind, effective, schema as schema_of};
use crate::object::Object;
use crate::reading::{Findings, Node};

/// The kind TCPRoute.
pub const TCP: CustomKind = CustomKind {
    schemas: &[schema_of::<schema::TcpRouteSpec>],
    example: |_| json!({"matches": {"ports": [3306]}}),
    read: |object| effective(read_tcp_route(object.id, object.spec), Object::TcpRoute),
    short_name: Some("tr"),
    category: "smi",
    ..CustomKind::new(Kind::TcpRoute)
};

/// The kind UDPRoute.
pub const UDP: CustomKind = CustomKind {
    schemas: &[schema_of::<schema::UdpRouteSpec>],
    example: |_| json!({"matches": {"ports": [53]}}),
    read: |object| effective(read_udp_route(object.id, object.spec), Object::UdpRoute),
    short_name: Some("ur"),
    category: "smi",
    ..CustomKind::new(Kind::UdpRoute)
};

/// The most ports of one route; it bounds what one object can make every sidecar of a destination hold.
const MAX_PORTS: usize = 1024;

/// TCP ports of a destination; empty means all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpRoute {
    /// The name of the object.
    pub id: NamespacedName,
    /// The ports at the destination pod.
    pub ports: BTreeSet<u16>,
}

/// UDP ports. The mesh does not carry UDP: it is read so that its lack of effect can be reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpRoute {
    /// The name of the object.
    pub id: NamespacedName,
    /// The ports at the destination pod; empty means all.
    pub ports: BTreeSet<u16>,
}

/// Reads the `spec` of a TCPRoute.
pub fn read_tcp_route(id: NamespacedName, spec: Value) -> Reading<TcpRoute> {
    let mut findings = Findings::new(Kind::TcpRoute, id.clone());
    let route = read_ports(Node::spec(spec), &mut findings).map(|ports| TcpRoute { id, ports });
    findings.into_reading(route)
}

/// Reads the `spec` of a UDPRoute. That it is not enforced is the catalog's to report.
pub fn read_udp_route(id: NamespacedName, spec: Value) -> Reading<UdpRoute> {
    let mut findings = Findings::new(Kind::UdpRoute, id.clone());
    let route = read_ports(Node::spec(spec), &mut findings).map(|ports| UdpRoute { id, ports });
    findings.into_reading(route)
}

/// Reads `matches.ports`. A route that leaves either out names no ports, thus all.
fn read_ports(spec: Node, findings: &mut Findings) -> Option<BTreeSet<u16>> {
    let mut spec = spec.object(findings)?;
    let matches = spec.take("matches");
    spec.finish(findings);
    let Some(matches) = matches else { return Some(BTreeSet::new()) };
    let mut matches = matches.object(findings)?;
    let nodes = matches.take("ports");
    matches.finish(findings);
    let Some(nodes) = nodes else { return Some(BTreeSet::new()) };
    let path = nodes.path.clone();
    let nodes = nodes.list(MAX_PORTS, findings)?;
    if nodes.is_empty() {
        return Some(BTreeSet::new());
    }
    let mut ports = BTreeSet::new();
    for node in nodes {
        let path = node.path.clone();
        if let Some(port) = node.port(findings)
            && !ports.insert(port)
        {
            findings.warning(&path, format!("names port {port} a second time"));
        }
    }
    if ports.is_empty() {
        findings.error(&path, "has no port that can be read; the route opens none");
        return None;
    }
    Some(ports)
}

#[cfg(test)]
mod tests {

    use super::*;

    fn read(spec: Value) -> Reading<TcpRoute> {
        read_tcp_route("shop/ports".parse().unwrap(), spec)
    }

    #[test]
    fn empty_or_absent_ports_mean_all() {
        for spec in [json!({}), json!({"matches": {}}), json!({"matches": {"ports": []}})] {
            let reading = read(spec.clone());
            assert_eq!(reading.object.unwrap().ports, BTreeSet::new(), "{spec}");
            assert_eq!(reading.problems, [], "{spec}");
        }
        let ports = read(json!({"matches": {"ports": [3306, 8080]}})).object.unwrap().ports;
        assert_eq!(ports, BTreeSet::from([3306, 8080]));
    }

    #[test]
    fn a_port_that_cannot_be_read_is_left_out_and_never_turns_into_all() {
        let reading = read(json!({"matches": {"ports": [0, 80, 80, 65536, -1, "443", 1.5]}}));
        assert_eq!(reading.object.unwrap().ports, BTreeSet::from([80]));
        assert_eq!(reading.problems.len(), 6);
        for spec in [
            json!({"matches": {"ports": [0]}}),
            json!({"matches": {"ports": null}}),
            json!({"matches": {"ports": 80}}),
            json!({"matches": null}),
            json!({"matches": [{"ports": [80]}]}),
            json!({"matches": {"ports": vec![80; 1025]}}),
            json!(null),
        ] {
            let reading = read(spec.clone());
            assert_eq!(reading.object, None, "{spec}");
            assert!(!reading.problems.is_empty(), "{spec}");
        }
    }

    #[test]
    fn a_udp_route_is_read_and_unknown_fields_are_reported() {
        let spec = json!({"matches": {"ports": [53], "port": 1}, "match": 1});
        let reading = read_udp_route("shop/dns".parse().unwrap(), spec);
        assert_eq!(reading.object.unwrap().ports, BTreeSet::from([53]));
        let fields: Vec<_> = reading.problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, ["spec.match", "spec.matches.port"]);
    }
}
