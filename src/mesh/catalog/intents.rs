//! What policy means for one identity, as a value.
//!
//! Owns the way from the objects to the intents. Translation reads these, and no object.

use std::collections::{BTreeMap, BTreeSet};

use super::Catalog;
use crate::policy::Routes;
use smc_model::access_log::AccessLog;
use smc_model::outbound_intent::{
    CallableServices, OutboundIntent, PortRoutes, ServiceLimits, ServiceRoutes,
};
use smc_model::shared::Shared;
use smc_model::topology::ServicePort;
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::ProxyClass;

/// The outbound intents of identities in one state of the catalog. What several identities share is computed
/// once, and compares at once.
#[derive(Debug, Default)]
pub struct OutboundIntents {
    /// In permissive mode all identities may call the same services.
    anyone: Option<Callable>,
    /// Of the identity that was asked for last: those of all its classes are asked for one after the other.
    latest: Option<(ServiceAccountId, OutboundIntent)>,
    /// Where calls to a service go; `None` if all go to the service itself.
    routes: BTreeMap<ServiceId, Option<Shared<BTreeMap<u16, PortRoutes>>>>,
}

/// The services that an identity may call, and what is the same for all that may.
#[derive(Debug, Clone)]
struct Callable {
    services: Shared<CallableServices>,
    routes: Shared<ServiceRoutes>,
    connections: Shared<ServiceLimits>,
}

impl OutboundIntents {
    /// What the workloads of a class may call, and where their calls go. `catalog` is in the same state each
    /// time.
    pub fn of(&mut self, catalog: &Catalog, class: &ProxyClass) -> OutboundIntent {
        let known = self.latest.take().filter(|(latest, _)| *latest == class.account);
        let (account, intent) =
            known.unwrap_or_else(|| (class.account.clone(), self.made(catalog, &class.account)));
        let own = OutboundIntent { access_log: catalog.access_log(class), ..intent.clone() };
        self.latest = Some((account, intent));
        own
    }

    fn made(&mut self, catalog: &Catalog, account: &ServiceAccountId) -> OutboundIntent {
        let config = catalog.mesh_config();
        let callable =
            if let Some(anyone) = &self.anyone { anyone.clone() } else { self.callable(catalog, account) };
        if config.permissive {
            self.anyone.get_or_insert_with(|| callable.clone());
        }
        let Callable { services, routes, connections } = callable;
        let retries = Shared::new(catalog.retries(account, &services));
        let egress = Shared::new(catalog.egress(account));
        let passthrough = config.egress;
        // Not all classes of the identity log alike.
        let access_log = AccessLog::default();
        let tracing = catalog.tracing();
        let tls = catalog.tls().filter(|declared| !declared.what.curves.is_empty());
        OutboundIntent {
            services,
            routes,
            connections,
            retries,
            egress,
            passthrough,
            access_log,
            tracing,
            request_metrics: catalog.request_metrics(),
            tls,
        }
    }

    fn callable(&mut self, catalog: &Catalog, account: &ServiceAccountId) -> Callable {
        let services = catalog.outbound_services(account);
        let routes = services.keys().filter_map(|service| {
            let routes = if let Some(known) = self.routes.get(service) {
                known.clone()
            } else {
                let routes = catalog.service_routes(service);
                self.routes.insert(service.clone(), routes.clone());
                routes
            };
            Some((service.clone(), routes?))
        });
        let routes: ServiceRoutes = routes.collect();
        let leaves = routes.values().flat_map(|ports| ports.values()).flat_map(PortRoutes::backends);
        let limits = services.keys().chain(leaves).filter_map(|service| {
            let limits = catalog.backpressure(service)?;
            Some((service.clone(), limits))
        });
        let connections = Shared::new(limits.collect::<ServiceLimits>());
        Callable { services: Shared::new(services), routes: Shared::new(routes), connections }
    }
}

impl Catalog {
    /// Where calls to the ports of a service go; `None` if all go to the service itself.
    fn service_routes(&self, service: &ServiceId) -> Option<Shared<BTreeMap<u16, PortRoutes>>> {
        // Most services have no split.
        self.index.splits_of.get(service)?;
        let ports = &self.services.get(service)?.ports;
        let routes: BTreeMap<_, _> = ports
            .iter()
            .filter_map(|port| {
                let routes = self.routes(service, port)?;
                Some((port.port, PortRoutes { routes, declared_by: self.splits_at(service, port) }))
            })
            .collect();
        (!routes.is_empty()).then(|| Shared::new(routes))
    }

    /// The TrafficSplits of a root service that can apply to `port`, with the HTTPRouteGroups that they match
    /// by.
    fn splits_at(&self, root: &ServiceId, port: &ServicePort) -> BTreeSet<ObjectRef> {
        let named = |kind, name: &NamespacedName| ObjectRef::Namespaced(kind, name.clone());
        let mut objects = BTreeSet::new();
        for split in self.splits_of(root) {
            if split.matches.is_empty() || port.protocol.is_http() {
                objects.insert(named(Kind::TrafficSplit, &split.id));
                let groups = split.matches.iter().filter(|name| self.http_route_group(name).is_some());
                objects.extend(groups.map(|name| named(Kind::HttpRouteGroup, name)));
            }
        }
        objects
    }
}
