//! The mesh objects that a resource is made of, so that a resource that Envoy rejects leads to them.
//!
//! Owns which objects count: declared objects whose change can mend the resource. Pods do not
//! count, and secrets are made of no object.

use std::collections::BTreeSet;

use crate::catalog::Catalog;
use crate::policy::{InboundAccess, Routes};
use smc_model::topology::ServicePort;
use smc_types::ids::{NamespacedName, ServiceId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::InboundPort;

/// The objects of one resource.
pub(super) type Objects = BTreeSet<ObjectRef>;

/// A service.
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

/// The TrafficSplits of a root service that can apply to `port`, with the HTTPRouteGroups that they match by.
pub(super) fn splits(catalog: &Catalog, root: &ServiceId, port: &ServicePort) -> Objects {
    let mut objects = Objects::new();
    for split in catalog.splits_of(root) {
        if split.matches.is_empty() || port.protocol.is_http() {
            objects.insert(named(Kind::TrafficSplit, &split.id));
            let groups = split.matches.iter().filter(|name| catalog.http_route_group(name).is_some());
            objects.extend(groups.map(|name| named(Kind::HttpRouteGroup, name)));
        }
    }
    objects
}

fn named(kind: Kind, name: &NamespacedName) -> ObjectRef {
    ObjectRef::Namespaced(kind, name.clone())
}
