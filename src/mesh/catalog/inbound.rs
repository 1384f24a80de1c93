//! The identities that may connect to an identity.
//!
//! Owns which grants count at a destination, and permissive mode. What one TrafficTarget grants is decided
//! by [`crate::policy`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Catalog;
use crate::policy::{
    self, AUTHORIZATION_BYTES, Estimate, Fit, Opening, RECORDS_BYTES, Routes, TLS_BYTES, TRACING_BYTES,
};
use smc_api::osm::MeshConfig;
use smc_api::osm::ingress_backend::IngressProtocol;
use smc_api::smi::{RouteGroup, TcpRoute};
use smc_model::declared::Declared;
use smc_model::external_authorization::ExternalAuthorization;
use smc_model::inbound_intent::{Grant, InboundAccess, InboundIntent};
use smc_model::tls_parameters::TlsParameters;
use smc_model::tracing::Tracing;
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::{InboundPort, ProxyClass};

impl Routes for Catalog {
    fn http_route_group(&self, name: &NamespacedName) -> Option<&RouteGroup> {
        self.route_groups.get(name)
    }

    fn tcp_route(&self, name: &NamespacedName) -> Option<&TcpRoute> {
        self.tcp_routes.get(name)
    }
}

impl Catalog {
    /// What TrafficTargets grant at a destination, sorted by target. If empty, all are denied, which is the
    /// default.
    pub fn grants(&self, destination: &ServiceAccountId) -> Vec<Grant> {
        policy::grants(self, self.traffic_targets_for(destination))
    }

    /// Whether every identity of the mesh may reach a destination: in permissive mode, and where the
    /// destination's own namespace says so. What opens it is written by those who may change namespaces.
    pub fn accepts_anyone(&self, destination: &ServiceAccountId) -> bool {
        self.mesh_config().permissive
            || self.namespaces.get(destination.namespace()).is_some_and(|namespace| namespace.permissive)
    }

    /// What sidecars ask before a request reaches their application.
    fn external_authorization(&self) -> Option<Declared<Arc<ExternalAuthorization>>> {
        self.of_mesh_config(|config| config.external_authorization.as_ref())
    }

    /// Where sidecars report what they did with requests.
    pub(super) fn tracing(&self) -> Option<Declared<Arc<Tracing>>> {
        self.of_mesh_config(|config| config.tracing.as_ref())
    }

    /// The TLS that sidecars speak.
    pub(super) fn tls(&self) -> Option<Declared<Arc<TlsParameters>>> {
        self.of_mesh_config(|config| config.tls.as_ref())
    }

    /// The MeshConfig, if sidecars count requests for it.
    pub(super) fn request_metrics(&self) -> Option<ObjectRef> {
        let (name, _) = self.own_mesh_config().filter(|(_, config)| config.request_metrics)?;
        Some(ObjectRef::Namespaced(Kind::MeshConfig, name.clone()))
    }

    /// A field of the MeshConfig that counts, with its object.
    fn of_mesh_config<T>(&self, field: impl Fn(&MeshConfig) -> Option<&Arc<T>>) -> Option<Declared<Arc<T>>> {
        let (name, config) = self.own_mesh_config()?;
        let what = Arc::clone(field(config)?);
        Some(Declared { what, by: ObjectRef::Namespaced(Kind::MeshConfig, name.clone()) })
    }

    /// What the configuration of the inbound ports of a class takes, before it is made.
    pub fn inbound_estimate<'a>(&'a self, class: &'a ProxyClass) -> Estimate<'a> {
        self.estimate(class, &self.openings(class))
    }

