//! TrafficSplit: where requests to a root service go.
//!
//! Owns the meaning of split v1alpha1 to v1alpha4: which splits of a root count, in which order, and which
//! of their backends can be used. Access is not decided here: a leaf stays directly reachable, and each
//! leaf's own sidecar decides on access.

use std::collections::{BTreeMap, BTreeSet};

use super::Catalog;
use crate::policy::match_bytes;
use smc_api::smi::TrafficSplit;
use smc_model::http_match::HttpMatch;
use smc_model::outbound_intent::Route;
use smc_model::topology::ServicePort;
use smc_types::ids::{NamespacedName, ServiceId};

/// The most that the splits of one root may take, in bytes, on all of its ports, which share it equally. Each
/// match is a route that names each backend, and every client of the root holds them: on a service of three
/// ports it is some 300 matches of 300 bytes, with two backends.
const MAX_OF_A_ROOT: u64 = 512 * 1024;
/// The most that the splits of one namespace may take. Beyond 32 roots, these share it equally. The
/// callers are in any namespace, and are not asked.
const MAX_OF_A_NAMESPACE: u64 = 16 * 1024 * 1024;

/// What a route, and a backend in a route, take besides the names and patterns in them.
const ROUTE_BYTES: u64 = 64;
const BACKEND_BYTES: u64 = 32;

impl Catalog {
    /// A domain in the names of a split that is not the mesh's.
    pub(super) fn foreign_domain<'a>(&self, split: &'a TrafficSplit) -> Option<&'a str> {
        split.domains.iter().map(String::as_str).find(|domain| !self.is_own_domain(domain))
    }

    /// Whether full names of the mesh's services may end in this domain, beside `cluster.local`.
    pub(super) fn is_own_domain(&self, domain: &str) -> bool {
        self.domain.as_ref().is_some_and(|own| own.as_str() == domain)
    }

    /// How traffic to `port` of `root` is split; `None` if no split applies and all of it goes to the root.
    ///
    /// Splits of one root are merged in the order of their names. Those with `matches` come first, each a
    /// route; then the first split without `matches` takes the rest, or the root if there is none. Splits
    /// with `matches` are left out for a port that is not HTTP. A split without a usable backend is left out:
    /// the specification leaves all-zero weights undefined, and without the split the traffic goes to the
    /// root.
    ///
    /// A split that is too large for the port is left out, too.
    pub fn routes(&self, root: &ServiceId, port: &ServicePort) -> Option<Vec<Route>> {
        let mut splits = self.splits_of(root);
        let too_large = self.too_large(root, port);
        splits.retain(|split| !too_large.contains(&split.id));
        let mut routes = Vec::new();
        for split in splits.iter().filter(|split| !split.matches.is_empty() && port.protocol.is_http()) {
            let (matches, backends) = (matches(self, split), backends(self, split, port));
            if !matches.is_empty() && !backends.is_empty() {
                routes.push(Route { matches: Some(matches), backends });
            }
        }
        let rest = splits
            .iter()
            .filter(|split| split.matches.is_empty())
            .map(|split| backends(self, split, port))
            .find(|backends| !backends.is_empty());
        match rest {
            Some(backends) => routes.push(Route { matches: None, backends }),
            None if routes.is_empty() => return None,
            None => routes.push(Route { matches: None, backends: vec![(root.clone(), 1)] }),
        }
        Some(routes)
    }
}

