//! The mesh's objects as domain types, and the events that bring them.
//!
//! Owns the vocabulary that sources speak to the catalog. Refuses Kubernetes' and Envoy's: a source has
//! already turned YAML or API objects into these, and reported what it could not turn.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ids::{NamespacedName, ProxyName, ProxyUuid, ServiceAccountId, ServiceId, WorkloadId};
use crate::smi::{HttpRouteGroup, MeshConfig, TcpRoute, TrafficSplit, TrafficTarget, UdpRoute};

/// The kinds of object the catalog holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// `v1` Namespace.
    Namespace,
    /// `v1` Service.
    Service,
    /// `v1` ServiceAccount.
    ServiceAccount,
    /// `v1` Pod, later also a machine.
    Pod,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice,
    /// `access.smi-spec.io` TrafficTarget.
    TrafficTarget,
    /// `specs.smi-spec.io` HTTPRouteGroup.
    HTTPRouteGroup,
    /// `specs.smi-spec.io` TCPRoute.
    TCPRoute,
    /// `specs.smi-spec.io` UDPRoute.
    UDPRoute,
    /// `split.smi-spec.io` TrafficSplit.
    TrafficSplit,
    /// `config.openservicemesh.io/v1alpha2` MeshConfig.
    MeshConfig,
}

/// Which object: its kind and its name. Prints as problems name it, `Kind namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectRef {
    /// A Namespace, the one kind that lives in no namespace.
    Namespace(String),
    /// Any other object.
    Namespaced(Kind, NamespacedName),
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "Namespace {name}"),
            Self::Namespaced(kind, name) => write!(f, "{kind:?} {name}"),
        }
    }
}

/// One object of the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// See [`Namespace`].
    Namespace(Namespace),
    /// See [`Service`].
    Service(Service),
    /// A service account: it has nothing but its name.
    ServiceAccount(ServiceAccountId),
    /// See [`Workload`].
    Workload(Workload),
    /// See [`EndpointSlice`].
    EndpointSlice(EndpointSlice),
    /// See [`TrafficTarget`].
    TrafficTarget(TrafficTarget),
    /// See [`HttpRouteGroup`].
    HttpRouteGroup(HttpRouteGroup),
    /// See [`TcpRoute`].
    TcpRoute(TcpRoute),
    /// See [`UdpRoute`].
    UdpRoute(UdpRoute),
    /// See [`TrafficSplit`].
    TrafficSplit(TrafficSplit),
    /// See [`MeshConfig`], under the name it was declared by.
    MeshConfig(NamespacedName, MeshConfig),
}

impl Object {
    /// Which object this is.
    pub fn reference(&self) -> ObjectRef {
        let (kind, name) = match self {
            Self::Namespace(namespace) => return ObjectRef::Namespace(namespace.name.clone()),
            Self::Service(service) => (Kind::Service, service.id.as_name()),
            Self::ServiceAccount(account) => (Kind::ServiceAccount, account.as_name()),
            Self::Workload(workload) => (Kind::Pod, workload.id.as_name()),
            Self::EndpointSlice(slice) => (Kind::EndpointSlice, &slice.id),
            Self::TrafficTarget(target) => (Kind::TrafficTarget, &target.id),
            Self::HttpRouteGroup(group) => (Kind::HTTPRouteGroup, &group.id),
            Self::TcpRoute(route) => (Kind::TCPRoute, &route.id),
            Self::UdpRoute(route) => (Kind::UDPRoute, &route.id),
            Self::TrafficSplit(split) => (Kind::TrafficSplit, &split.id),
            Self::MeshConfig(name, _) => (Kind::MeshConfig, name),
        };
        ObjectRef::Namespaced(kind, name.clone())
    }
}

/// What a source tells the catalog. Order between objects does not matter: the catalog is a function of
/// the set of objects it was told of last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceEvent {
    /// The object appeared or changed; the whole new state.
    Upsert(Object),
    /// The object is gone.
    Remove(ObjectRef),
}

/// A namespace, and whether its pods are in the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Its name, a DNS-1123 label.
    pub name: String,
    /// Whether it carries the label `openservicemesh.io/monitored-by`: only then can its pods be in the mesh.
    pub monitored: bool,
    /// Whether its annotation asks for or refuses sidecars for the pods that say nothing themselves.
    pub injection: Option<bool>,
}

