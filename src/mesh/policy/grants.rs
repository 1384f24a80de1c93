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

#[cfg(test)]
mod tests {
    //! The rules of access v1alpha3, cited as issue 2 point 2 lists them.

    use super::*;
    use crate::catalog::fixtures::{
        account, accounts, group, http_match, http_rule, permissive, target, tcp_route, tcp_rule,
    };

    /// A catalog with routes `/a`, `/b` in `shop/ab`, `/c` in `shop/c`, ports 80 in `shop/80`, 81 in
    /// `shop/81`, all in `shop/any`, and one target with these rules.
    fn with(rules: &[Rule]) -> Catalog {
        let mut catalog = routes();
        catalog.tell(target("shop/t", "shop/server", &["shop/client"], rules));
        catalog
    }

    fn routes() -> Catalog {
        Catalog::of([
            group("shop/ab", &["/a", "/b"]),
            group("shop/c", &["/c"]),
            group("shop/none", &[]),
            tcp_route("shop/80", &[80]),
            tcp_route("shop/81", &[81]),
            tcp_route("shop/any", &[]),
        ])
    }

    fn granted(catalog: &Catalog) -> Vec<(Option<BTreeSet<u16>>, HttpAccess)> {
        let grants = grants(catalog, &account("shop/server"));
        grants.into_iter().map(|grant| (grant.ports, grant.http)).collect()
    }

    fn only(paths: &[&str]) -> HttpAccess {
        HttpAccess::Only(paths.iter().map(|path| http_match(path)).collect())
    }

    fn access(catalog: &Catalog, port: u16, protocol: AppProtocol) -> InboundAccess {
        inbound_access(
            catalog,
            &account("shop/server"),
            &InboundPort { port, protocol, services: BTreeSet::new() },
        )
    }

    /// TrafficTarget: deny by default.
    #[test]
    fn without_a_target_nobody_gets_in() {
        assert_eq!(access(&routes(), 80, AppProtocol::Http), InboundAccess::Grants(vec![]));
    }

    /// TrafficTarget: rules with and without `matches`.
    #[test]
    fn absent_matches_mean_all_named_matches_mean_those_and_an_empty_list_means_none() {
        for (matches, expected) in [
            (None, Some(&["/a", "/b"][..])),
            (Some(&["/b"][..]), Some(&["/b"][..])),
            (Some(&["/b", "/nowhere"][..]), Some(&["/b"][..])),
            (Some(&["/nowhere"][..]), None),
            (Some(&[][..]), None),
        ] {
            let catalog = with(&[http_rule("shop/ab", matches)]);
            let expected: Vec<_> = expected.into_iter().map(|paths| (None, only(paths))).collect();
            assert_eq!(granted(&catalog), expected, "{matches:?}");
        }
    }

    /// TrafficTarget: rules of one kind add up; TCPRoute and HTTPRouteGroup together mean ports AND routes.
    #[test]
    fn rules_of_one_kind_add_up_and_the_two_kinds_restrict_one_another() {
        let ports = |ports: &[u16]| Some(ports.iter().copied().collect::<BTreeSet<u16>>());
        for (rules, expected) in [
            (vec![http_rule("shop/ab", None), http_rule("shop/c", None)], (None, only(&["/a", "/b", "/c"]))),
            (
                vec![http_rule("shop/ab", Some(&["/a"])), http_rule("shop/ab", Some(&["/b"]))],
                (None, only(&["/a", "/b"])),
            ),
            (vec![tcp_rule("shop/80"), tcp_rule("shop/81")], (ports(&[80, 81]), HttpAccess::Any)),
            (vec![tcp_rule("shop/80"), http_rule("shop/c", None)], (ports(&[80]), only(&["/c"]))),
            (vec![tcp_rule("shop/any"), http_rule("shop/c", None)], (None, only(&["/c"]))),
        ] {
            assert_eq!(granted(&with(&rules)), [expected], "{rules:?}");
        }
    }

    /// TCPRoute: ports; empty = all.
    #[test]
    fn a_tcp_route_without_ports_means_all_ports_also_beside_one_with() {
        assert_eq!(granted(&with(&[tcp_rule("shop/any")])), [(None, HttpAccess::Any)]);
        assert_eq!(granted(&with(&[tcp_rule("shop/80"), tcp_rule("shop/any")])), [(None, HttpAccess::Any)]);
    }

