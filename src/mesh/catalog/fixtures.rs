//! Short ways to write a mesh down, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{
    AppProtocol, Catalog, EndpointSlice, Impact, Kind, Namespace, Object, ObjectRef, Service, ServicePort,
    SliceEndpoint, SlicePort, SourceEvent, TargetPort, Workload,
};
use crate::ids::{NamespacedName, ProxyUuid, ServiceAccountId, ServiceId};
use crate::smi::{
    Backend, HttpMatch, HttpRouteGroup, MeshConfig, MethodSet, Pattern, Rule, RuleKind, TcpRoute,
    TrafficSplit, TrafficTarget,
};

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

impl Catalog {
    /// A catalog that was told of these objects.
    pub(crate) fn of(objects: impl IntoIterator<Item = Object>) -> Self {
        let mut catalog = Self::default();
        for object in objects {
            catalog.tell(object);
        }
        catalog
    }

    pub(crate) fn tell(&mut self, object: Object) -> Impact {
        self.apply(SourceEvent::Upsert(object))
    }

    pub(crate) fn forget(&mut self, kind: Kind, name: &str) -> Impact {
        self.apply(SourceEvent::Remove(ObjectRef::Namespaced(kind, name.parse().unwrap())))
    }
}

pub(crate) fn namespace(name: &str) -> Object {
    Object::Namespace(Namespace { name: name.to_owned(), monitored: true, injection: None })
}

/// A service port `port` that leads to the same port of the pod.
pub(crate) fn port(port: u16, protocol: AppProtocol) -> ServicePort {
    ServicePort { name: Some(format!("p{port}")), port, target: TargetPort::Number(port), protocol }
}

/// A service with one IPv4 address that selects pods by `app`.
pub(crate) fn service(id: &str, app: &str, ports: &[ServicePort]) -> Service {
    Service {
        id: id.parse().unwrap(),
        cluster_ips: vec![ip("10.96.0.1")],
        headless: false,
        selector: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        ports: ports.to_vec(),
    }
}

/// A ready pod in the namespace of its account, labelled `app`.
pub(crate) fn pod(id: &str, service_account: &str, app: &str, address: &str) -> Workload {
    let id = id.parse().unwrap();
    Workload {
        proxy: ProxyUuid::derived(&id),
        id,
        service_account: account(service_account),
        labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        ips: vec![ip(address)],
        ports: BTreeMap::new(),
        ready: true,
        injection: None,
    }
}

pub(crate) fn slice(id: &str, service: &str, ports: &[(&str, u16)], addresses: &[&str]) -> EndpointSlice {
    let ports = ports.iter().map(|&(name, port)| SlicePort { name: Some(name.to_owned()), port });
    let endpoint =
        |address: &&str| SliceEndpoint { addresses: vec![ip(address)], ready: true, workload: None };
    EndpointSlice {
        id: id.parse().unwrap(),
        service: service_id(service),
        ports: ports.collect(),
        endpoints: addresses.iter().map(endpoint).collect(),
    }
}

pub(crate) fn http_rule(name: &str, matches: Option<&[&str]>) -> Rule {
    let matches = matches.map(|names| names.iter().map(|&name| name.to_owned()).collect());
    Rule { kind: RuleKind::HttpRouteGroup, name: name.parse().unwrap(), matches }
}

pub(crate) fn tcp_rule(name: &str) -> Rule {
    Rule { kind: RuleKind::TcpRoute, name: name.parse().unwrap(), matches: None }
}

pub(crate) fn target(id: &str, destination: &str, sources: &[&str], rules: &[Rule]) -> Object {
    Object::TrafficTarget(TrafficTarget {
        id: name(id),
        destination: account(destination),
        sources: accounts(sources),
        rules: rules.to_vec(),
    })
}

pub(crate) fn http_match(path: &str) -> HttpMatch {
    let path = Some(Pattern::prefix(path).unwrap());
    HttpMatch { path, methods: MethodSet::Any, headers: BTreeMap::new() }
}

/// A group whose matches are named by their paths.
pub(crate) fn group(id: &str, paths: &[&str]) -> Object {
    let matches = paths.iter().map(|&path| (path.to_owned(), http_match(path))).collect();
    Object::HttpRouteGroup(HttpRouteGroup { id: name(id), matches })
}

pub(crate) fn tcp_route(id: &str, ports: &[u16]) -> Object {
    Object::TcpRoute(TcpRoute { id: name(id), ports: ports.iter().copied().collect() })
}

pub(crate) fn split(id: &str, root: &str, backends: &[(&str, u32)], matches: &[&str]) -> Object {
    let backend = |&(service, weight): &(&str, u32)| Backend { service: service_id(service), weight };
    Object::TrafficSplit(TrafficSplit {
        id: name(id),
        root: service_id(root),
        backends: backends.iter().map(backend).collect(),
        matches: matches.iter().map(|text| name(text)).collect(),
    })
}

pub(crate) fn permissive(namespace: &str, permissive: bool) -> Object {
    let config = MeshConfig { permissive, ..MeshConfig::default() };
    Object::MeshConfig(name(&format!("{namespace}/osm-mesh-config")), config)
}
