//! Short ways to write SMI objects down, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use smc_api::osm::egress::{Egress, EgressProtocol};
use smc_api::osm::ingress_backend::{
    BackendPort, IngressAddresses, IngressBackend, IngressProtocol, IngressSources,
};
use smc_api::smi::{HttpRouteGroup, Rule, RuleKind, TcpRoute, TrafficTarget};
use smc_model::egress::EgressHost;
use smc_model::http_match::{HttpMatch, MethodSet};
use smc_model::regex::Pattern;
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId};

pub(crate) fn name(text: &str) -> NamespacedName {
    text.parse().unwrap()
}

pub(crate) fn account(text: &str) -> ServiceAccountId {
    text.parse().unwrap()
}

pub(crate) fn service_id(text: &str) -> ServiceId {
    text.parse().unwrap()
}

pub(crate) fn accounts(texts: &[&str]) -> BTreeSet<ServiceAccountId> {
    texts.iter().map(|text| account(text)).collect()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn http_rule(name: &str, matches: Option<&[&str]>) -> Rule {
    let matches = matches.map(|names| names.iter().map(|&name| name.to_owned()).collect());
    Rule { kind: RuleKind::HttpRouteGroup, name: name.parse().unwrap(), matches }
}

pub(crate) fn tcp_rule(name: &str) -> Rule {
    Rule { kind: RuleKind::TcpRoute, name: name.parse().unwrap(), matches: None }
}

pub(crate) fn http_match<Header>(path: &str) -> HttpMatch<Header> {
    let path = Some(Pattern::prefix(path).unwrap());
    HttpMatch { path, methods: MethodSet::Any, headers: BTreeMap::new() }
}

pub(crate) fn target(id: &str, destination: &str, sources: &[&str], rules: &[Rule]) -> TrafficTarget {
    TrafficTarget {
        id: name(id),
        destination: account(destination),
        sources: accounts(sources),
        rules: rules.to_vec(),
    }
}

/// A group whose matches are named by their paths.
pub(crate) fn group<Header>(id: &str, paths: &[&str]) -> HttpRouteGroup<Header> {
    let matches = paths.iter().map(|&path| (path.to_owned(), http_match(path))).collect();
    HttpRouteGroup { id: name(id), matches }
}

pub(crate) fn tcp_route(id: &str, ports: &[u16]) -> TcpRoute {
    TcpRoute { id: name(id), ports: ports.iter().copied().collect() }
}

/// An IngressBackend that opens a port of a service of its namespace in clear text, to endpoints of services
/// and to ranges.
pub(crate) fn ingress(id: &str, service: &str, port: u16, from: &[&str], ranges: &[&str]) -> IngressBackend {
    let services = from.iter().map(|text| service_id(text)).collect();
    let ranges = ranges.iter().map(|text| text.parse().unwrap()).collect();
    IngressBackend {
        id: name(id),
        backends: [BackendPort { service: service_id(service), port, protocol: IngressProtocol::Http }]
            .into(),
        sources: IngressSources {
            addresses: Some(IngressAddresses { services, ranges }),
            principals: BTreeSet::new(),
        },
        matches: None,
    }
}

/// An IngressBackend that opens these ports to so many addresses, and over TLS to so many principals if it
/// checks clients, by so many names; it names the group `large`.
pub(crate) fn wide_ingress(
    id: &str,
    service: &str,
    ports: &[u16],
    many: u8,
    tls: Option<(bool, u8)>,
) -> IngressBackend {
    let protocol = tls.map_or(IngressProtocol::Http, |(checks_client, names)| IngressProtocol::Https {
        checks_client,
        server_names: (names > 0).then(|| (0..names).map(|i| format!("*.host-{i}.example")).collect()),
    });
    let backend =
        |port: &u16| BackendPort { service: service_id(service), port: *port, protocol: protocol.clone() };
    let range = |i: u8| format!("2001:db8:ffff:ffff:ffff:ffff:ffff:{i:x}/128").parse().unwrap();
    let ranges = (0..many).map(range).collect();
    let addresses = IngressAddresses { ranges, ..IngressAddresses::default() };
    let principals = (0..many).map(|i| format!("gateway-{i}.example")).collect();
    let id = name(id);
    IngressBackend {
        backends: ports.iter().map(backend).collect(),
        sources: IngressSources { addresses: Some(addresses), principals },
        matches: Some([NamespacedName::new(id.namespace(), "large").unwrap()].into()),
        id,
    }
}

/// An Egress of the account `x` of its namespace. Without networks, the sidecar resolves the names.
pub(crate) fn egress(
    id: &str,
    hosts: Option<&[EgressHost]>,
    networks: Option<&[&str]>,
    ports: &[(u16, EgressProtocol)],
) -> Egress {
    let id = name(id);
    let networks = networks.map(|networks| networks.iter().map(|text| text.parse().unwrap()).collect());
    Egress {
        sources: [ServiceAccountId::new(id.namespace(), "x").unwrap()].into(),
        id,
        hosts: hosts.map(|hosts| hosts.iter().cloned().collect()),
        networks,
        ports: ports.iter().copied().collect(),
        matches: None,
    }
}

/// One name of a host outside of the mesh, or those under it after `*.`, or `*`.
pub(crate) fn host(text: &str) -> EgressHost {
    match text.strip_prefix("*.") {
        Some(parent) => EgressHost::Under(parent.to_owned()),
        None if text == "*" => EgressHost::Any,
        None => EgressHost::Named(text.to_owned()),
    }
}
