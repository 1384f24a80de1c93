//! How many endpoints the services of a namespace may have together.
//!
//! Owns the budget, what a service costs of it, and which services go without. Endpoints are a product of
//! workloads, services and ports, so that a tenant can ask for millions in a few hundred kilobytes: they are
//! counted before they are made. The services that cost least have their endpoints first, so that one which
//! costs too much takes nothing from its neighbours. Which ones go without follows from the objects alone.

use std::collections::{BTreeMap, BTreeSet};

use super::Catalog;
use smc_model::topology::Service;
use smc_types::ids::ServiceId;

/// Endpoints of the services of one namespace. Kubernetes is tested with 3,000 pods in a namespace: this is
/// for that many behind ten services of four ports each. An endpoint takes some 250 bytes.
const MAX_ENDPOINTS: u64 = 131_072;

/// What the services of each namespace cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointBudgets {
    most: u64,
    costs: BTreeMap<ServiceId, u64>,
    namespaces: BTreeMap<String, Budget>,
}

/// The budget of one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Budget {
    total: u64,
    by_cost: BTreeSet<(u64, ServiceId)>,
    /// The services without endpoints.
    cut: BTreeSet<ServiceId>,
}

impl Default for EndpointBudgets {
    fn default() -> Self {
        Self { most: MAX_ENDPOINTS, costs: BTreeMap::new(), namespaces: BTreeMap::new() }
    }
}

impl EndpointBudgets {
    /// Whether the service goes without endpoints.
    pub(super) fn is_cut(&self, service: &ServiceId) -> bool {
        self.namespaces.get(service.namespace()).is_some_and(|budget| budget.cut.contains(service))
    }

    /// What a service without endpoints would cost; `None` for one that has them.
    pub(super) fn cost_if_cut(&self, service: &ServiceId) -> Option<u64> {
        self.is_cut(service).then(|| self.costs.get(service).copied().unwrap_or_default())
    }

    /// The most endpoints of a namespace.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    #[cfg(test)]
    pub(super) fn of(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// Sets what services cost; `None` for one that is not there. Returns the services that begin, or
    /// cease, to go without endpoints, and are there. Those of one change come together: one after the
    /// other they would take turns at the end of the order.
    pub(super) fn set(&mut self, costs: Vec<(ServiceId, Option<u64>)>) -> BTreeSet<ServiceId> {
        let mut namespaces = BTreeSet::new();
        for (service, cost) in costs {
            let old = match cost {
                Some(cost) => self.costs.insert(service.clone(), cost),
                None => self.costs.remove(&service),
            };
            if old == cost {
                continue;
            }
            let budget = self.namespaces.entry(service.namespace().to_owned()).or_default();
            budget.total = budget.total.saturating_sub(old.unwrap_or(0)).saturating_add(cost.unwrap_or(0));
            if let Some(old) = old {
                budget.by_cost.remove(&(old, service.clone()));
            }
            if let Some(cost) = cost {
                budget.by_cost.insert((cost, service.clone()));
            }
            namespaces.insert(service.namespace().to_owned());
        }
        let mut turned = BTreeSet::new();
        for namespace in namespaces {
            let Some(budget) = self.namespaces.get_mut(&namespace) else { continue };
            let cut = budget.beyond(self.most);
            turned.extend(budget.cut.symmetric_difference(&cut).cloned());
            budget.cut = cut;
            if budget.by_cost.is_empty() {
                self.namespaces.remove(&namespace);
            }
        }
        turned.retain(|service| self.costs.contains_key(service));
        turned
    }
}

impl Budget {
    /// The services that are left when those that cost least have had theirs.
    fn beyond(&self, most: u64) -> BTreeSet<ServiceId> {
        if self.total <= most {
            return BTreeSet::new();
        }
        let mut spent = 0_u64;
        let beyond = self.by_cost.iter().skip_while(|(cost, _)| {
            spent = spent.saturating_add(*cost);
            spent <= most
        });
        beyond.map(|(_, service)| service.clone()).collect()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ServiceId {
        ServiceId::new("shop", name).unwrap()
    }

    #[test]
    fn the_services_that_cost_least_have_their_endpoints_first() {
        let mut budgets = EndpointBudgets::of(100);
        let mut set = |name: &str, cost: Option<u64>| -> Vec<String> {
            budgets.set(vec![(id(name), cost)]).iter().map(|id| id.as_name().name().to_owned()).collect()
        };
        assert_eq!(set("a", Some(90)), Vec::<String>::new());
        assert_eq!(set("b", Some(20)), ["a"], "the one that costs most goes without");
        assert_eq!(set("c", Some(70)), Vec::<String>::new(), "90 are spent on b and c");
        assert_eq!(set("c", Some(80)), Vec::<String>::new());
        assert_eq!(set("c", Some(81)), ["c"]);
        assert_eq!(set("c", None), Vec::<String>::new(), "a still goes without");
        assert_eq!(budgets.cost_if_cut(&id("a")), Some(90));
        budgets.set(vec![(id("b"), None)]);
        assert!(!budgets.is_cut(&id("a")));
        budgets.set(vec![(id("a"), None)]);
        assert_eq!(budgets, EndpointBudgets::of(100));
    }
}
