//! References to the objects of the mesh.
//!
//! Owns the kinds of object that SMC reads, and how an object is named in problems and events.

use std::fmt;

use crate::ids::{NamespacedName, ServiceAccountId, ServiceId, WorkloadId};

/// Declares [`Kind`] with its list and its names, so that no kind is missing in either.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// The kinds of object that SMC reads. Prints as the API spells it, such as `HTTPRouteGroup`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The name of the kind, as the API spells it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// `v1` Namespace.
    Namespace = "Namespace",
    /// `v1` Service.
    Service = "Service",
    /// `v1` ServiceAccount.
    ServiceAccount = "ServiceAccount",
    /// `v1` Pod.
    Pod = "Pod",
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice = "EndpointSlice",
    /// `mesh.smc.dev/v1alpha1` MeshWorkload: a machine without a pod.
    MeshWorkload = "MeshWorkload",
    /// `access.smi-spec.io` TrafficTarget.
    TrafficTarget = "TrafficTarget",
    /// `specs.smi-spec.io` HTTPRouteGroup.
    HttpRouteGroup = "HTTPRouteGroup",
    /// `specs.smi-spec.io` TCPRoute.
    TcpRoute = "TCPRoute",
    /// `specs.smi-spec.io` UDPRoute.
    UdpRoute = "UDPRoute",
    /// `split.smi-spec.io` TrafficSplit.
    TrafficSplit = "TrafficSplit",
    /// `config.openservicemesh.io/v1alpha2` MeshConfig.
    MeshConfig = "MeshConfig",
    /// `policy.openservicemesh.io` Egress: checked, and not enforced.
    Egress = "Egress",
    /// `policy.openservicemesh.io` IngressBackend: checked, and not enforced.
    IngressBackend = "IngressBackend",
    /// `policy.openservicemesh.io` Retry: checked, and not enforced.
    Retry = "Retry",
    /// `policy.openservicemesh.io` Telemetry: checked, and not enforced.
    Telemetry = "Telemetry",
    /// `policy.openservicemesh.io` UpstreamTrafficSetting: checked, and not enforced.
    UpstreamTrafficSetting = "UpstreamTrafficSetting",
}

impl Kind {
    /// The kind that the API spells so.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
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
