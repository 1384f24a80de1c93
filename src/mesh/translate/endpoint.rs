//! Endpoints (EDS): the addresses behind a service port.
//!
//! Owns the shape of a load assignment. The catalog decides which endpoints there are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;

use super::proto;
use crate::catalog::{Endpoint, Topology};
use smc_types::ids::{ServiceAccountId, ServiceId, WorkloadId};

/// The endpoints that an EDS name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointSet {
    pub(super) service: ServiceId,
    /// The service's port.
    pub(super) port: u16,
    /// The identities that they are limited to; `None` means all.
    pub(super) only: Option<Arc<BTreeSet<ServiceAccountId>>>,
}

impl EndpointSet {
    /// The load assignment `name`, of what runs now. It is empty if the service or port
    /// does not exist.
    pub(super) fn assignment(&self, name: &str, topology: Topology<'_>) -> endpoint::ClusterLoadAssignment {
        let port = topology
            .service(&self.service)
            .and_then(|service| service.ports.iter().find(|port| port.port == self.port));
        let endpoints = port.into_iter().flat_map(|port| topology.endpoints(&self.service, port));
        let included = |account| self.only.as_ref().is_none_or(|only| only.contains(account));
        assignment(name, endpoints.filter(|endpoint| included(&endpoint.service_account)))
    }
}

/// The load assignment of these endpoints. A workload with an address of each family is one host
/// with two addresses, of which Envoy uses the one that answers: the workload must not get twice
/// the traffic, and a proxy without one of the families must not try only that one. An address of
/// two workloads (one is gone and not yet removed) is listed once.
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
