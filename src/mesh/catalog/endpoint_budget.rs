//! How many endpoints the services of a namespace may have together.
//!
//! Owns what a service costs of them. Endpoints are a product of workloads, services and ports, so that a
//! tenant can ask for millions in a few hundred kilobytes.

use std::collections::{BTreeMap, BTreeSet};

use super::Catalog;
use super::namespace_budgets::NamespaceBudgets;
use smc_model::topology::Service;

/// Endpoints of the services of one namespace. Kubernetes is tested with 3,000 pods in a namespace: this is
/// for that many behind ten services of four ports each. An endpoint takes some 250 bytes.
const MAX_ENDPOINTS: u64 = 131_072;

/// What endpoints each service may have.
pub(super) type EndpointBudgets = NamespaceBudgets<MAX_ENDPOINTS>;

impl Catalog {
    /// The endpoints that a service has, at most.
    pub(super) fn endpoint_cost(&self, service: &Service) -> u64 {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let selected = self.index.selected.get(&service.id).map_or(0, BTreeSet::len);
        let mut cost = count(selected).saturating_mul(count(service.ports.len()));
        if !self.index.slices_of.contains_key(&service.id) {
            return cost;
        }
        let mut named: BTreeMap<_, usize> = BTreeMap::new();
        for port in &service.ports {
            *named.entry(&port.name).or_default() += 1;
        }
        for slice in self.slices_of(&service.id) {
            let ports: usize = slice.ports.iter().filter_map(|port| named.get(&port.name)).sum();
            let addresses: usize = slice.endpoints.iter().map(|endpoint| endpoint.addresses.len()).sum();
            cost = cost.saturating_add(count(ports).saturating_mul(count(addresses)));
        }
        cost
    }
}