impl Catalog {
    /// The splits of a root that do not fit on this port beside the smaller ones. Of equals, those fit that
    /// sort first by name.
    pub(super) fn too_large(&self, root: &ServiceId, port: &ServicePort) -> BTreeSet<NamespacedName> {
        let ports = self.services.get(root).map_or(1, |service| service.ports.len().max(1));
        let share = self.share_of_a_root(root.namespace());
        let mut left = share / u64::try_from(ports).unwrap_or(u64::MAX);
        let splits = self.splits_of(root).into_iter();
        let splits = splits.filter(|split| split.matches.is_empty() || port.protocol.is_http());
        let mut sizes: Vec<_> = splits.map(|split| (self.split_bytes(split), &split.id)).collect();
        sizes.sort_unstable();
        let too_large = sizes.into_iter().filter(|(bytes, _)| match left.checked_sub(*bytes) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        too_large.map(|(_, id)| id.clone()).collect()
    }

    /// The most that the splits of one root in this namespace may take. The number of roots is rounded up to
    /// a power of two, so that the share of all others seldom changes with one.
    pub(super) fn share_of_a_root(&self, namespace: &str) -> u64 {
        let roots = self.index.roots_in.get(namespace).map_or(1, BTreeSet::len);
        let roots = u64::try_from(roots.next_power_of_two()).unwrap_or(u64::MAX);
        MAX_OF_A_ROOT.min(MAX_OF_A_NAMESPACE / roots)
    }

    /// The roots in this namespace whose splits take more than `share`, thus depend on it.
    pub(super) fn roots_beyond(&self, namespace: &str, share: u64) -> BTreeSet<ServiceId> {
        let takes_more = |root: &&ServiceId| {
            let ports = self.services.get(*root).map_or(1, |service| service.ports.len().max(1));
            let bytes = self.splits_of(root).into_iter().map(|split| self.split_bytes(split));
            let bytes = bytes.fold(0, u64::saturating_add);
            bytes.saturating_mul(u64::try_from(ports).unwrap_or(u64::MAX)) > share
        };
        self.index.roots_in.get(namespace).into_iter().flatten().filter(takes_more).cloned().collect()
    }

    /// What a split takes on one port, from above.
    fn split_bytes(&self, split: &TrafficSplit) -> u64 {
        let length = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let name = |service: &ServiceId| length(service.namespace().len() + service.name().len());
        let backends = split.backends.iter().map(|backend| BACKEND_BYTES + name(&backend.service));
        let backends: u64 = backends.sum::<u64>() + ROUTE_BYTES;
        let groups = split.matches.iter().filter_map(|name| self.route_groups.get(name));
        let matches = groups.flat_map(|group| group.matches.values());
        let routes = matches.map(|http| match_bytes(http).saturating_add(backends));
        routes.fold(backends, u64::saturating_add)
    }
}

/// The matches of all groups that a split names. A group that does not exist contributes nothing, so a
/// split whose groups are all missing takes no request.
fn matches(catalog: &Catalog, split: &TrafficSplit) -> Vec<HttpMatch> {
    let groups = split.matches.iter().filter_map(|name| catalog.route_groups.get(name));
    let matches: BTreeSet<HttpMatch> = groups.flat_map(|group| group.matches.values().cloned()).collect();
    matches.into_iter().collect()
}

/// The backends that can be used for `port` of the root: those that exist, have the same port, and have a
/// weight.
fn backends(catalog: &Catalog, split: &TrafficSplit, port: &ServicePort) -> Vec<(ServiceId, u32)> {
    let mut weights: BTreeMap<ServiceId, u32> = BTreeMap::new();
    for backend in split.backends.iter().filter(|backend| backend.weight > 0) {
        let service = catalog.service(&backend.service);
        if service.is_some_and(|service| service.ports.iter().any(|own| own.port == port.port)) {
            let weight = weights.entry(backend.service.clone()).or_insert(0);
            *weight = weight.saturating_add(backend.weight);
        }
    }
    weights.into_iter().collect()
}

#[cfg(test)]
mod tests {
    //! The rules of split v1alpha1 to v1alpha4, cited as issue 2 point 2 lists them.

    use super::*;
    use crate::catalog::Object;
    use crate::catalog::fixtures::{
        account, group, http_match, namespace, pod, port, service, service_id, split, target, tcp_route,
        tcp_rule,
    };
    use smc_types::ids::{MeshNamespace, TrustDomain};
    use smc_types::object_ref::Kind;
    use smc_types::proxy_class::AppProtocol;

