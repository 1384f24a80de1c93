//! What proxies are served by: their class.
//!
//! Owns the key under which proxies share a snapshot. Proxies of one class get the same resources.

use std::collections::BTreeSet;

use crate::api::core::AppProtocol;
use smc_types::ids::{ServiceAccountId, ServiceId};

/// The properties that decide what a proxy is served: its identity, the ports that services target, and the
/// address families of its pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProxyClass {
    /// The identity.
    pub account: ServiceAccountId,
    /// The inbound ports, sorted.
    pub inbound: Vec<InboundPort>,
    /// Whether the pods have IPv4 addresses.
    pub ipv4: bool,
    /// Whether the pods have IPv6 addresses.
    pub ipv6: bool,
}

/// One port of a workload that services target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InboundPort {
    /// The port in the pod.
    pub port: u16,
    /// The protocol that the services declare for it.
    pub protocol: AppProtocol,
    /// The services that target it with that protocol.
    pub services: BTreeSet<ServiceId>,
}
