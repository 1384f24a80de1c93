//! TrafficTarget: what one target grants at its destination.
//!
//! Owns the meaning of `rules` (access v1alpha3).

use std::collections::{BTreeMap, BTreeSet};

use super::match_bytes;
use smc_api::smi::{RouteGroup, Rule, RuleKind, TcpRoute, TrafficTarget};
use smc_model::http_match::HttpMatch;
use smc_model::inbound_intent::{Grant, HttpAccess};
use smc_types::ids::NamespacedName;
use smc_types::object_ref::{Kind, ObjectRef};

/// The route objects that rules refer to.
pub trait Routes {
    /// The HTTPRouteGroup of this name.
    fn http_route_group(&self, name: &NamespacedName) -> Option<&RouteGroup>;

    /// The TCPRoute of this name.
    fn tcp_route(&self, name: &NamespacedName) -> Option<&TcpRoute>;
}

/// The HTTP rules of a target, sorted: targets with equal ones allow the same requests.
pub(super) type HttpRules<'a> = BTreeSet<(&'a NamespacedName, Option<&'a BTreeSet<String>>)>;

/// What one TrafficTarget grants; `None` if it allows nothing.
///
/// - A target in another namespace than its destination grants nothing: one namespace must not open
///   another's services.
/// - Rules of one kind add up. TCPRoutes and HTTPRouteGroups together mean ports **and** routes (the
///   specification's examples).
/// - Only HTTPRouteGroups: those routes on any HTTP port. Only TCPRoutes: anything on those ports.
/// - A rule whose object is missing contributes the empty set of its kind, so it only narrows.
/// - UDPRoutes contribute nothing: the mesh does not carry UDP.
pub fn grant(routes: &impl Routes, target: &TrafficTarget) -> Option<Grant> {
    grants(routes, [target]).pop()
}

/// What each of these TrafficTargets grants, in their order, without those that allow nothing. The matches
/// of equal rules are read once.
pub fn grants<'a>(routes: &impl Routes, targets: impl IntoIterator<Item = &'a TrafficTarget>) -> Vec<Grant> {
    let mut read: BTreeMap<HttpRules<'a>, HttpAccess> = BTreeMap::new();
    let granting = targets.into_iter().filter(|target| allows_something(routes, target));
    let grants = granting.map(|target| {
        let rules = http_rules(target);
        let http = read.entry(rules).or_insert_with_key(|rules| http_access(routes, rules)).clone();
        let (ports, routes) = (ports(routes, target), existing(routes, &target.rules));
        Grant { target: target.id.clone(), sources: target.sources.clone(), ports, http, routes }
    });
    grants.collect()
}

/// Whether a TrafficTarget grants anything. Builds nothing: the cost is that of the target's own rules.
pub fn allows_something(routes: &impl Routes, target: &TrafficTarget) -> bool {
    let of = |kind| target.rules.iter().filter(move |rule| rule.kind == kind);
    let (mut tcp, mut http) = (of(RuleKind::TcpRoute).peekable(), of(RuleKind::HttpRouteGroup).peekable());
    if (tcp.peek().is_none() && http.peek().is_none())
        || target.id.namespace() != target.destination.namespace()
        || target.sources.is_empty()
    {
        return false;
    }
    // A route without ports means all ports.
    let some_port = tcp.peek().is_none() || tcp.any(|rule| routes.tcp_route(&rule.name).is_some());
    let has_match = |rule: &Rule| {
        let group = routes.http_route_group(&rule.name);
        group.is_some_and(|group| match &rule.matches {
            None => !group.matches.is_empty(),
            Some(names) => names.iter().any(|name| group.matches.contains_key(name)),
        })
    };
    some_port && (http.peek().is_none() || http.any(has_match))
}

/// The HTTP rules of a target.
pub(super) fn http_rules(target: &TrafficTarget) -> HttpRules<'_> {
    let http = target.rules.iter().filter(|rule| rule.kind == RuleKind::HttpRouteGroup);
    http.map(|rule| (&rule.name, rule.matches.as_ref())).collect()
}

/// The matches that one rule allows.
pub(super) fn matches_of<'a>(
    group: &'a RouteGroup,
    names: Option<&BTreeSet<String>>,
) -> impl Iterator<Item = &'a HttpMatch> {
    let named = move |name: &str| names.is_none_or(|names| names.contains(name));
    group.matches.iter().filter(move |(name, _)| named(name)).map(|(_, route)| route)
}

/// The existing objects among those that rules name.
fn existing(routes: &impl Routes, rules: &[Rule]) -> BTreeSet<ObjectRef> {
    let existing = rules.iter().filter_map(|rule| {
        let (kind, exists) = match rule.kind {
            RuleKind::HttpRouteGroup => (Kind::HttpRouteGroup, routes.http_route_group(&rule.name).is_some()),
            RuleKind::TcpRoute => (Kind::TcpRoute, routes.tcp_route(&rule.name).is_some()),
            RuleKind::UdpRoute => return None,
        };
        exists.then(|| ObjectRef::Namespaced(kind, rule.name.clone()))
    });
    existing.collect()
}

/// The ports of the TCPRoutes of a target together; `None` if it names no TCPRoute, or one that means all
/// ports by an empty list.
pub(super) fn ports(routes: &impl Routes, target: &TrafficTarget) -> Option<BTreeSet<u16>> {
    let rules: Vec<_> = target.rules.iter().filter(|rule| rule.kind == RuleKind::TcpRoute).collect();
    if rules.is_empty() {
        return None;
    }
    let mut ports = BTreeSet::new();
    for route in rules.iter().filter_map(|rule| routes.tcp_route(&rule.name)) {
        if route.ports.is_empty() {
            return None;
        }
        ports.extend(&route.ports);
    }
    Some(ports)
}

