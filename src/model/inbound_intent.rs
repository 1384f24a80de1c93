//! What may reach a workload, and by which requests.
//!
//! Owns the value of which the inbound half of a snapshot is made. Whatever a policy says of a callee is a
//! field here, in the mesh's own words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId};
use smc_types::object_ref::ObjectRef;
use smc_types::proxy_class::{AppProtocol, InboundPort};

use crate::access_log::AccessLog;
use crate::declared::Declared;
use crate::external_authorization::ExternalAuthorization;
use crate::http_match::HttpMatch;
use crate::ingress::IngressChain;
use crate::rate_limit::LocalRateLimits;
use crate::sidecar_settings::LocalProxyMode;
use crate::tls_parameters::TlsParameters;
use crate::tracing::Tracing;

/// What may reach the workloads of a class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InboundIntent {
    /// The ports that are open to someone or closed by policy, in the order of the class.
    pub ports: Vec<(InboundPort, InboundAccess)>,
    /// The ways from outside of the mesh to these ports, sorted.
    pub ingress: Vec<IngressChain>,
    /// How many requests and connections the services of its ports can bear over time; none without a limit.
    pub limits: BTreeMap<ServiceId, Declared<Arc<LocalRateLimits>>>,
    /// What is asked before a request reaches the application.
    pub external_authorization: Option<Declared<Arc<ExternalAuthorization>>>,
    /// The ports of the class for which there is no room. They are closed.
    pub without_room: Vec<InboundPort>,
    /// The TrafficTargets and IngressBackends for which there is no room. They allow nothing.
    pub left_out: BTreeSet<ObjectRef>,
    /// Where the sidecar reaches its application.
    pub local_proxy_mode: LocalProxyMode,
    /// What of it the sidecar logs.
    pub access_log: AccessLog,
    /// Where the sidecar reports what it did with requests.
    pub tracing: Option<Declared<Arc<Tracing>>>,
    /// The TLS that the sidecar accepts; `None` means what it accepts anyway.
    pub tls: Option<Declared<Arc<TlsParameters>>>,
}

/// The identities that may use one inbound port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InboundAccess {
    /// Every identity of the mesh: permissive mode.
    AnyoneInMesh,
    /// The identities that one of these grants allows, sorted by the rule. If empty, all are denied.
    Grants(Vec<Arc<Grant>>),
}

/// What one rule allows: any of `sources`, on any of `ports`, by any of the requests in `http`. All three
/// must hold. A grant always allows something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The TrafficTarget.
    pub target: NamespacedName,
    /// The identities that may connect.
    pub sources: BTreeSet<ServiceAccountId>,
    /// The ports of the pod; `None` means all. Never an empty set.
    pub ports: Option<BTreeSet<u16>>,
    /// The requests that are allowed.
    pub http: HttpAccess,
    /// The existing HTTPRouteGroups and TCPRoutes that the target names.
    pub routes: BTreeSet<ObjectRef>,
}

/// The requests that a grant allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpAccess {
    /// Any request, and any protocol other than HTTP.
    Any,
    /// Only HTTP requests that match one of these. Sorted, never empty. Grants with the same rules share it.
    Only(Arc<[HttpMatch]>),
}

impl Grant {
    /// Whether it can allow anything on this port with this protocol. A grant with HTTP routes never opens
    /// a port of another protocol, since its routes could not be checked there.
    pub fn applies_to(&self, port: u16, protocol: AppProtocol) -> bool {
        let speaks = match self.http {
            HttpAccess::Any => true,
            HttpAccess::Only(_) => protocol.is_http(),
        };
        speaks && self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
    }
}