    fn estimate<'a>(&'a self, class: &'a ProxyClass, openings: &[Opening<'a>]) -> Estimate<'a> {
        let mut estimate = if self.accepts_anyone(&class.account) {
            Estimate::of_ports(&class.inbound)
        } else {
            Estimate::new(self, self.traffic_targets_for(&class.account), &class.inbound)
        };
        let mut groups = BTreeMap::new();
        let mut ways: BTreeMap<&InboundPort, BTreeSet<bool>> = BTreeMap::new();
        for (opened, inbound) in openings.iter().flat_map(|opening| &opening.ports) {
            ways.entry(inbound).or_default().insert(opened.protocol == IngressProtocol::Http);
        }
        let config = self.own_mesh_config().map(|(_, config)| config);
        let asked = config.is_some_and(|config| config.external_authorization.is_some());
        let traced = config.and_then(|config| config.tracing.as_ref());
        let traced = traced.map_or(0, |tracing| TRACING_BYTES + tracing.address_bytes());
        let tls = usize::from(config.is_some_and(|config| config.tls.is_some())) * TLS_BYTES;
        let records = self.access_log(class).collector;
        let records = records.map_or(0, |collector| RECORDS_BYTES + collector.attributes.what.bytes());
        let of_requests = usize::from(asked) * AUTHORIZATION_BYTES + traced;
        for port in &class.inbound {
            let http = port.protocol.is_http();
            let settings = port.services.iter().filter_map(|service| self.setting_of(service));
            let each = tls + records + usize::from(http) * of_requests;
            let bytes =
                settings.map(|setting| setting.rate_limits.bytes(http)).fold(each, usize::saturating_add);
            estimate.add_limits(port, bytes, 1 + ways.get(port).map_or(0, BTreeSet::len));
        }
        for opening in openings {
            let addresses = self.count_ingress_addresses(opening.object);
            let bytes = policy::opening_bytes(self, opening, addresses, &mut groups);
            estimate.add_ingress(&opening.object.id, bytes);
        }
        estimate
    }

    /// What may reach the workloads of a class, without what does not fit into `allowance` bytes.
    pub fn inbound_intent(&self, class: &ProxyClass, allowance: u64) -> InboundIntent {
        let config = self.mesh_config();
        let mut openings = self.openings(class);
        let Fit { left_out, ingress_left_out, ports } = self.estimate(class, &openings).fit(allowance);
        let kept = || self.traffic_targets_for(&class.account).filter(|t| !left_out.contains(&t.id));
        let grants = (!self.accepts_anyone(&class.account))
            .then(|| policy::grants(self, kept()).into_iter().map(Arc::new).collect::<Vec<_>>());
        let with_room = |wanted: bool| {
            let ports = class.inbound.iter().zip(&ports).filter(move |(_, room)| **room == wanted);
            ports.map(|(port, _)| port)
        };
        let without_room: Vec<_> = with_room(false).cloned().collect();
        openings.retain(|opening| !ingress_left_out.contains(&opening.object.id));
        for opening in &mut openings {
            opening.ports.retain(|(_, inbound)| !without_room.contains(inbound));
        }
        let named = |kind, names: BTreeSet<_>| names.into_iter().map(move |n| ObjectRef::Namespaced(kind, n));
        let left_out = named(Kind::TrafficTarget, left_out);
        let services: BTreeSet<_> = class.inbound.iter().flat_map(|port| &port.services).collect();
        let limited = |service: &ServiceId| Some((service.clone(), self.rate_limits(service)?));
        InboundIntent {
            ports: with_room(true).map(|port| (port.clone(), access(grants.as_deref(), port))).collect(),
            ingress: policy::ingress_chains(self, &openings, |object| self.ingress_addresses(object)),
            limits: services.into_iter().filter_map(limited).collect(),
            external_authorization: self.external_authorization(),
            without_room,
            left_out: left_out.chain(named(Kind::IngressBackend, ingress_left_out)).collect(),
            local_proxy_mode: config.local_proxy_mode,
            access_log: self.access_log(class),
            tracing: self.tracing(),
            tls: self.tls(),
        }
    }

    /// The identities that may use an inbound port of the destination's workloads: in SMI mode, by those of
    /// its grants that can apply on that port and protocol.
    pub fn inbound_access(&self, destination: &ServiceAccountId, port: &InboundPort) -> InboundAccess {
        if self.accepts_anyone(destination) {
            return InboundAccess::AnyoneInMesh;
        }
        let grants: Vec<_> = self.grants(destination).into_iter().map(Arc::new).collect();
        access(Some(&grants), port)
    }

    /// The identities that may reach `destination` on some port by some request. If it accepts anyone, all
    /// that run in the mesh.
    pub fn allowed_inbound_accounts(&self, destination: &ServiceAccountId) -> BTreeSet<ServiceAccountId> {
        if self.accepts_anyone(destination) {
            return self.accounts().cloned().collect();
        }
        let targets = self.traffic_targets_for(destination);
        let granting = targets.filter(|target| policy::allows_something(self, target));
        granting.flat_map(|target| target.sources.iter().cloned()).collect()
    }
}

/// The identities that may use a port, by those of the grants that can apply on it. `None` is permissive
/// mode.
fn access(grants: Option<&[Arc<Grant>]>, port: &InboundPort) -> InboundAccess {
    let Some(grants) = grants else { return InboundAccess::AnyoneInMesh };
    let grants = grants.iter().filter(|grant| grant.applies_to(port.port, port.protocol));
    InboundAccess::Grants(grants.cloned().collect())
}

#[cfg(test)]
mod tests {
    //! The rules of access v1alpha3, cited as issue 2 point 2 lists them.

