//! Endpoints (EDS): where the traffic of a service port can go.
//!
//! Owns the shape of a load assignment. Which endpoints there are is the catalog's answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;

use super::proto;
use crate::catalog::{Catalog, Endpoint};
use crate::ids::{ServiceAccountId, ServiceId, WorkloadId};

/// Which endpoints an EDS name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointSet {
    /// The service.
    pub(super) service: ServiceId,
    /// The service's port.
    pub(super) port: u16,
    /// Those of these identities only; `None` means all.
    pub(super) only: Option<Arc<BTreeSet<ServiceAccountId>>>,
}

impl EndpointSet {
    /// The resource under `name`, as the catalog has it now. A service or port that is gone has none.
    pub(super) fn assignment(&self, name: &str, catalog: &Catalog) -> endpoint::ClusterLoadAssignment {
        let port = catalog
            .service(&self.service)
            .and_then(|service| service.ports.iter().find(|port| port.port == self.port));
        let endpoints = port.map_or(&[][..], |port| catalog.endpoints(&self.service, port)).iter();
        let meant = |account| self.only.as_ref().is_none_or(|only| only.contains(account));
        assignment(name, endpoints.filter(|endpoint| meant(&endpoint.service_account)))
    }
}

/// The load assignment of these endpoints. A workload with an address in each family is one host with two
/// addresses, of which Envoy takes the one that answers: it must not get twice the traffic, and a proxy
/// that lacks one of the families must not try that one only. An address that two workloads claim (one of
/// them is gone and not yet forgotten) is there once.
fn assignment<'a>(
    name: &str,
    endpoints: impl Iterator<Item = &'a Endpoint>,
) -> endpoint::ClusterLoadAssignment {
    let mut claimed = BTreeSet::new();
    let mut hosts: BTreeMap<(&WorkloadId, u16), BTreeSet<IpAddr>> = BTreeMap::new();
    for endpoint in endpoints.filter(|endpoint| claimed.insert((endpoint.ip, endpoint.port))) {
        hosts.entry((&endpoint.workload, endpoint.port)).or_default().insert(endpoint.ip);
    }
    let lb_endpoints: Vec<_> = hosts.into_iter().filter_map(|((_, port), ips)| host(port, ips)).collect();
    let localities = if lb_endpoints.is_empty() {
        Vec::new()
    } else {
        vec![endpoint::LocalityLbEndpoints { lb_endpoints, ..endpoint::LocalityLbEndpoints::default() }]
    };
    endpoint::ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints: localities,
        ..endpoint::ClusterLoadAssignment::default()
    }
}

fn host(port: u16, ips: BTreeSet<IpAddr>) -> Option<endpoint::LbEndpoint> {
    let mut addresses = ips.into_iter().map(|ip| proto::address(ip, port));
    Some(endpoint::LbEndpoint {
        host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint::Endpoint {
            address: Some(addresses.next()?),
            additional_addresses: addresses
                .map(|address| endpoint::endpoint::AdditionalAddress { address: Some(address) })
                .collect(),
            ..endpoint::Endpoint::default()
        })),
        ..endpoint::LbEndpoint::default()
    })
}
