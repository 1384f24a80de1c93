//! What of outside the mesh may reach a workload.
//!
//! Owns the values of which the filter chains of an ingress are made. A grant always says from where, or by
//! whom, or both: no value opens a port to anybody without naming addresses.

use std::collections::BTreeSet;

use ipnet::IpNet;
use smc_types::ids::NamespacedName;
use smc_types::object_ref::ObjectRef;
use smc_types::proxy_class::AppProtocol;

use crate::inbound_intent::HttpAccess;

/// The way from outside of the mesh to one inbound port, by one transport. It is there, and is the same but
/// for its grants, as long as IngressBackends name the port: so no listener changes, and no connection ends,
/// where the sources of one come and go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IngressChain {
    /// The port in the pod.
    pub port: u16,
    /// What connections begin with. A port has one chain for each at most.
    pub transport: IngressTransport,
    /// What the application speaks there: one of the protocols over HTTP.
    pub protocol: AppProtocol,
    /// The DNS names of which certificates of clients are wanted, by any IngressBackend.
    pub principals: BTreeSet<String>,
    /// Whether an IngressBackend does without a certificate. Otherwise each client has to show one.
    pub anonymous: bool,
    /// What is allowed on these connections. If empty, all is denied.
    pub grants: BTreeSet<IngressGrant>,
}

/// What connections begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IngressTransport {
    /// Anything but TLS.
    ClearText,
    /// TLS with any name as SNI but those of the services behind the port, or with none.
    Tls,
}

/// What one IngressBackend allows on connections of a chain: the requests in `http` that come from `sources`
/// and, over TLS, by one of the names. All of these must hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IngressGrant {
    /// The IngressBackend.
    pub backend: NamespacedName,
    /// From where, or by whom.
    pub sources: IngressGrantees,
    /// The names that a client may have asked for by SNI, also `*.example.com`; `None` means any, and none.
    /// Never empty.
    pub server_names: Option<BTreeSet<String>>,
    /// The requests that are allowed.
    pub http: HttpAccess,
    /// The existing HTTPRouteGroups that the IngressBackend names.
    pub routes: BTreeSet<ObjectRef>,
}

/// From where a request may come, or by whom. No set is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum IngressGrantees {
    /// From one of these addresses, with any certificate or none.
    Addresses(BTreeSet<IpNet>),
    /// With a certificate of the mesh's CA for one of these DNS names, and from one of these addresses, if
    /// there are any.
    Principals(BTreeSet<String>, Option<BTreeSet<IpNet>>),
}
