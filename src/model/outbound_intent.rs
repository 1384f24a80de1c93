//! What an identity may call, and where its calls go.
//!
//! Owns the value of which the outbound half of a snapshot is made. Whatever a policy says of a caller is a
//! field here, in the mesh's own words. Two identities are served the same half exactly if their intents are
//! equal, so a right that only one of them has keeps them apart by construction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_types::ids::{ServiceAccountId, ServiceId};
use smc_types::object_ref::ObjectRef;

use crate::access_log::AccessLog;
use crate::connection_settings::ConnectionSettings;
use crate::declared::Declared;
use crate::egress::EgressPorts;
use crate::http_match::HttpMatch;
use crate::retry_policy::RetryPolicy;
use crate::shared::Shared;
use crate::tls_parameters::TlsParameters;
use crate::tracing::Tracing;

/// The services that an identity may call, each with the identities behind it that it may reach there. The
/// set is empty for the root of a split of which it may reach a backend alone.
pub type CallableServices = BTreeMap<ServiceId, BTreeSet<ServiceAccountId>>;

/// The services whose calls do not all go to the service itself, with where they go, by port.
pub type ServiceRoutes = BTreeMap<ServiceId, Shared<BTreeMap<u16, PortRoutes>>>;

/// What services can bear of each caller.
pub type ServiceLimits = BTreeMap<ServiceId, Declared<ConnectionSettings>>;

/// When calls are sent again, by the service that is called.
pub type ServiceRetries = BTreeMap<ServiceId, Declared<RetryPolicy>>;

/// What an identity may call, and where its calls go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutboundIntent {
    /// The services that it may call.
    pub services: Shared<CallableServices>,
    /// Where calls to them go, other than to the service that is called.
    pub routes: Shared<ServiceRoutes>,
    /// What the services that it may call, and those that their splits lead to, can bear of each caller.
    pub connections: Shared<ServiceLimits>,
    /// When its calls to these services are sent again: its own policies.
    pub retries: Shared<ServiceRetries>,
    /// What of outside the mesh it may reach: its own policies. Nothing with `passthrough`, which opens all.
    pub egress: Shared<EgressPorts>,
    /// Whether its calls to addresses that no service has go there as they are.
    pub passthrough: bool,
    /// What of its calls the sidecar logs.
    pub access_log: AccessLog,
    /// Where the sidecar reports what it did with them.
    pub tracing: Option<Declared<Arc<Tracing>>>,
    /// The object for which the sidecar counts the requests among them, as OSM does; `None` means that it
    /// does not.
    pub request_metrics: Option<ObjectRef>,
    /// The TLS with curves that the sidecar offers; `None` means those that it offers anyway.
    pub tls: Option<Declared<Arc<TlsParameters>>>,
}

/// Where the calls to one port of a service go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRoutes {
    /// The routes, tried in this order; never empty, and only the last has no `matches`.
    pub routes: Vec<Route>,
    /// The objects that say so.
    pub declared_by: BTreeSet<ObjectRef>,
}

impl PortRoutes {
    /// The services that any route leads to.
    pub fn backends(&self) -> impl Iterator<Item = &ServiceId> {
        self.routes.iter().flat_map(|route| &route.backends).map(|(service, _)| service)
    }
}

/// The calls that a route takes, and where they go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// It takes requests that match any of these (sorted, not empty); `None` takes everything.
    pub matches: Option<Vec<HttpMatch>>,
    /// Existing services that have the port, with their shares, none of them zero; sorted, never empty. The
    /// service that is called may itself be among them.
    pub backends: Vec<(ServiceId, u32)>,
}
