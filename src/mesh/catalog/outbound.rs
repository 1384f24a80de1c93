//! The services that an identity may call.
//!
//! Owns what a source is configured for. It is no guard: the destination's sidecar decides on each request,
//! so the answer may name a service of which the source can use only some ports or routes.

use std::collections::{BTreeMap, BTreeSet};

use super::Catalog;
use crate::policy::allows_something;
use smc_types::ids::{ServiceAccountId, ServiceId};

impl Catalog {
    /// The identities that `source` may reach on some port by some request: by a target, and those that
    /// accept anyone. In permissive mode, all that run in the mesh.
    pub fn allowed_outbound_accounts(&self, source: &ServiceAccountId) -> BTreeSet<ServiceAccountId> {
        if self.mesh_config().permissive {
            return self.accounts().cloned().collect();
        }
        let targets = self.traffic_targets_from(source);
        let granted = targets.filter(|target| allows_something(self, target));
        let open = self.index.permissive.iter().flat_map(|namespace| self.accounts_in(namespace));
        granted.map(|target| &target.destination).chain(open).cloned().collect()
    }

    /// The services that `source` may call, each with the identities behind it that `source` may reach.
    /// These are the services that such an identity is behind, and the roots of splits that lead to one (for
    /// which the set may be empty). A leaf that `source` may not reach is not listed, even if a split of a
    /// listed root names it.
    pub fn outbound_services(
        &self,
        source: &ServiceAccountId,
    ) -> BTreeMap<ServiceId, BTreeSet<ServiceAccountId>> {
        let mut services: BTreeMap<ServiceId, BTreeSet<ServiceAccountId>> = BTreeMap::new();
        for account in self.allowed_outbound_accounts(source) {
            for service in self.services_behind_account(&account) {
                services.entry(service.clone()).or_default().insert(account.clone());
            }
        }
        let roots: Vec<ServiceId> = services
            .keys()
            .flat_map(|leaf| self.splits_into(leaf))
            .filter(|split| self.service(&split.root).is_some())
            .map(|split| split.root.clone())
            .collect();
        for root in roots {
            services.entry(root).or_default();
        }
        services
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Object;
    use crate::catalog::fixtures::{
        account, accounts, group, http_rule, namespace, open_namespace, permissive, pod, port, service,
        service_id, split, target, tcp_route, tcp_rule,
    };
    use smc_types::proxy_class::AppProtocol;

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
            Object::from(service("shop/v1", "v1", &http)),
            Object::from(service("shop/v2", "v2", &http)),
            Object::from(web),
            Object::from(service("shop/root", "nothing", &http)),
            Object::from(v1),
            Object::from(v2),
            Object::from(pod("shop/client", "shop/client", "client", "10.0.0.3")),
            target("shop/t", "shop/v1", &["shop/client"], &[tcp_rule("shop/any")]),
            tcp_route("shop/any", &[]),
        ])
    }

    fn callable(catalog: &Catalog, source: &str) -> Vec<(String, BTreeSet<ServiceAccountId>)> {
        let services = catalog.outbound_services(&account(source)).into_iter();
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
        assert_eq!(catalog.allowed_outbound_accounts(&account("shop/client")), accounts(&["shop/v1"]));
        assert_eq!(catalog.allowed_inbound_accounts(&account("shop/v1")), accounts(&["shop/client"]));
        assert_eq!(catalog.allowed_inbound_accounts(&account("shop/v2")), accounts(&[]));
    }

    /// TrafficSplit: root and leaf services; leaves stay directly reachable.
    #[test]
    fn a_split_root_is_callable_where_a_leaf_is_and_leaves_stay_callable() {
        let mut catalog = shop();
        catalog.declare(split("shop/s", "shop/root", &[("shop/v1", 1), ("shop/v2", 1)], &[]));
        let expected =
            [entry("shop/root", &[]), entry("shop/v1", &["shop/v1"]), entry("shop/web", &["shop/v1"])];
        assert_eq!(callable(&catalog, "shop/client"), expected);
        catalog.declare(split("shop/s", "shop/root", &[("shop/v2", 1)], &[]));
        assert_eq!(callable(&catalog, "shop/client").len(), 2, "no leaf within reach, no root");
        catalog.declare(split("shop/s", "shop/unborn", &[("shop/v1", 1)], &[]));
        assert_eq!(callable(&catalog, "shop/client").len(), 2, "a root that does not exist is no service");
    }

    #[test]
    fn a_target_that_grants_nothing_reaches_nothing() {
        let mut catalog = shop();
        catalog.declare(target("shop/t", "shop/v1", &["shop/client"], &[http_rule("shop/late", None)]));
        assert_eq!(callable(&catalog, "shop/client"), []);
        catalog.declare(group("shop/late", &["/a"]));
        assert_eq!(callable(&catalog, "shop/client").len(), 2);
    }

    /// Its own identities are callers like all others, and of the other namespaces they may call no more.
    #[test]
    fn services_of_a_permissive_namespace_are_callable_by_all_of_the_mesh() {
        let mut catalog = shop();
        let http = [port(80, AppProtocol::Http)];
        catalog.declare(open_namespace("open"));
        catalog.declare(Object::from(service("open/web", "web", &http)));
        catalog.declare(Object::from(pod("open/web", "open/web", "web", "10.0.1.1")));
        let open = entry("open/web", &["open/web"]);
        let shop = [open.clone(), entry("shop/v1", &["shop/v1"]), entry("shop/web", &["shop/v1"])];
        assert_eq!(callable(&catalog, "shop/client"), shop);
        assert_eq!(callable(&catalog, "shop/v2"), std::slice::from_ref(&open));
        assert_eq!(callable(&catalog, "open/web"), [open]);
        let all = accounts(&["open/web", "shop/client", "shop/v1", "shop/v2"]);
        assert_eq!(catalog.allowed_inbound_accounts(&account("open/web")), all);
        assert_eq!(catalog.permissive_namespaces().collect::<Vec<_>>(), ["open"]);
        catalog.declare(namespace("open"));
        assert_eq!(callable(&catalog, "shop/v2"), []);
    }

    /// Permissive mode: every identity in the mesh may call every other.
    #[test]
    fn in_permissive_mode_every_service_with_a_mesh_workload_is_callable() {
        let mut catalog = shop();
        catalog.declare(permissive("smc-system", true));
        let services: Vec<_> =
            callable(&catalog, "shop/v2").into_iter().map(|(service, _)| service).collect();
        assert_eq!(services, ["shop/v1", "shop/v2", "shop/web"]);
        let all = accounts(&["shop/client", "shop/v1", "shop/v2"]);
        assert_eq!(catalog.allowed_inbound_accounts(&account("shop/v2")), all);
        assert_eq!(catalog.accounts_behind(&service_id("shop/web")), accounts(&["shop/v1", "shop/v2"]));
    }
}
