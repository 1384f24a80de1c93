//! TrafficTarget: what each one grants at its destination.
//!
//! Owns the meaning of `rules` (access v1alpha3). Refuses to say who else may be reached: [`super::reach`].

use std::collections::BTreeSet;

use crate::catalog::{AppProtocol, Catalog, InboundPort};
use crate::ids::{NamespacedName, ServiceAccountId};
use crate::smi::{HttpMatch, Rule, RuleKind, TrafficTarget};

/// What one TrafficTarget allows at its destination: any of `sources`, on any of `ports`, by any of the
/// routes in `http`. All three must hold. It always allows something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The TrafficTarget.
    pub target: NamespacedName,
    /// Who may speak.
    pub sources: BTreeSet<ServiceAccountId>,
    /// On which ports of the pod; `None` means all, otherwise it is never empty.
    pub ports: Option<BTreeSet<u16>>,
    /// By which requests.
    pub http: HttpAccess,
}

/// What a grant says of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpAccess {
    /// It says nothing: any request, and any other protocol.
    Any,
    /// Requests that match one of these, and nothing that is not HTTP. Sorted, never empty.
    Only(Vec<HttpMatch>),
}

/// Who may use one inbound port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboundAccess {
    /// Permissive mode: everybody who proves an identity of the mesh.
    AnyoneInMesh,
    /// Those whom one of these allows, sorted by target. Empty: nobody.
    Grants(Vec<Grant>),
}

impl Grant {
    /// Whether it can allow anything on this port, spoken this way. A grant by HTTP routes never opens a
    /// port that does not speak HTTP, since its routes could not be checked there.
    pub fn applies_to(&self, port: u16, protocol: AppProtocol) -> bool {
        let speaks = match self.http {
            HttpAccess::Any => true,
            HttpAccess::Only(_) => protocol.is_http(),
        };
        speaks && self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
    }
}

/// What one TrafficTarget grants; `None` if it allows nothing.
///
/// - A target must stand in the namespace of its destination, or one namespace could open another's
///   services. One that does not grants nothing.
/// - TCPRoutes and HTTPRouteGroups together mean ports **and** routes (the specification's examples);
///   within a kind, rules add up.
/// - Only HTTPRouteGroups: those routes on any HTTP port. Only TCPRoutes: anything on those ports.
/// - A rule whose object is missing contributes the empty set of its kind, so it can only narrow.
/// - UDPRoutes contribute nothing: the mesh does not carry UDP.
pub fn grant(catalog: &Catalog, target: &TrafficTarget) -> Option<Grant> {
    if target.id.namespace() != target.destination.namespace() {
        return None;
    }
    let tcp: Vec<&Rule> = target.rules.iter().filter(|rule| rule.kind == RuleKind::TcpRoute).collect();
    let http: Vec<&Rule> = target.rules.iter().filter(|rule| rule.kind == RuleKind::HttpRouteGroup).collect();
    if (tcp.is_empty() && http.is_empty()) || target.sources.is_empty() {
        return None;
    }
    let ports = if tcp.is_empty() { None } else { ports(catalog, &tcp) };
    let http = if http.is_empty() { HttpAccess::Any } else { HttpAccess::Only(matches(catalog, &http)) };
    let no_port = ports.as_ref().is_some_and(BTreeSet::is_empty);
    let no_route = matches!(&http, HttpAccess::Only(matches) if matches.is_empty());
    if no_port || no_route {
        return None;
    }
    Some(Grant { target: target.id.clone(), sources: target.sources.clone(), ports, http })
}

/// The ports of several TCPRoutes together; `None` if one of them, by an empty list, means all.
fn ports(catalog: &Catalog, rules: &[&Rule]) -> Option<BTreeSet<u16>> {
    let mut ports = BTreeSet::new();
    for route in rules.iter().filter_map(|rule| catalog.tcp_route(&rule.name)) {
        if route.ports.is_empty() {
            return None;
        }
        ports.extend(&route.ports);
    }
    Some(ports)
}

/// The matches of several HTTPRouteGroup rules together. A rule without `matches` means all of its
/// group's; a name the group does not have contributes nothing.
fn matches(catalog: &Catalog, rules: &[&Rule]) -> Vec<HttpMatch> {
    let mut all = BTreeSet::new();
    for rule in rules {
        let Some(group) = catalog.http_route_group(&rule.name) else { continue };
        let meant = |name: &str| rule.matches.as_ref().is_none_or(|names| names.contains(name));
        all.extend(group.matches.iter().filter(|(name, _)| meant(name)).map(|(_, route)| route.clone()));
    }
    all.into_iter().collect()
}

/// All that TrafficTargets grant at a destination, sorted by target. Empty: nobody gets in, which is the
/// default.
pub fn grants(catalog: &Catalog, destination: &ServiceAccountId) -> Vec<Grant> {
    catalog.traffic_targets_for(destination).filter_map(|target| grant(catalog, target)).collect()
}

/// Who may use an inbound port of the destination's workloads: in SMI mode, by those of its grants that
/// can apply on that port and protocol.
pub fn inbound_access(
    catalog: &Catalog,
    destination: &ServiceAccountId,
    port: &InboundPort,
) -> InboundAccess {
    if catalog.mesh_config().permissive {
        return InboundAccess::AnyoneInMesh;
    }
    let mut grants = grants(catalog, destination);
    grants.retain(|grant| grant.applies_to(port.port, port.protocol));
    InboundAccess::Grants(grants)
}