    /// Services `root`, `v1`, `v2` with ports 80 (HTTP) and 90 (TCP); groups `canary` and `beta`.
    fn shop() -> Catalog {
        let ports = [port(80, AppProtocol::Http), port(90, AppProtocol::Tcp)];
        let services = ["shop/root", "shop/v1", "shop/v2"];
        let mut catalog = Catalog::of(services.map(|id| Object::from(service(id, "x", &ports))));
        catalog.declare(group("shop/canary", &["/canary"]));
        catalog.declare(group("shop/beta", &["/beta"]));
        catalog
    }

    type Arms = Vec<(Option<Vec<&'static str>>, Vec<(&'static str, u32)>)>;

    fn plan(catalog: &Catalog, number: u16) -> Option<Vec<Route>> {
        let root = service_id("shop/root");
        let port = catalog.service(&root)?.ports.iter().find(|port| port.port == number)?.clone();
        catalog.routes(&root, &port)
    }

    fn arms(arms: Arms) -> Vec<Route> {
        let arm = |(matches, weights): (Option<Vec<&str>>, Vec<(&str, u32)>)| Route {
            matches: matches.map(|paths| paths.into_iter().map(http_match).collect()),
            backends: weights.into_iter().map(|(service, weight)| (service_id(service), weight)).collect(),
        };
        arms.into_iter().map(arm).collect()
    }

    #[test]
    fn without_a_split_everything_goes_to_the_root() {
        assert_eq!(plan(&shop(), 80), None);
    }

    /// TrafficSplit: weights; zero weights.
    #[test]
    fn traffic_goes_to_the_leaves_by_weight_and_zero_gets_nothing() {
        let mut catalog = shop();
        catalog.declare(split("shop/s", "shop/root", &[("shop/v2", 10), ("shop/v1", 90)], &[]));
        let expected = Some(arms(vec![(None, vec![("shop/v1", 90), ("shop/v2", 10)])]));
        assert_eq!((plan(&catalog, 80), plan(&catalog, 90)), (expected.clone(), expected));
        catalog.declare(split("shop/s", "shop/root", &[("shop/v1", 0), ("shop/v2", 10)], &[]));
        assert_eq!(plan(&catalog, 80), Some(arms(vec![(None, vec![("shop/v2", 10)])])));
    }

    /// TrafficSplit: all-zero weights are undefined; the split is treated as absent, and reported.
    #[test]
    fn a_split_without_any_weight_is_absent_and_reported() {
        let mut catalog = shop();
        catalog.declare(split("shop/s", "shop/root", &[("shop/v1", 0), ("shop/v2", 0)], &[]));
        assert_eq!(plan(&catalog, 80), None);
        assert!(
            catalog
                .problems()
                .iter()
                .any(|p| p.subject.to_string() == "TrafficSplit shop/s" && p.field == "spec.backends")
        );
    }

    /// TrafficSplit: a backend that does not exist yet, or lacks the root's port, is left out until it does.
    #[test]
    fn a_backend_that_is_not_there_or_lacks_the_port_is_left_out_and_reported() {
        let mut catalog = shop();
        catalog.declare(split("shop/s", "shop/root", &[("shop/v1", 50), ("shop/v3", 50)], &[]));
        let alone = Some(arms(vec![(None, vec![("shop/v1", 50)])]));
        assert_eq!(plan(&catalog, 80), alone);
        catalog.declare(Object::from(service("shop/v3", "x", &[port(90, AppProtocol::Tcp)])));
        assert_eq!(plan(&catalog, 80), alone);
        assert_eq!(plan(&catalog, 90), Some(arms(vec![(None, vec![("shop/v1", 50), ("shop/v3", 50)])])));
        let reported = catalog.problems();
        assert!(
            reported
                .iter()
                .any(|p| p.field == "spec.backends[1].service" && p.message.contains("lacks port 80"))
        );
        catalog.declare(split("shop/s", "shop/root", &[("shop/gone", 50)], &[]));
        assert_eq!(plan(&catalog, 80), None);
    }