    /// A dangling rule narrows and never widens.
    #[test]
    fn a_rule_that_leads_nowhere_contributes_nothing_of_its_kind() {
        let ports = Some(BTreeSet::from([80]));
        for (rules, expected) in [
            (vec![tcp_rule("shop/gone")], None),
            (vec![http_rule("shop/gone", None)], None),
            (vec![http_rule("shop/none", None)], None),
            (vec![tcp_rule("shop/gone"), http_rule("shop/c", None)], None),
            (vec![tcp_rule("shop/80"), http_rule("shop/gone", None)], None),
            (vec![tcp_rule("shop/gone"), tcp_rule("shop/80")], Some((ports, HttpAccess::Any))),
            (vec![http_rule("shop/gone", None), http_rule("shop/c", None)], Some((None, only(&["/c"])))),
        ] {
            assert_eq!(granted(&with(&rules)), Vec::from_iter(expected), "{rules:?}");
        }
    }

    /// UDPRoute is never enforced, and opens nothing.
    #[test]
    fn a_udp_route_grants_nothing_and_takes_nothing_away() {
        let udp = Rule { kind: RuleKind::UdpRoute, ..tcp_rule("shop/80") };
        assert_eq!(granted(&with(std::slice::from_ref(&udp))), []);
        let ports = Some(BTreeSet::from([80]));
        assert_eq!(granted(&with(&[udp, tcp_rule("shop/80")])), [(ports, HttpAccess::Any)]);
    }

    /// Only HTTPRouteGroups: any HTTP port; never a port that is not HTTP.
    #[test]
    fn routes_apply_to_http_ports_only_and_ports_to_every_protocol() {
        use AppProtocol::{Http, Http2, Https, Tcp, TcpServerFirst};
        for (rules, port, protocols) in [
            (vec![http_rule("shop/c", None)], 80, &[Http, Http2][..]),
            (vec![http_rule("shop/c", None)], 12345, &[Http, Http2][..]),
            (vec![tcp_rule("shop/80")], 80, &[Http, Http2, Tcp, TcpServerFirst, Https][..]),
            (vec![tcp_rule("shop/80")], 81, &[][..]),
            (vec![tcp_rule("shop/80"), http_rule("shop/c", None)], 80, &[Http, Http2][..]),
            (vec![tcp_rule("shop/80"), http_rule("shop/c", None)], 81, &[][..]),
        ] {
            let catalog = with(&rules);
            for protocol in [Http, Http2, Tcp, TcpServerFirst, Https] {
                let InboundAccess::Grants(grants) = access(&catalog, port, protocol) else {
                    panic!("permissive")
                };
                let expected = protocols.contains(&protocol);
                assert_eq!(!grants.is_empty(), expected, "{rules:?} on {port} {protocol:?}");
                assert!(grants.iter().all(|grant| grant.sources == accounts(&["shop/client"])));
            }
        }
    }

    /// TrafficTarget: additive; overlapping routes OR their sources.
    #[test]
    fn targets_that_overlap_all_grant_each_for_its_own_sources() {
        let mut catalog = routes();
        catalog.tell(target("shop/one", "shop/server", &["shop/a"], &[http_rule("shop/ab", Some(&["/a"]))]));
        catalog.tell(target("shop/two", "shop/server", &["shop/b", "away/c"], &[http_rule("shop/ab", None)]));
        let grants = grants(&catalog, &account("shop/server"));
        let seen: Vec<_> = grants.iter().map(|grant| (grant.target.name(), grant.sources.clone())).collect();
        assert_eq!(seen, [("one", accounts(&["shop/a"])), ("two", accounts(&["away/c", "shop/b"]))]);
    }

    /// TrafficTarget: namespaces.
    #[test]
    fn a_target_opens_nothing_outside_its_own_namespace_and_rules_are_looked_up_in_it() {
        let mut catalog = routes();
        catalog.tell(tcp_route("evil/any", &[]));
        catalog.tell(target("evil/t", "shop/server", &["evil/client"], &[tcp_rule("evil/any")]));
        assert_eq!(granted(&catalog), []);
        let told = catalog.problems();
        assert!(
            told.iter()
                .any(|p| p.object == "TrafficTarget evil/t" && p.field == "spec.destination.namespace")
        );
    }

    /// Permissive mode as a switch in MeshConfig.
    #[test]
    fn in_permissive_mode_anyone_in_the_mesh_gets_in_whatever_targets_say() {
        let mut catalog = with(&[tcp_rule("shop/80")]);
        catalog.tell(permissive("osm-system", true));
        assert_eq!(access(&catalog, 9999, AppProtocol::Tcp), InboundAccess::AnyoneInMesh);
        catalog.tell(permissive("osm-system", false));
        assert_eq!(access(&catalog, 9999, AppProtocol::Tcp), InboundAccess::Grants(vec![]));
    }

    #[test]
    fn a_target_is_read_from_the_latest_state_of_its_routes() {
        let mut catalog = with(&[tcp_rule("shop/late")]);
        assert_eq!(granted(&catalog), []);
        catalog.tell(tcp_route("shop/late", &[7]));
        assert_eq!(granted(&catalog), [(Some(BTreeSet::from([7])), HttpAccess::Any)]);
    }
}
