//! The declared mesh: the objects that sources reported, and queries over them.
//!
//! Owns the objects, the indexes over them, and which identities, services and proxies an event affects.
//! Does not know Envoy, streams or time.
//!
//! `apply` takes events, and `settle` works out what several of them affect (`pending` and `mentions` are
//! what it needs for that); `index`, `backends` and `endpoint_budget` hold what follows from the objects. The
//! queries: `query` for what exists, `inbound` for who may connect, `ingress` for what of outside the mesh
//! may, `outbound` for what an identity may call, `egress` for what of outside it may, `splits` for the
//! weights, `upstream` for retries and back-pressure, `telemetry` and `extension_services` for logs,
//! `problems` for what is wrong. `intents` makes the values that translation reads, beside `topology`.

mod addresses;
mod affected;
mod apply;
mod backends;
mod counts;
mod egress;
mod endpoint;
mod endpoint_budget;
mod extension_services;
mod inbound;
mod index;
mod ingress;
mod intents;
mod mentions;
mod mesh_root_certificates;
mod namespace_budgets;
mod outbound;
mod pending;
mod problems;
mod query;
mod route_groups;
mod selection;
mod settle;
mod splits;
mod telemetry;
mod topology;
mod upstream;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
pub(crate) mod properties;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use affected::Affected;
pub use endpoint::Endpoint;
pub use intents::OutboundIntents;
pub use smc_api::object::{Object, SourceEvent};
pub use topology::Topology;

use smc_api::osm::{
    Egress, ExtensionService, IngressBackend, MeshConfig, MeshRootCertificate, Retry, Telemetry,
    UpstreamTrafficSetting,
};
use smc_api::smi::{HttpRouteGroup, TcpRoute, TrafficSplit, TrafficTarget, UdpRoute};
use smc_model::topology::{EndpointSlice, Namespace, Service, Workload};
use smc_types::ids::{MeshNamespace, NamespacedName, ServiceAccountId, ServiceId, TrustDomain, WorkloadId};

/// The objects that sources reported last. Two catalogs with the same objects are equal, in whatever order
/// and by whatever intermediate states the objects came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalog {
    mesh_namespace: MeshNamespace,
    /// The domain of services' full names, beside `cluster.local`.
    domain: Option<TrustDomain>,
    namespaces: BTreeMap<String, Namespace>,
    services: BTreeMap<ServiceId, Arc<Service>>,
    service_accounts: BTreeSet<ServiceAccountId>,
    workloads: BTreeMap<WorkloadId, Arc<Workload>>,
    slices: BTreeMap<NamespacedName, EndpointSlice>,
    traffic_targets: BTreeMap<NamespacedName, Arc<TrafficTarget>>,
    /// As they are declared. Policy is made of [`Self::route_groups`].
    http_route_groups: BTreeMap<NamespacedName, HttpRouteGroup>,
    route_groups: route_groups::RouteGroups,
    tcp_routes: BTreeMap<NamespacedName, TcpRoute>,
    udp_routes: BTreeMap<NamespacedName, UdpRoute>,
    traffic_splits: BTreeMap<NamespacedName, TrafficSplit>,
    mesh_configs: BTreeMap<NamespacedName, MeshConfig>,
    egresses: BTreeMap<NamespacedName, Arc<Egress>>,
    ingress_backends: BTreeMap<NamespacedName, Arc<IngressBackend>>,
    retries: BTreeMap<NamespacedName, Arc<Retry>>,
    upstream_settings: BTreeMap<NamespacedName, Arc<UpstreamTrafficSetting>>,
    /// By their namespaces; none is empty.
    telemetries: BTreeMap<String, BTreeMap<NamespacedName, Arc<Telemetry>>>,
    extension_services: BTreeMap<NamespacedName, Arc<ExtensionService>>,
    mesh_root_certificates: BTreeMap<NamespacedName, MeshRootCertificate>,
    index: index::Index,
    /// What events changed since the last ones were settled.
    pending: pending::Pending,
    /// What is wrong, as far as it was looked for.
    found: problems::found::Found,
}

impl Catalog {
    /// An empty catalog, for which the MeshConfig of this namespace counts. Full names of services may end
    /// in the trust domain, as in OSM, where it is the cluster's domain.
    pub fn new(mesh_namespace: MeshNamespace, trust_domain: TrustDomain) -> Self {
        Self { mesh_namespace, domain: Some(trust_domain), ..Self::default() }
    }
}