    /// TrafficSplit: `matches`; unmatched traffic goes to the root.
    #[test]
    fn only_matching_requests_are_split_and_the_rest_goes_to_the_root() {
        let mut catalog = shop();
        catalog.declare(split("shop/s", "shop/root", &[("shop/v2", 1)], &["shop/beta", "shop/canary"]));
        let expected = Some(arms(vec![
            (Some(vec!["/beta", "/canary"]), vec![("shop/v2", 1)]),
            (None, vec![("shop/root", 1)]),
        ]));
        assert_eq!(plan(&catalog, 80), expected);
        assert_eq!(plan(&catalog, 90), None, "matches cannot be applied to a TCP port");
    }

    /// TrafficSplit: several groups, one of which is missing; all of which are.
    #[test]
    fn a_missing_group_contributes_no_match_and_never_splits_everything() {
        let mut catalog = shop();
        catalog.declare(split("shop/s", "shop/root", &[("shop/v2", 1)], &["shop/beta", "shop/gone"]));
        let expected =
            Some(arms(vec![(Some(vec!["/beta"]), vec![("shop/v2", 1)]), (None, vec![("shop/root", 1)])]));
        assert_eq!(plan(&catalog, 80), expected);
        catalog.declare(split("shop/s", "shop/root", &[("shop/v2", 1)], &["shop/gone"]));
        assert_eq!(plan(&catalog, 80), None);
        assert!(
            catalog.problems().iter().any(|p| p.field == "spec.matches" && p.message.contains("shop/gone"))
        );
    }

    /// TrafficSplit: several splits of one root.
    #[test]
    fn splits_of_one_root_are_merged_by_name_those_with_matches_first() {
        let mut catalog = shop();
        catalog.declare(split("shop/a", "shop/root", &[("shop/v1", 1)], &[]));
        catalog.declare(split("shop/b", "shop/root", &[("shop/v2", 1)], &[]));
        catalog.declare(split("shop/c", "shop/root", &[("shop/v2", 3)], &["shop/canary"]));
        catalog.declare(split("shop/d", "shop/root", &[("shop/root", 4)], &["shop/beta"]));
        let expected = Some(arms(vec![
            (Some(vec!["/canary"]), vec![("shop/v2", 3)]),
            (Some(vec!["/beta"]), vec![("shop/root", 4)]),
            (None, vec![("shop/v1", 1)]),
        ]));
        assert_eq!(plan(&catalog, 80), expected);
        assert_eq!(plan(&catalog, 90), Some(arms(vec![(None, vec![("shop/v1", 1)])])));
        let reported: Vec<_> = catalog.problems().into_iter().filter(|p| p.field == "spec.service").collect();
        assert_eq!(
            reported.iter().map(|p| p.subject.to_string()).collect::<Vec<_>>(),
            ["TrafficSplit shop/b"]
        );
    }

    /// OSM takes a service's full name with the mesh's own domain. With another one the split has no effect,
    /// and is a problem: its traffic goes where it would without the split.
    #[test]
    fn a_split_that_names_a_foreign_domain_has_no_effect_and_is_reported() {
        let mut catalog = Catalog::new(MeshNamespace::default(), TrustDomain::new("mesh.example").unwrap());
        for id in ["shop/root", "shop/v1"] {
            catalog.declare(Object::from(service(id, "x", &[port(80, AppProtocol::Http)])));
        }
        let named = |domain: &str| {
            let Object::TrafficSplit(split) = split("shop/s", "shop/root", &[("shop/v1", 1)], &[]) else {
                unreachable!("a split")
            };
            Object::TrafficSplit(TrafficSplit { domains: [domain.to_owned()].into(), ..split })
        };
        catalog.declare(named("mesh.example"));
        assert_eq!(plan(&catalog, 80), Some(arms(vec![(None, vec![("shop/v1", 1)])])));
        assert_eq!(catalog.problems().iter().filter(|p| p.field == "spec").count(), 0);
        catalog.declare(named("mesh.example.com"));
        assert_eq!(plan(&catalog, 80), None);
        let reported: Vec<_> = catalog.problems().into_iter().filter(|p| p.field == "spec").collect();
        assert!(reported.len() == 1 && reported[0].message.contains("mesh.example.com"), "{reported:?}");
        catalog.declare(named("mesh.example"));
        assert!(plan(&catalog, 80).is_some());
    }