/// A Service: a name, virtual addresses, and ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub id: ServiceId,
    /// `spec.clusterIPs`; empty for a headless service and for one that has no address yet.
    pub cluster_ips: Vec<IpAddr>,
    /// Whether `spec.clusterIP` is `None`: clients connect to the addresses of its pods.
    pub headless: bool,
    /// The labels of the pods behind it; empty means that EndpointSlices alone say what is behind it.
    pub selector: BTreeMap<String, String>,
    /// Its TCP ports in declared order, one entry per port number. UDP and SCTP ports are reported by the
    /// source and left out, since the mesh does not carry them.
    pub ports: Vec<ServicePort>,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// The port's name; `None` is allowed for a single port.
    pub name: Option<String>,
    /// The port that clients connect to, 1 to 65535.
    pub port: u16,
    /// Where it leads in the pod.
    pub target: TargetPort,
    /// What is spoken on it.
    pub protocol: AppProtocol,
}

/// `targetPort` of a service port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetPort {
    /// This port of every pod.
    Number(u16),
    /// The container port of this name, which may differ from pod to pod.
    Name(String),
}

/// What an application speaks on a port, from `appProtocol`, then the port name's prefix, then http.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AppProtocol {
    /// HTTP/1.1, or HTTP/2 where the client begins it.
    Http,
    /// HTTP/2 without TLS, thus also gRPC.
    Http2,
    /// TCP where the client speaks first.
    Tcp,
    /// TCP where the server speaks first, so nothing may be sniffed before connecting.
    TcpServerFirst,
    /// The application's own TLS, carried through.
    Https,
}

impl AppProtocol {
    /// Its name, as configuration and reports spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Tcp => "tcp",
            Self::TcpServerFirst => "tcp-server-first",
            Self::Https => "https",
        }
    }

    /// Whether the mesh reads requests on it, and HTTP rules thus apply.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2)
    }
}

/// Something that runs, with its identity and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its name.
    pub id: WorkloadId,
    /// Its sidecar's number: the label `osm-proxy-uuid`, or derived from the name.
    pub proxy: ProxyUuid,
    /// Who it is.
    pub service_account: ServiceAccountId,
    /// Its labels, which service selectors look at.
    pub labels: BTreeMap<String, String>,
    /// `status.podIPs`, at most one per address family.
    pub ips: Vec<IpAddr>,
    /// Named container ports.
    pub ports: BTreeMap<String, u16>,
    /// Whether it may be sent traffic: the Ready condition, and not terminating.
    pub ready: bool,
    /// Whether the pod itself asks for or refuses a sidecar by its annotation; `None` leaves it to the
    /// namespace. A `hostNetwork` pod always refuses.
    pub injection: Option<bool>,
}

impl Workload {
    /// The name of its sidecar, in its own namespace.
    pub fn proxy_name(&self) -> ProxyName {
        ProxyName::of(self.proxy, &self.id)
    }
}

/// Endpoints of a service as somebody else found them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSlice {
    /// The slice's own name.
    pub id: NamespacedName,
    /// The service it belongs to: the label `kubernetes.io/service-name`.
    pub service: ServiceId,
    /// Ports, matched to service ports by name.
    pub ports: Vec<SlicePort>,
    /// Addresses.
    pub endpoints: Vec<SliceEndpoint>,
}

/// One port of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// The service port's name; `None` matches the unnamed port.
    pub name: Option<String>,
    /// The port at the endpoint.
    pub port: u16,
}

/// One endpoint of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Its addresses, all of the slice's family.
    pub addresses: Vec<IpAddr>,
    /// `conditions.ready`; absent means ready (EndpointSlice API).
    pub ready: bool,
    /// The pod behind it, where the slice says so.
    pub workload: Option<WorkloadId>,
}

/// One place that traffic for a service port can be sent to, with the identity that answers there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Its address.
    pub ip: IpAddr,
    /// The port in the pod.
    pub port: u16,
    /// The workload behind it.
    pub workload: WorkloadId,
    /// Who answers there.
    pub service_account: ServiceAccountId,
}

/// One port of a workload that services lead to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InboundPort {
    /// The port in the pod.
    pub port: u16,
    /// What is spoken on it.
    pub protocol: AppProtocol,
    /// The services that lead to it with that protocol.
    pub services: BTreeSet<ServiceId>,
}
