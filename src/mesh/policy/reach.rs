//! Who may reach whom: between identities, and from an identity to services.
//!
//! Owns what a source is told about. It is no guard: the destination's sidecar decides on each request, so
//! a source may be told of a service of which it can use only some ports or routes.

use std::collections::{BTreeMap, BTreeSet};

use super::grants::{grant, grants};
use crate::catalog::Catalog;
use crate::ids::{ServiceAccountId, ServiceId};

/// The identities that may reach `destination` in some way. In permissive mode, all that run in the mesh.
pub fn allowed_inbound_accounts(
    catalog: &Catalog,
    destination: &ServiceAccountId,
) -> BTreeSet<ServiceAccountId> {
    if catalog.mesh_config().permissive {
        return catalog.accounts().cloned().collect();
    }
    grants(catalog, destination).into_iter().flat_map(|grant| grant.sources).collect()
}

/// The identities that `source` may reach in some way. In permissive mode, all that run in the mesh.
pub fn allowed_outbound_accounts(catalog: &Catalog, source: &ServiceAccountId) -> BTreeSet<ServiceAccountId> {
    if catalog.mesh_config().permissive {
        return catalog.accounts().cloned().collect();
    }
    let targets = catalog.traffic_targets_from(source);
    let granted = targets.filter(|target| grant(catalog, target).is_some());
    granted.map(|target| target.destination.clone()).collect()
}

/// The services that `source` may call, each with the identities behind it that it may reach. These are
/// the services that such an identity is behind, and the roots of splits that lead to one (for which the
/// set may be empty). Leaves that it may not reach are no callable services, though a split of a root that
/// is callable may name them.
pub fn outbound_services(
    catalog: &Catalog,
    source: &ServiceAccountId,
) -> BTreeMap<ServiceId, BTreeSet<ServiceAccountId>> {
    let mut services: BTreeMap<ServiceId, BTreeSet<ServiceAccountId>> = BTreeMap::new();
    for account in allowed_outbound_accounts(catalog, source) {
        for service in catalog.services_behind_account(&account) {
            services.entry(service.clone()).or_default().insert(account.clone());
        }
    }
    let roots: Vec<ServiceId> = services
        .keys()
        .flat_map(|leaf| catalog.splits_into(leaf))
        .filter(|split| catalog.service(&split.root).is_some())
        .map(|split| split.root.clone())
        .collect();
    for root in roots {
        services.entry(root).or_default();
    }
    services
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::fixtures::{
        account, accounts, group, http_rule, namespace, permissive, pod, port, service, service_id, split,
        target, tcp_route, tcp_rule,
    };
    use crate::catalog::{AppProtocol, Object};

    /// `v1` and `v2` run behind services of their names and behind `web`; `client` may reach `v1` only.
    fn shop() -> Catalog {
        let http = [port(80, AppProtocol::Http)];
        let mut v1 = pod("shop/v1", "shop/v1", "v1", "10.0.0.1");
        let mut v2 = pod("shop/v2", "shop/v2", "v2", "10.0.0.2");
        for pod in [&mut v1, &mut v2] {
            pod.labels.insert("tier".to_owned(), "web".to_owned());
        }
        let mut web = service("shop/web", "", &http);
        web.selector = [("tier".to_owned(), "web".to_owned())].into();
        Catalog::of([
            namespace("shop"),
            Object::Service(service("shop/v1", "v1", &http)),
            Object::Service(service("shop/v2", "v2", &http)),
            Object::Service(web),
            Object::Service(service("shop/root", "nothing", &http)),
            Object::Workload(v1),
            Object::Workload(v2),
            Object::Workload(pod("shop/client", "shop/client", "client", "10.0.0.3")),
            target("shop/t", "shop/v1", &["shop/client"], &[tcp_rule("shop/any")]),
            tcp_route("shop/any", &[]),
        ])
    }

    fn callable(catalog: &Catalog, source: &str) -> Vec<(String, BTreeSet<ServiceAccountId>)> {
        let services = outbound_services(catalog, &account(source)).into_iter();
        services.map(|(service, accounts)| (service.to_string(), accounts)).collect()
    }

    fn entry(service: &str, behind: &[&str]) -> (String, BTreeSet<ServiceAccountId>) {
        (service.to_owned(), accounts(behind))
    }

    #[test]
    fn a_source_may_call_the_services_that_an_account_it_may_reach_is_behind() {
        let catalog = shop();
        let expected = [entry("shop/v1", &["shop/v1"]), entry("shop/web", &["shop/v1"])];
        assert_eq!(callable(&catalog, "shop/client"), expected);
        assert_eq!(callable(&catalog, "shop/v1"), []);
        assert_eq!(allowed_outbound_accounts(&catalog, &account("shop/client")), accounts(&["shop/v1"]));
        assert_eq!(allowed_inbound_accounts(&catalog, &account("shop/v1")), accounts(&["shop/client"]));
        assert_eq!(allowed_inbound_accounts(&catalog, &account("shop/v2")), accounts(&[]));
    }

    /// TrafficSplit: root and leaf services; leaves stay directly reachable.
    #[test]
    fn the_root_of_a_split_is_callable_where_a_leaf_is_and_leaves_stay_callable() {
        let mut catalog = shop();
        catalog.tell(split("shop/s", "shop/root", &[("shop/v1", 1), ("shop/v2", 1)], &[]));
        let expected =
            [entry("shop/root", &[]), entry("shop/v1", &["shop/v1"]), entry("shop/web", &["shop/v1"])];
        assert_eq!(callable(&catalog, "shop/client"), expected);
        catalog.tell(split("shop/s", "shop/root", &[("shop/v2", 1)], &[]));
        assert_eq!(callable(&catalog, "shop/client").len(), 2, "no leaf within reach, no root");
        catalog.tell(split("shop/s", "shop/unborn", &[("shop/v1", 1)], &[]));
        assert_eq!(callable(&catalog, "shop/client").len(), 2, "a root that does not exist is no service");
    }

    #[test]
    fn a_target_that_grants_nothing_reaches_nothing() {
        let mut catalog = shop();
        catalog.tell(target("shop/t", "shop/v1", &["shop/client"], &[http_rule("shop/late", None)]));
        assert_eq!(callable(&catalog, "shop/client"), []);
        catalog.tell(group("shop/late", &["/a"]));
        assert_eq!(callable(&catalog, "shop/client").len(), 2);
    }

    /// Permissive mode: everybody in the mesh may speak to everybody in it.
    #[test]
    fn in_permissive_mode_everybody_may_call_every_service_that_has_something_in_the_mesh_behind_it() {
        let mut catalog = shop();
        catalog.tell(permissive("osm-system", true));
        let services: Vec<_> =
            callable(&catalog, "shop/v2").into_iter().map(|(service, _)| service).collect();
        assert_eq!(services, ["shop/v1", "shop/v2", "shop/web"]);
        let everybody = accounts(&["shop/client", "shop/v1", "shop/v2"]);
        assert_eq!(allowed_inbound_accounts(&catalog, &account("shop/v2")), everybody);
        assert_eq!(catalog.accounts_behind(&service_id("shop/web")), accounts(&["shop/v1", "shop/v2"]));
    }
}
