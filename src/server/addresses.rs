//! The addresses of the replicas, as bootstraps and the controllers' certificates contain them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use smc_authority::pki::CONTROLLER_IDENTITY;
use smc_issuing::ControllerNames;
use smc_types::host_port::{Host, HostPort};
use smc_types::ids::ReplicaId;

use super::StartError;

/// The addresses that bootstraps contain: the configured ones, or the one that this replica listens on.
pub(super) fn addresses_for_proxies(
    me: ReplicaId,
    replicas: BTreeMap<ReplicaId, HostPort>,
    given: Option<HostPort>,
    bound: SocketAddr,
) -> Result<BTreeMap<ReplicaId, HostPort>, StartError> {
    let alone = match given {
        _ if !replicas.is_empty() => return Ok(replicas),
        Some(address) => address,
        None if bound.ip().is_unspecified() => return Err(StartError::NoAddress),
        None => HostPort { host: Host::Ip(bound.ip()), port: bound.port() },
    };
    Ok(BTreeMap::from([(me, alone)]))
}

/// The names in a controller's certificate: the fixed name that bootstraps verify, and the hosts of the
/// replicas.
pub(super) fn certificate_names<'a>(controllers: impl Iterator<Item = &'a HostPort>) -> ControllerNames {
    let mut dns = BTreeSet::new();
    let mut ips = BTreeSet::new();
    for controller in controllers {
        match &controller.host {
            Host::Name(name) if name == CONTROLLER_IDENTITY => {}
            Host::Name(name) => drop(dns.insert(name.clone())),
            Host::Ip(ip) => drop(ips.insert(*ip)),
        }
    }
    let dns = std::iter::once(CONTROLLER_IDENTITY.to_owned()).chain(dns).collect();
    ControllerNames { dns, ips: ips.into_iter().collect() }
}