    use super::*;
    use crate::catalog::fixtures::{
        account, accounts, group, http_rule, namespace, open_namespace, permissive, target, tcp_route,
        tcp_rule,
    };
    use smc_api::smi::Rule;
    use smc_model::inbound_intent::HttpAccess;
    use smc_types::proxy_class::AppProtocol;

    /// [`routes`] and one target with these rules.
    fn with(rules: &[Rule]) -> Catalog {
        let mut catalog = routes();
        catalog.declare(target("shop/t", "shop/server", &["shop/client"], rules));
        catalog
    }

    /// Routes `/a`, `/b` in `shop/ab`, `/c` in `shop/c`, port 80 in `shop/80`.
    fn routes() -> Catalog {
        Catalog::of([group("shop/ab", &["/a", "/b"]), group("shop/c", &["/c"]), tcp_route("shop/80", &[80])])
    }

    fn granted(catalog: &Catalog) -> Vec<(Option<BTreeSet<u16>>, HttpAccess)> {
        let grants = catalog.grants(&account("shop/server"));
        grants.into_iter().map(|grant| (grant.ports, grant.http)).collect()
    }

    fn access(catalog: &Catalog, port: u16, protocol: AppProtocol) -> InboundAccess {
        let port = InboundPort { port, protocol, services: BTreeSet::new() };
        catalog.inbound_access(&account("shop/server"), &port)
    }

    /// TrafficTarget: deny by default.
    #[test]
    fn without_a_target_nobody_gets_in() {
        assert_eq!(access(&routes(), 80, AppProtocol::Http), InboundAccess::Grants(vec![]));
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
        catalog.declare(target(
            "shop/one",
            "shop/server",
            &["shop/a"],
            &[http_rule("shop/ab", Some(&["/a"]))],
        ));
        catalog.declare(target(
            "shop/two",
            "shop/server",
            &["shop/b", "away/c"],
            &[http_rule("shop/ab", None)],
        ));
        let grants = catalog.grants(&account("shop/server"));
        let seen: Vec<_> = grants.iter().map(|grant| (grant.target.name(), grant.sources.clone())).collect();
        assert_eq!(seen, [("one", accounts(&["shop/a"])), ("two", accounts(&["away/c", "shop/b"]))]);
    }

    /// TrafficTarget: namespaces.
    #[test]
    fn a_target_and_its_rules_stay_within_its_own_namespace() {
        let mut catalog = routes();
        catalog.declare(tcp_route("evil/any", &[]));
        catalog.declare(target("evil/t", "shop/server", &["evil/client"], &[tcp_rule("evil/any")]));
        assert_eq!(granted(&catalog), []);
        let problems = catalog.problems();
        assert!(
            problems.iter().any(|p| p.subject.to_string() == "TrafficTarget evil/t"
                && p.field == "spec.destination.namespace")
        );
    }

    /// Permissive mode as a switch in MeshConfig.
    #[test]
    fn in_permissive_mode_anyone_in_the_mesh_gets_in_whatever_targets_say() {
        let mut catalog = with(&[tcp_rule("shop/80")]);
        catalog.declare(permissive("smc-system", true));
        assert_eq!(access(&catalog, 9999, AppProtocol::Tcp), InboundAccess::AnyoneInMesh);
        catalog.declare(permissive("smc-system", false));
        assert_eq!(access(&catalog, 9999, AppProtocol::Tcp), InboundAccess::Grants(vec![]));
    }

    /// Permissive mode for the workloads of one namespace.
    #[test]
    fn a_permissive_namespace_accepts_anyone_and_opens_no_other() {
        let mut catalog = with(&[tcp_rule("shop/80")]);
        for (object, opened) in [
            (open_namespace("away"), false),
            (open_namespace("shop"), true),
            (namespace("shop"), false),
            (open_namespace("shop"), true),
        ] {
            catalog.declare(object);
            let expected =
                if opened { InboundAccess::AnyoneInMesh } else { InboundAccess::Grants(Vec::new()) };
            assert_eq!(access(&catalog, 9999, AppProtocol::Tcp), expected);
        }
        catalog.apply(crate::catalog::SourceEvent::Remove(ObjectRef::Namespace("shop".to_owned())));
        assert_eq!(access(&catalog, 9999, AppProtocol::Tcp), InboundAccess::Grants(Vec::new()));
    }

    #[test]
    fn a_target_is_read_from_the_latest_state_of_its_routes() {
        let mut catalog = with(&[tcp_rule("shop/late")]);
        assert_eq!(granted(&catalog), []);
        catalog.declare(tcp_route("shop/late", &[7]));
        assert_eq!(granted(&catalog), [(Some(BTreeSet::from([7])), HttpAccess::Any)]);
    }
}
