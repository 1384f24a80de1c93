//! The mesh objects that a resource is made of, so that a resource that Envoy rejects leads to them.
//!
//! Owns which objects count: declared objects whose change can mend the resource. Pods do not
//! count, and secrets are made of no object.

use std::collections::BTreeSet;

use smc_model::access_log::AccessLog;
use smc_model::inbound_intent::InboundAccess;
use smc_model::ingress::IngressChain;
use smc_types::ids::{NamespacedName, ServiceId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::InboundPort;

/// The objects of one resource.
pub(super) type Objects = BTreeSet<ObjectRef>;

pub(super) fn service(service: &ServiceId) -> Objects {
    Objects::from([ObjectRef::from(service)])
}

/// The services that lead to an inbound port.
pub(super) fn services(port: &InboundPort) -> Objects {
    port.services.iter().flat_map(service).collect()
}

/// The TrafficTargets that allow access, with the HTTPRouteGroups and TCPRoutes that they allow it by.
pub(super) fn access(access: &InboundAccess) -> Objects {
    let InboundAccess::Grants(grants) = access else { return Objects::new() };
    let targets = grants.iter().map(|grant| named(Kind::TrafficTarget, &grant.target));
    targets.chain(grants.iter().flat_map(|grant| grant.routes.iter().cloned())).collect()
}

/// The IngressBackends of a chain, with the HTTPRouteGroups that they allow requests by.
pub(super) fn ingress(chain: &IngressChain) -> Objects {
    let objects = chain.grants.iter().map(|grant| named(Kind::IngressBackend, &grant.backend));
    objects.chain(chain.grants.iter().flat_map(|grant| grant.routes.iter().cloned())).collect()
}

/// The objects that say how a line of the log is made, and what a collector is sent.
pub(super) fn log(log: &AccessLog) -> Objects {
    let format = log.format.iter().map(|format| &format.by);
    let collector = log.collector.iter();
    let collector = collector.flat_map(|collector| [&collector.server.by, &collector.attributes.by]);
    format.chain(collector).cloned().collect()
}

fn named(kind: Kind, name: &NamespacedName) -> ObjectRef {
    ObjectRef::Namespaced(kind, name.clone())
}
