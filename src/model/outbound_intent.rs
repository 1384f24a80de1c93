//! What an identity may call, and where its calls go.
//!
//! Owns the value of which the outbound half of a snapshot is made. Whatever a policy says of a caller is a
//! field here, in the mesh's own words. Two identities are served the same half exactly if their intents are
//! equal, so a right that only one of them has keeps them apart by construction.

use std::collections::{BTreeMap, BTreeSet};

use smc_types::ids::{ServiceAccountId, ServiceId};
use smc_types::object_ref::ObjectRef;

use crate::http_match::HttpMatch;
use crate::shared::Shared;
use crate::sidecar_settings::AccessLog;

/// The services that an identity may call, each with the identities behind it that it may reach there. The
/// set is empty for the root of a split of which it may reach a backend alone.
pub type CallableServices = BTreeMap<ServiceId, BTreeSet<ServiceAccountId>>;

/// The services whose calls do not all go to the service itself, with where they go, by port.
pub type ServiceRoutes = BTreeMap<ServiceId, Shared<BTreeMap<u16, PortRoutes>>>;

/// What an identity may call, and where its calls go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutboundIntent {
    /// The services that it may call.
    pub services: Shared<CallableServices>,
    /// Where calls to them go, other than to the service that is called.
    pub routes: Shared<ServiceRoutes>,
    /// Whether its calls to addresses that no service has go there as they are.
    pub passthrough: bool,
    /// What of its calls the sidecar logs.
    pub access_log: AccessLog,
}

/// Where the calls to one port of a service go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRoutes {
    /// The routes, tried in this order; never empty, and only the last has no `matches`.
    pub routes: Vec<Route>,
    /// The objects that say so.
    pub declared_by: BTreeSet<ObjectRef>,
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
