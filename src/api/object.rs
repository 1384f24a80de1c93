//! The objects of the mesh and the events that bring them.
//!
//! Owns the vocabulary between sources and the catalog.

use std::sync::Arc;

use crate::osm::{
    Egress, ExtensionService, IngressBackend, MeshConfig, MeshRootCertificate, Retry, Telemetry,
    UpstreamTrafficSetting,
};
use crate::smi::{HttpRouteGroup, TcpRoute, TrafficSplit, TrafficTarget, UdpRoute};
use smc_model::topology::{EndpointSlice, Namespace, Service, Workload};
use smc_types::ids::{NamespacedName, ServiceAccountId};
use smc_types::object_ref::{Kind, ObjectRef};

/// One object of the mesh. A clone of the kinds of which there are thousands shares them: a source holds
/// what is in effect, and the catalog what the source has reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A `v1` Namespace.
    Namespace(Namespace),
    /// A `v1` Service.
    Service(Arc<Service>),
    /// A `v1` ServiceAccount, of which only the name counts.
    ServiceAccount(ServiceAccountId),
    /// A `v1` Pod, or a MeshWorkload: the id says which.
    Workload(Arc<Workload>),
    /// A `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice(EndpointSlice),
    /// An SMI TrafficTarget.
    TrafficTarget(Arc<TrafficTarget>),
    /// An SMI HTTPRouteGroup.
    HttpRouteGroup(HttpRouteGroup),
    /// An SMI TCPRoute.
    TcpRoute(TcpRoute),
    /// An SMI UDPRoute.
    UdpRoute(UdpRoute),
    /// An SMI TrafficSplit.
    TrafficSplit(TrafficSplit),
    /// An OSM MeshConfig, with the name of its object.
    MeshConfig(NamespacedName, MeshConfig),
    /// An OSM Egress.
    Egress(Arc<Egress>),
    /// An OSM IngressBackend.
    IngressBackend(Arc<IngressBackend>),
    /// An OSM Retry.
    Retry(Arc<Retry>),
    /// An OSM UpstreamTrafficSetting.
    UpstreamTrafficSetting(Arc<UpstreamTrafficSetting>),
    /// An OSM Telemetry.
    Telemetry(Arc<Telemetry>),
    /// An OSM ExtensionService.
    ExtensionService(Arc<ExtensionService>),
    /// An OSM MeshRootCertificate.
    MeshRootCertificate(MeshRootCertificate),
}

impl Object {
    /// The kind and name of the object.
    pub fn reference(&self) -> ObjectRef {
        let (kind, name) = match self {
            Self::Namespace(namespace) => return ObjectRef::Namespace(namespace.name.clone()),
            Self::Service(service) => (Kind::Service, service.id.as_name()),
            Self::ServiceAccount(account) => (Kind::ServiceAccount, account.as_name()),
            Self::Workload(workload) => return ObjectRef::from(&workload.id),
            Self::EndpointSlice(slice) => (Kind::EndpointSlice, &slice.id),
            Self::TrafficTarget(target) => (Kind::TrafficTarget, &target.id),
            Self::HttpRouteGroup(group) => (Kind::HttpRouteGroup, &group.id),
            Self::TcpRoute(route) => (Kind::TcpRoute, &route.id),
            Self::UdpRoute(route) => (Kind::UdpRoute, &route.id),
            Self::TrafficSplit(split) => (Kind::TrafficSplit, &split.id),
            Self::MeshConfig(name, _) => (Kind::MeshConfig, name),
            Self::Egress(egress) => (Kind::Egress, &egress.id),
            Self::IngressBackend(backend) => (Kind::IngressBackend, &backend.id),
            Self::Retry(retry) => (Kind::Retry, &retry.id),
            Self::UpstreamTrafficSetting(setting) => (Kind::UpstreamTrafficSetting, &setting.id),
            Self::Telemetry(telemetry) => (Kind::Telemetry, &telemetry.id),
            Self::ExtensionService(service) => (Kind::ExtensionService, &service.id),
            Self::MeshRootCertificate(root) => (Kind::MeshRootCertificate, &root.id),
        };
        ObjectRef::Namespaced(kind, name.clone())
    }
}

impl From<Service> for Object {
    fn from(service: Service) -> Self {
        Self::Service(Arc::new(service))
    }
}

impl From<Workload> for Object {
    fn from(workload: Workload) -> Self {
        Self::Workload(Arc::new(workload))
    }
}

impl From<TrafficTarget> for Object {
    fn from(target: TrafficTarget) -> Self {
        Self::TrafficTarget(Arc::new(target))
    }
}

impl From<Egress> for Object {
    fn from(egress: Egress) -> Self {
        Self::Egress(Arc::new(egress))
    }
}

impl From<IngressBackend> for Object {
    fn from(backend: IngressBackend) -> Self {
        Self::IngressBackend(Arc::new(backend))
    }
}

impl From<Retry> for Object {
    fn from(retry: Retry) -> Self {
        Self::Retry(Arc::new(retry))
    }
}

impl From<UpstreamTrafficSetting> for Object {
    fn from(setting: UpstreamTrafficSetting) -> Self {
        Self::UpstreamTrafficSetting(Arc::new(setting))
    }
}

impl From<Telemetry> for Object {
    fn from(telemetry: Telemetry) -> Self {
        Self::Telemetry(Arc::new(telemetry))
    }
}

impl From<ExtensionService> for Object {
    fn from(service: ExtensionService) -> Self {
        Self::ExtensionService(Arc::new(service))
    }
}

impl From<MeshRootCertificate> for Object {
    fn from(root: MeshRootCertificate) -> Self {
        Self::MeshRootCertificate(root)
    }
}

/// A change that a source reports. Order between objects does not matter: the catalog is a function of the
/// set of objects that were reported last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceEvent {
    /// The object appeared or changed; the whole new state.
    Upsert(Object),
    /// The object is gone.
    Remove(ObjectRef),
}
