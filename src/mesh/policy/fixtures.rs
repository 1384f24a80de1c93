//! Short ways to write SMI objects down, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use smc_api::smi::{HttpRouteGroup, Rule, RuleKind, TcpRoute, TrafficTarget};
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
