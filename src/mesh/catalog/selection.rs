//! Which pods are behind which services by their labels, and which machines by name.
//!
//! Owns the pairs of a service and a workload, and how many of them the services of a namespace have
//! together. Pairs are a product of services and pods, so that a tenant can ask for millions in a few
//! megabytes. They are counted before they are made, without a look at the pods: a selector costs as many as
//! have the rarest of its labels. A machine names at most 32 services, so that its pairs need no budget.

use std::collections::BTreeSet;

use super::Catalog;
use super::backends::Source;
use super::index::selects;
use super::namespace_budgets::NamespaceBudgets;
use smc_model::topology::{Service, Workload};
use smc_types::ids::{ServiceId, WorkloadId};

/// Pairs of the services and pods of one namespace. Kubernetes is tested with 3,000 pods in a namespace: this
/// is for that many behind 21 services each. A pair takes some 4 microseconds to make, and some 500 bytes.
const MAX_SELECTED: u64 = 65_536;

/// What pods each service may select.
pub(super) type SelectionBudgets = NamespaceBudgets<MAX_SELECTED>;

impl Catalog {
    /// Brings up to date what services select, as the first step of [`Self::settle`].
    pub(super) fn select(&mut self) {
        let mut reselecting = std::mem::take(&mut self.pending.reselecting);
        let relabelled = std::mem::take(&mut self.pending.relabelled);
        let labels = std::mem::take(&mut self.pending.labels);
        let recounted = self.index.services_of_labels(&labels).chain(&reselecting);
        let recounted: BTreeSet<_> = recounted.cloned().collect();
        let cost = |id: &ServiceId| self.services.get(id).map(|service| self.selection_cost(service));
        let costs = recounted.iter().map(|id| (id.clone(), cost(id))).collect();
        let turned = self.index.selection_budgets.set(costs);
        for id in recounted.union(&turned) {
            self.file_selector(id);
        }
        self.touch_all(turned.iter().cloned());
        reselecting.extend(turned);
        for id in &reselecting {
            self.select_workloads_of(id);
        }
        for id in &relabelled {
            let was = self.index.selecting.get(id).cloned().unwrap_or_default();
            let is = self.workloads.get(id).map(|workload| self.services_selecting(workload));
            let is = is.unwrap_or_default();
            for service in was.symmetric_difference(&is) {
                self.touch(service, BTreeSet::from([Source::Workload(id.clone())]));
                self.index.set_selected(service, id, is.contains(service));
            }
        }
    }

    /// How many pods the selector of a service may match.
    fn selection_cost(&self, service: &Service) -> u64 {
        let rarest = self.index.rarest_label(service.id.namespace(), &service.selector);
        rarest.map_or(0, |(count, _)| u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Files a service under the rarest label of its selector, if it selects pods.
    fn file_selector(&mut self, id: &ServiceId) {
        let service = self.services.get(id).filter(|_| !self.index.selection_budgets.is_cut(id));
        let label = service.and_then(|service| self.index.rarest_label(id.namespace(), &service.selector));
        self.index.file_selector(id, label.map(|(_, label)| label));
    }

    /// The services whose selector matches the pod, or that the machine names.
    fn services_selecting(&self, workload: &Workload) -> BTreeSet<ServiceId> {
        if workload.id.is_machine() {
            let named = workload.services.iter().filter(|id| self.services.contains_key(id));
            return named.cloned().collect();
        }
        let candidates = self.index.services_filed_under(workload.id.namespace(), &workload.labels);
        let matching = candidates.filter(|id| {
            self.services.get(id).is_some_and(|service| selects(&service.selector, &workload.labels))
        });
        matching.cloned().collect()
    }

    /// Selects the pods and machines of a service whose selector is new, or that is gone.
    fn select_workloads_of(&mut self, id: &ServiceId) {
        let was = self.index.selected.get(id).cloned().unwrap_or_default();
        let service = self.services.get(id);
        let matches = |pod: &&WorkloadId| {
            let pair = self.workloads.get(pod).zip(service);
            pair.is_some_and(|(workload, service)| selects(&service.selector, &workload.labels))
        };
        let mut is: BTreeSet<WorkloadId> = self.index.pods_filed_under(id).filter(matches).cloned().collect();
        if service.is_some() {
            is.extend(self.index.naming.get(id).into_iter().flatten().cloned());
        }
        for pod in was.symmetric_difference(&is) {
            self.index.set_selected(id, pod, is.contains(pod));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog::fixtures::{namespace, pod, port, service, service_id};
    use crate::catalog::{Catalog, Object, SourceEvent};
    use smc_model::topology::{Service, Workload};
    use smc_types::object_ref::ObjectRef;
    use smc_types::proxy_class::AppProtocol;

    fn behind(catalog: &Catalog) -> Vec<usize> {
        ["shop/large", "shop/small"].map(|id| catalog.workloads_behind(&service_id(id)).count()).to_vec()
    }

    #[test]
    fn a_selector_of_more_pods_than_a_namespace_may_select_matches_none() {
        let http = [port(80, AppProtocol::Http)];
        let mut catalog = Catalog::with_budgets(100, 4).and([
            namespace("shop"),
            Object::from(service("shop/large", "web", &http)),
            Object::from(pod("shop/p1", "shop/a", "web", "10.0.0.1")),
            Object::from(pod("shop/p2", "shop/a", "web", "10.0.0.2")),
            Object::from(pod("shop/p3", "shop/a", "web", "10.0.0.3")),
        ]);
        assert_eq!(behind(&catalog), [3, 0]);
        let mut small = service("shop/small", "web", &http);
        small.selector.insert("version".to_owned(), "1".to_owned());
        catalog.declare(Object::from(small.clone()));
        assert_eq!(behind(&catalog), [3, 0], "a selector costs as many as have the rarest of its labels");
        let labelled = |name: &str| -> Workload {
            let mut pod = pod(name, "shop/a", "web", "10.0.0.4");
            pod.labels.insert("version".to_owned(), "1".to_owned());
            pod
        };
        catalog.declare(Object::from(labelled("shop/p3")));
        assert_eq!(behind(&catalog), [3, 1]);
        catalog.declare(Object::from(labelled("shop/p4")));
        assert_eq!(behind(&catalog), [0, 2], "4 and 2 are too many: the one that costs least has its pods");
        let problems: Vec<_> = catalog.problems().into_iter().map(|problem| problem.to_string()).collect();
        assert!(problems.iter().any(|problem| problem.contains("matches no pod")), "{problems:?}");
        let gone: ObjectRef = ObjectRef::from(&small.id);
        catalog.apply(SourceEvent::Remove(gone));
        assert_eq!(behind(&catalog), [4, 0]);
        catalog.declare(Object::from(Service { selector: [].into(), ..small }));
        assert_eq!(behind(&catalog), [4, 0]);
    }
}