    /// TrafficSplit: a root may be among its own backends.
    #[test]
    fn the_root_may_keep_a_share_of_its_traffic() {
        let mut catalog = shop();
        catalog.declare(split("shop/s", "shop/root", &[("shop/root", 9), ("shop/v1", 1)], &[]));
        assert_eq!(plan(&catalog, 80), Some(arms(vec![(None, vec![("shop/root", 9), ("shop/v1", 1)])])));
    }

    /// The product of matches, backends and ports is bounded.
    #[test]
    fn a_split_that_is_too_large_is_left_out_and_smaller_ones_are_not() {
        let many: Vec<_> = (0..256).map(|i| format!("/{i}/{}", "x".repeat(900))).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let mut catalog = shop();
        catalog.declare(group("shop/many", &many));
        let weights = [("shop/v1", 1)];
        catalog.declare(split("shop/a-large", "shop/root", &weights, &["shop/many"]));
        catalog.declare(split("shop/b-small", "shop/root", &weights, &["shop/canary"]));
        catalog.declare(split("shop/c-rest", "shop/root", &[("shop/v2", 1)], &[]));
        let expected =
            arms(vec![(Some(vec!["/canary"]), vec![("shop/v1", 1)]), (None, vec![("shop/v2", 1)])]);
        assert_eq!(plan(&catalog, 80), Some(expected));
        let problems = catalog.problems();
        let found = problems.iter().filter(|problem| problem.message.contains("too many"));
        assert_eq!(found.map(|p| p.subject.to_string()).collect::<Vec<_>>(), ["TrafficSplit shop/a-large"]);
        // On fewer ports it fits.
        catalog.declare(Object::from(service("shop/root", "x", &[port(80, AppProtocol::Http)])));
        assert_eq!(plan(&catalog, 80).unwrap().len(), 3);
        assert!(catalog.problems().iter().all(|problem| !problem.message.contains("too many")));
    }

    /// Many splits share the bound of their namespace.
    #[test]
    fn the_splits_of_a_namespace_share_a_bound_and_who_is_cut_by_it_is_named() {
        let many: Vec<_> = (0..256).map(|i| format!("/{i}/{}", "x".repeat(900))).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let ports = [port(80, AppProtocol::Http)];
        let mut catalog =
            Catalog::of([namespace("shop"), group("shop/many", &many), tcp_route("shop/all", &[])]);
        catalog.declare(Object::from(service("shop/root", "x", &ports)));
        catalog.declare(Object::from(pod("shop/server", "shop/server", "x", "10.0.0.1")));
        catalog.declare(target("shop/t", "shop/server", &["away/caller"], &[tcp_rule("shop/all")]));
        let to_itself =
            |root: &str, name: &str| split(&format!("shop/{name}"), root, &[(root, 1)], &["shop/many"]);
        catalog.declare(to_itself("shop/root", "first"));
        for i in 1..32 {
            catalog.declare(to_itself(&format!("shop/r{i}"), &format!("s{i}")));
        }
        assert_eq!(plan(&catalog, 80).unwrap().len(), 2);
        let callers = BTreeSet::from([account("away/caller")]);
        for step in ["one too many", "fewer again"] {
            let affected = if step == "one too many" {
                catalog.declare(to_itself("shop/r32", "s32"))
            } else {
                catalog.withdraw(Kind::TrafficSplit, "shop/s32")
            };
            assert_eq!(affected.accounts, callers, "{step}");
            assert_eq!(plan(&catalog, 80).is_some(), step == "fewer again", "{step}");
        }
    }
}
