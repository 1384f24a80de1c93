//! What the services of a namespace share, counted before it is made.
//!
//! Owns which services go without, where they ask for more together than a namespace may have. Those that
//! cost least have theirs first, so that one which costs too much takes nothing from its neighbours. Which
//! ones go without follows from the objects alone.

use std::collections::{BTreeMap, BTreeSet};

use smc_types::ids::ServiceId;

/// What the services of each namespace cost of what they share, `MOST` if no test says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamespaceBudgets<const MOST: u64> {
    most: u64,
    costs: BTreeMap<ServiceId, u64>,
    namespaces: BTreeMap<String, Budget>,
}

/// The budget of one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Budget {
    total: u64,
    by_cost: BTreeSet<(u64, ServiceId)>,
    /// The services that go without.
    cut: BTreeSet<ServiceId>,
}

impl<const MOST: u64> Default for NamespaceBudgets<MOST> {
    fn default() -> Self {
        Self { most: MOST, costs: BTreeMap::new(), namespaces: BTreeMap::new() }
    }
}

impl<const MOST: u64> NamespaceBudgets<MOST> {
    /// Whether the service goes without.
    pub(super) fn is_cut(&self, service: &ServiceId) -> bool {
        self.namespaces.get(service.namespace()).is_some_and(|budget| budget.cut.contains(service))
    }

    /// What a service that goes without would cost; `None` for any other.
    pub(super) fn cost_if_cut(&self, service: &ServiceId) -> Option<u64> {
        self.is_cut(service).then(|| self.costs.get(service).copied().unwrap_or_default())
    }

    /// The most that the services of a namespace cost together.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    #[cfg(test)]
    pub(super) fn of(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// Sets what services cost; `None` for one that is not there. Returns the services that begin, or
    /// cease, to go without, and are there. Those of one change come together: one after the
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

#[cfg(test)]
mod tests {
    use super::*;

    type Budgets = NamespaceBudgets<1_000>;

    fn id(name: &str) -> ServiceId {
        ServiceId::new("shop", name).unwrap()
    }

    #[test]
    fn the_services_that_cost_least_have_theirs_first() {
        let mut budgets = Budgets::of(100);
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
        assert_eq!(budgets, Budgets::of(100));
    }
}
