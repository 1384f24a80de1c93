//! What the mesh is: the objects that sources told of, and questions about them.
//!
//! Owns the objects, the indexes over them, and the exact answer to "whom does this change touch". Refuses
//! to know Envoy, streams or time. Access policy over it is [`crate::policy`]; the catalog asks it only to
//! name the identities that an event touches.
//!
//! `object` is the vocabulary; `apply` takes events and works out the `impact`; `index` and `backing` are
//! what follows from the objects; `query` reads; `problems` says what is wrong.

mod apply;
mod backing;
mod impact;
mod index;
mod object;
mod problems;
mod query;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use impact::Impact;
pub use object::{
    AppProtocol, Endpoint, EndpointSlice, InboundPort, Kind, Namespace, Object, ObjectRef, Service,
    ServicePort, SliceEndpoint, SlicePort, SourceEvent, TargetPort, Workload,
};

use crate::ids::{NamespacedName, ServiceAccountId, ServiceId, WorkloadId};
use crate::smi::{
    HttpRouteGroup, MeshConfig, MeshNamespace, TcpRoute, TrafficSplit, TrafficTarget, UdpRoute,
};

/// The mesh as sources told of it last. Two catalogs that were told of the same objects, in whatever
/// order and by whatever detours, are equal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalog {
    mesh_namespace: MeshNamespace,
    namespaces: BTreeMap<String, Namespace>,
    services: BTreeMap<ServiceId, Service>,
    service_accounts: BTreeSet<ServiceAccountId>,
    workloads: BTreeMap<WorkloadId, Workload>,
    slices: BTreeMap<NamespacedName, EndpointSlice>,
    traffic_targets: BTreeMap<NamespacedName, TrafficTarget>,
    http_route_groups: BTreeMap<NamespacedName, HttpRouteGroup>,
    tcp_routes: BTreeMap<NamespacedName, TcpRoute>,
    udp_routes: BTreeMap<NamespacedName, UdpRoute>,
    traffic_splits: BTreeMap<NamespacedName, TrafficSplit>,
    mesh_configs: BTreeMap<NamespacedName, MeshConfig>,
    index: index::Index,
}

impl Catalog {
    /// A catalog of nothing, in which the MeshConfig of this namespace counts.
    pub fn new(mesh_namespace: MeshNamespace) -> Self {
        Self { mesh_namespace, ..Self::default() }
    }
}
