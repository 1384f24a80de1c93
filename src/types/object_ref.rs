//! References to the objects of the mesh.
//!
//! Owns the kinds of object that SMC reads, and how an object is named in problems and events.

use std::fmt;

use crate::ids::{NamespacedName, ServiceAccountId, ServiceId, WorkloadId};

/// The kinds of object the catalog holds. Prints as the API spells it, such as `HTTPRouteGroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `v1` Namespace.
    Namespace,
    /// `v1` Service.
    Service,
    /// `v1` ServiceAccount.
    ServiceAccount,
    /// `v1` Pod.
    Pod,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice,
    /// `mesh.smc.dev/v1alpha1` MeshWorkload: a machine without a pod.
    MeshWorkload,
    /// `access.smi-spec.io` TrafficTarget.
    TrafficTarget,
    /// `specs.smi-spec.io` HTTPRouteGroup.
    HttpRouteGroup,
    /// `specs.smi-spec.io` TCPRoute.
    TcpRoute,
    /// `specs.smi-spec.io` UDPRoute.
    UdpRoute,
    /// `split.smi-spec.io` TrafficSplit.
    TrafficSplit,
    /// `config.openservicemesh.io/v1alpha2` MeshConfig.
    MeshConfig,
    /// `policy.openservicemesh.io` Egress: checked, and not enforced.
    Egress,
    /// `policy.openservicemesh.io` IngressBackend: checked, and not enforced.
    IngressBackend,
    /// `policy.openservicemesh.io` Retry: checked, and not enforced.
    Retry,
    /// `policy.openservicemesh.io` Telemetry: checked, and not enforced.
    Telemetry,
    /// `policy.openservicemesh.io` UpstreamTrafficSetting: checked, and not enforced.
    UpstreamTrafficSetting,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 17] = [
        Self::Namespace,
        Self::Service,
        Self::ServiceAccount,
        Self::Pod,
        Self::EndpointSlice,
        Self::MeshWorkload,
        Self::TrafficTarget,
        Self::HttpRouteGroup,
        Self::TcpRoute,
        Self::UdpRoute,
        Self::TrafficSplit,
        Self::MeshConfig,
        Self::Egress,
        Self::IngressBackend,
        Self::Retry,
        Self::Telemetry,
        Self::UpstreamTrafficSetting,
    ];

    /// The kind that the API spells so.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The name of the kind, as the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Service => "Service",
            Self::ServiceAccount => "ServiceAccount",
            Self::Pod => "Pod",
            Self::EndpointSlice => "EndpointSlice",
            Self::MeshWorkload => "MeshWorkload",
            Self::TrafficTarget => "TrafficTarget",
            Self::HttpRouteGroup => "HTTPRouteGroup",
            Self::TcpRoute => "TCPRoute",
            Self::UdpRoute => "UDPRoute",
            Self::TrafficSplit => "TrafficSplit",
            Self::MeshConfig => "MeshConfig",
            Self::Egress => "Egress",
            Self::IngressBackend => "IngressBackend",
            Self::Retry => "Retry",
            Self::Telemetry => "Telemetry",
            Self::UpstreamTrafficSetting => "UpstreamTrafficSetting",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The kind and the name of an object. Prints as `Kind namespace/name`, or `Namespace name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectRef {
    /// A Namespace, the only kind without a namespace of its own.
    Namespace(String),
    /// An object of any other kind.
    Namespaced(Kind, NamespacedName),
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "Namespace {name}"),
            Self::Namespaced(kind, name) => write!(f, "{kind} {name}"),
        }
    }
}

impl From<&ServiceId> for ObjectRef {
    fn from(service: &ServiceId) -> Self {
        Self::Namespaced(Kind::Service, service.as_name().clone())
    }
}

impl From<&ServiceAccountId> for ObjectRef {
    fn from(account: &ServiceAccountId) -> Self {
        Self::Namespaced(Kind::ServiceAccount, account.as_name().clone())
    }
}

impl From<&WorkloadId> for ObjectRef {
    fn from(workload: &WorkloadId) -> Self {
        let kind = if workload.is_machine() { Kind::MeshWorkload } else { Kind::Pod };
        Self::Namespaced(kind, workload.as_name().clone())
    }
}