/// The matches of several HTTPRouteGroup rules together. A rule without `matches` means all matches of its
/// group; a name that the group lacks contributes nothing.
pub(super) fn http_access(routes: &impl Routes, rules: &HttpRules<'_>) -> HttpAccess {
    if rules.is_empty() {
        return HttpAccess::Any;
    }
    let groups = rules.iter().filter_map(|&(name, names)| Some((routes.http_route_group(name)?, names)));
    let all: BTreeSet<&HttpMatch> = groups.flat_map(|(group, names)| matches_of(group, names)).collect();
    HttpAccess::Only(all.into_iter().cloned().collect())
}

/// The requests of the HTTPRouteGroups in a list of OSM's `matches`: all, where there is no list; `None`
/// where no request is one.
pub(super) fn requests(
    routes: &impl Routes,
    matches: Option<&BTreeSet<NamespacedName>>,
) -> Option<HttpAccess> {
    let Some(groups) = matches else { return Some(HttpAccess::Any) };
    let rules: HttpRules<'_> = groups.iter().map(|group| (group, None)).collect();
    match http_access(routes, &rules) {
        HttpAccess::Only(matches) if !matches.is_empty() => Some(HttpAccess::Only(matches)),
        // Without rules, a TrafficTarget allows all requests. An empty list of OSM's does not.
        HttpAccess::Only(_) | HttpAccess::Any => None,
    }
}

/// The existing groups of such a list.
pub(super) fn existing_groups(
    routes: &impl Routes,
    matches: Option<&BTreeSet<NamespacedName>>,
) -> impl Iterator<Item = ObjectRef> {
    let existing = matches.into_iter().flatten().filter(|group| routes.http_route_group(group).is_some());
    existing.map(|group| ObjectRef::Namespaced(Kind::HttpRouteGroup, group.clone()))
}

/// What the matches of a group take, in bytes, from above, and how many there are. Builds nothing.
pub(super) fn group_size(routes: &impl Routes, name: &NamespacedName) -> (u64, u64) {
    let matches = routes.http_route_group(name).into_iter().flat_map(|group| group.matches.values());
    matches.map(match_bytes).fold((0, 0), |(bytes, matches): (u64, u64), one| {
        (bytes.saturating_add(one), matches.saturating_add(1))
    })
}

#[cfg(test)]
mod tests {
    //! The rules of access v1alpha3, cited as issue 2 point 2 lists them.

    use super::*;
    use crate::policy::fixtures::{group, http_match, http_rule, target, tcp_route, tcp_rule};

    /// Routes `/a`, `/b` in `shop/ab`, `/c` in `shop/c`, ports 80 in `shop/80`, 81 in `shop/81`, all in
    /// `shop/any`.
    struct Shop {
        groups: [RouteGroup; 3],
        tcp_routes: [TcpRoute; 3],
    }

    impl Routes for Shop {
        fn http_route_group(&self, name: &NamespacedName) -> Option<&RouteGroup> {
            self.groups.iter().find(|group| group.id == *name)
        }

        fn tcp_route(&self, name: &NamespacedName) -> Option<&TcpRoute> {
            self.tcp_routes.iter().find(|route| route.id == *name)
        }
    }

    /// What a target with these rules grants.
    fn granted(rules: &[Rule]) -> Vec<(Option<BTreeSet<u16>>, HttpAccess)> {
        let shop = Shop {
            groups: [group("shop/ab", &["/a", "/b"]), group("shop/c", &["/c"]), group("shop/none", &[])],
            tcp_routes: [
                tcp_route("shop/80", &[80]),
                tcp_route("shop/81", &[81]),
                tcp_route("shop/any", &[]),
            ],
        };
        let grant = grant(&shop, &target("shop/t", "shop/server", &["shop/client"], rules));
        grant.into_iter().map(|grant| (grant.ports, grant.http)).collect()
    }

    fn only(paths: &[&str]) -> HttpAccess {
        HttpAccess::Only(paths.iter().map(|path| http_match(path)).collect())
    }

    /// TrafficTarget: rules with and without `matches`.
    #[test]
    fn absent_matches_mean_all_and_an_empty_list_means_none() {
        for (matches, expected) in [
            (None, Some(&["/a", "/b"][..])),
            (Some(&["/b"][..]), Some(&["/b"][..])),
            (Some(&["/b", "/nowhere"][..]), Some(&["/b"][..])),
            (Some(&["/nowhere"][..]), None),
            (Some(&[][..]), None),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|paths| (None, only(paths))).collect();
            assert_eq!(granted(&[http_rule("shop/ab", matches)]), expected, "{matches:?}");
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
            assert_eq!(granted(&rules), [expected], "{rules:?}");
        }
    }

    /// TCPRoute: ports; empty = all.
    #[test]
    fn a_tcp_route_without_ports_means_all_ports_also_beside_one_with() {
        assert_eq!(granted(&[tcp_rule("shop/any")]), [(None, HttpAccess::Any)]);
        assert_eq!(granted(&[tcp_rule("shop/80"), tcp_rule("shop/any")]), [(None, HttpAccess::Any)]);
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
            assert_eq!(granted(&rules), Vec::from_iter(expected), "{rules:?}");
        }
    }

    /// UDPRoute is never enforced, and opens nothing.
    #[test]
    fn a_udp_route_grants_nothing_and_takes_nothing_away() {
        let udp = Rule { kind: RuleKind::UdpRoute, ..tcp_rule("shop/80") };
        assert_eq!(granted(std::slice::from_ref(&udp)), []);
        let ports = Some(BTreeSet::from([80]));
        assert_eq!(granted(&[udp, tcp_rule("shop/80")]), [(ports, HttpAccess::Any)]);
    }
}
