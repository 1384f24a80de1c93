//! What follows from the objects, cached so that an event looks only at what it affects.
//!
//! Owns the maps from each object to those that depend on it, and the cached backends and sidecars. It is
//! a function of the objects: the property tests check the incremental upkeep against a fresh catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::backends::Backends;
use super::endpoint_budget::EndpointBudgets;
use super::selection::SelectionBudgets;
use crate::policy::EgressSurvey;
use smc_api::osm::{Egress, IngressBackend, Retry};
use smc_api::smi::{RuleKind, TrafficSplit, TrafficTarget};
use smc_model::topology::{EndpointSlice, Service, Workload};
use smc_types::ids::{NamespacedName, ProxyName, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::proxy_class::{InboundPort, ProxyClass};

/// One label that services of one namespace select by: namespace, key, value.
pub(super) type Label = (String, String, String);

/// The labels of an object, or those that a selector asks for.
pub(super) type Labels = BTreeMap<String, String>;

/// What of a workload says whether an address in an EndpointSlice may mean it, so that of thousands at one
/// address none has to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    pub(super) machine: bool,
    pub(super) injection: Option<bool>,
    pub(super) ready: bool,
}

impl Standing {
    /// The least one.
    const FIRST: Self = Self { machine: false, injection: None, ready: false };

    fn of(workload: &Workload) -> Self {
        let (machine, ready) = (workload.id.is_machine(), workload.readiness.is_ready());
        Self { machine, injection: workload.injection, ready }
    }
}

/// A sidecar in the mesh: its name and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sidecar {
    pub(super) proxy: ProxyName,
    pub(super) class: Arc<ProxyClass>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Index {
    /// Workloads by namespace, and by each of their labels.
    pub(super) workloads_in: BTreeMap<String, BTreeSet<WorkloadId>>,
    labelled: BTreeMap<Label, BTreeSet<WorkloadId>>,
    /// Services by each label of their selector.
    by_label: BTreeMap<Label, BTreeSet<ServiceId>>,
    /// The services that select pods, by the rarest label of their selector: a pod is compared only with
    /// those under one of its labels. And the label that each is under.
    by_rarest: BTreeMap<Label, BTreeSet<ServiceId>>,
    rarest: BTreeMap<ServiceId, Label>,
    /// Machines by the services that they name, which may not exist.
    pub(super) naming: BTreeMap<ServiceId, BTreeSet<WorkloadId>>,
    /// The pods each service's selector matches, and the machines that name the service, in the mesh or not.
    /// A service that is over the budget of its namespace ([`super::selection`]) selects no pod.
    pub(super) selected: BTreeMap<ServiceId, BTreeSet<WorkloadId>>,
    /// The services whose selector matches each pod, and those that a machine names.
    pub(super) selecting: BTreeMap<WorkloadId, BTreeSet<ServiceId>>,
    /// EndpointSlices by service.
    pub(super) slices_of: BTreeMap<ServiceId, BTreeSet<NamespacedName>>,
    /// Slices by the addresses they hold, per namespace.
    slices_at: BTreeMap<(String, IpAddr), BTreeSet<NamespacedName>>,
    /// Workloads by address, per namespace and what says whether a slice may mean them.
    pub(super) at_address: BTreeMap<(IpAddr, String, Standing), BTreeSet<WorkloadId>>,
    /// Services by virtual address.
    pub(super) services_at: BTreeMap<IpAddr, BTreeSet<ServiceId>>,

    /// The backends of each service; one entry per service.
    pub(super) backends: BTreeMap<ServiceId, Backends>,
    /// What pods each service may select.
    pub(super) selection_budgets: SelectionBudgets,
    /// What endpoints each service may have.
    pub(super) endpoint_budgets: EndpointBudgets,
    /// The services that each in-mesh workload is behind.
    pub(super) services_of: BTreeMap<WorkloadId, BTreeSet<ServiceId>>,
    /// The services that workloads of each account are behind.
    pub(super) services_behind: BTreeMap<ServiceAccountId, BTreeSet<ServiceId>>,
    /// The sidecar of each in-mesh workload.
    pub(super) sidecars: BTreeMap<WorkloadId, Sidecar>,
    /// How many sidecars each class has, per account. No account is here without a class.
    pub(super) classes: BTreeMap<ServiceAccountId, BTreeMap<Arc<ProxyClass>, usize>>,
    /// The classes in which a port that the service targets has another protocol for another service, too.
    pub(super) conflicts: BTreeMap<ServiceId, BTreeSet<Arc<ProxyClass>>>,
    /// The ExtensionServices whose host is each service.
    pub(super) extended_at: BTreeMap<ServiceId, BTreeSet<NamespacedName>>,
    /// The classes whose sidecars log by each Telemetry.
    pub(super) logging: BTreeMap<NamespacedName, BTreeSet<Arc<ProxyClass>>>,
    /// The accounts with a class, by namespace.
    pub(super) accounts_in: BTreeMap<String, BTreeSet<ServiceAccountId>>,
    /// The namespaces whose workloads accept every identity of the mesh.
    pub(super) permissive: BTreeSet<String>,
    /// In-mesh workloads by the sidecar they claim. More than one is a conflict.
    pub(super) by_proxy: BTreeMap<ProxyName, BTreeSet<WorkloadId>>,

    /// Targets by destination and by source.
    pub(super) targets_to: BTreeMap<ServiceAccountId, BTreeSet<NamespacedName>>,
    pub(super) targets_from: BTreeMap<ServiceAccountId, BTreeSet<NamespacedName>>,
    /// Targets by the routes their rules refer to.
    pub(super) targets_using: BTreeMap<(RuleKind, NamespacedName), BTreeSet<NamespacedName>>,
    /// Splits by root, by leaf, and by the HTTPRouteGroups they refer to; and the roots by namespace.
    pub(super) splits_of: BTreeMap<ServiceId, BTreeSet<NamespacedName>>,
    pub(super) roots_in: BTreeMap<String, BTreeSet<ServiceId>>,
    pub(super) splits_into: BTreeMap<ServiceId, BTreeSet<NamespacedName>>,
    pub(super) splits_using: BTreeMap<NamespacedName, BTreeSet<NamespacedName>>,

    /// IngressBackends by the services that they open, by those that they name as sources, and by the
    /// HTTPRouteGroups they refer to.
    pub(super) ingress_to: BTreeMap<ServiceId, BTreeSet<NamespacedName>>,
    pub(super) ingress_from: BTreeMap<ServiceId, BTreeSet<NamespacedName>>,
    pub(super) ingress_using: BTreeMap<NamespacedName, BTreeSet<NamespacedName>>,
    /// Egresses by their sources, which are also by namespace, by the HTTPRouteGroups they refer to, and by
    /// the services that their hosts spell.
    pub(super) egress_of: BTreeMap<ServiceAccountId, BTreeSet<NamespacedName>>,
    pub(super) egress_sources_in: BTreeMap<String, BTreeSet<ServiceAccountId>>,
    pub(super) egress_using: BTreeMap<NamespacedName, BTreeSet<NamespacedName>>,
    pub(super) egress_naming: BTreeMap<NamespacedName, BTreeSet<NamespacedName>>,
    /// How far the Egresses of sources have effect, where that is not all the way.
    pub(super) egress_surveys: BTreeMap<ServiceAccountId, EgressSurvey>,
    /// Retries by their source and the services that they name, and by these services.
    pub(super) retries_of: BTreeMap<ServiceAccountId, BTreeMap<ServiceId, BTreeSet<NamespacedName>>>,
    pub(super) retries_to: BTreeMap<ServiceId, BTreeSet<NamespacedName>>,
    /// UpstreamTrafficSettings by the service that they are about.
    pub(super) settings_of: BTreeMap<ServiceId, BTreeSet<NamespacedName>>,

    /// The addresses of what stands behind each service that is named as a source, as many as are heeded.
    pub(super) source_addresses: BTreeMap<ServiceId, BTreeSet<IpAddr>>,
}

/// The labels of a pod, or of a selector, in a namespace.
fn labels(namespace: &str, labels: &Labels) -> impl Iterator<Item = Label> {
    labels.iter().map(move |(key, value)| (namespace.to_owned(), key.clone(), value.clone()))
}

/// The ports of a class that services declare with different protocols, each beside another.
pub(super) fn conflicts(class: &ProxyClass) -> impl Iterator<Item = (&InboundPort, &InboundPort)> {
    let neighbours = class.inbound.iter().zip(class.inbound.iter().skip(1));
    let same_port = neighbours.filter(|(one, other)| one.port == other.port);
    same_port.flat_map(|(one, other)| [(one, other), (other, one)])
}

/// Files a class under the Telemetry that its sidecars log by, or takes it out.
fn file_logging(
    logging: &mut BTreeMap<NamespacedName, BTreeSet<Arc<ProxyClass>>>,
    class: &Arc<ProxyClass>,
    present: bool,
) {
    if let Some(telemetry) = &class.telemetry {
        set(logging, telemetry.clone(), Arc::clone(class), present);
    }
}

/// Adds or removes a class under the services with a port that it has twice.
fn file_conflicts(
    by_service: &mut BTreeMap<ServiceId, BTreeSet<Arc<ProxyClass>>>,
    class: &Arc<ProxyClass>,
    present: bool,
) {
    for service in conflicts(class).flat_map(|(own, _)| &own.services) {
        set(by_service, service.clone(), Arc::clone(class), present);
    }
}

/// Adds or removes `value` under `key`, leaving no empty set behind.
pub(super) fn set<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: K, value: V, present: bool) {
    if present {
        map.entry(key).or_default().insert(value);
    } else if let Some(values) = map.get_mut(&key) {
        values.remove(&value);
        if values.is_empty() {
            map.remove(&key);
        }
    }
}

/// Whether `labels` have all labels of `selector`. The empty selector matches nothing: the endpoints of such
/// a service come from EndpointSlices alone.
pub(super) fn selects(selector: &Labels, labels: &Labels) -> bool {
    !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Index {
    /// Adds or removes a workload under its namespace, labels, services and addresses.
    pub(super) fn file_workload(&mut self, workload: &Workload, present: bool) {
        let namespace = workload.id.namespace();
        set(&mut self.workloads_in, namespace.to_owned(), workload.id.clone(), present);
        for label in labels(namespace, &workload.labels) {
            set(&mut self.labelled, label, workload.id.clone(), present);
        }
        for service in &workload.services {
            set(&mut self.naming, service.clone(), workload.id.clone(), present);
        }
        for &ip in &workload.ips {
            let key = (ip, namespace.to_owned(), Standing::of(workload));
            set(&mut self.at_address, key, workload.id.clone(), present);
        }
    }

    /// Adds or removes a service under the labels of its selector and its virtual addresses.
    pub(super) fn file_service(&mut self, service: &Service, present: bool) {
        for &ip in service.cluster_ips.iter().filter(|_| !service.headless) {
            set(&mut self.services_at, ip, service.id.clone(), present);
        }
        for label in labels(service.id.namespace(), &service.selector) {
            set(&mut self.by_label, label, service.id.clone(), present);
        }
    }

    /// Adds or removes a slice under its service and addresses.
    pub(super) fn file_slice(&mut self, slice: &EndpointSlice, present: bool) {
        // A slice belongs to a service of its own namespace: the label that ties them holds a bare name.
        if slice.service.namespace() == slice.id.namespace() {
            set(&mut self.slices_of, slice.service.clone(), slice.id.clone(), present);
        }
        for &ip in slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses) {
            set(&mut self.slices_at, (slice.id.namespace().to_owned(), ip), slice.id.clone(), present);
        }
    }

    /// Adds or removes a target under its destination, sources and routes.
    pub(super) fn file_target(&mut self, target: &TrafficTarget, present: bool) {
        set(&mut self.targets_to, target.destination.clone(), target.id.clone(), present);
        for source in &target.sources {
            set(&mut self.targets_from, source.clone(), target.id.clone(), present);
        }
        for rule in &target.rules {
            set(&mut self.targets_using, (rule.kind, rule.name.clone()), target.id.clone(), present);
        }
    }

    /// Adds or removes a split under its root, leaves and HTTPRouteGroups.
    pub(super) fn file_split(&mut self, split: &TrafficSplit, present: bool) {
        set(&mut self.splits_of, split.root.clone(), split.id.clone(), present);
        let is_root = self.splits_of.contains_key(&split.root);
        set(&mut self.roots_in, split.root.namespace().to_owned(), split.root.clone(), is_root);
        for backend in &split.backends {
            set(&mut self.splits_into, backend.service.clone(), split.id.clone(), present);
        }
        for group in &split.matches {
            set(&mut self.splits_using, group.clone(), split.id.clone(), present);
        }
    }

    /// Adds or removes a Retry under its source and one of the services that it names.
    pub(super) fn file_retry(&mut self, retry: &Retry, service: &ServiceId, present: bool) {
        set(&mut self.retries_to, service.clone(), retry.id.clone(), present);
        let of_source = self.retries_of.entry(retry.source.clone()).or_default();
        set(of_source, service.clone(), retry.id.clone(), present);
        if of_source.is_empty() {
            self.retries_of.remove(&retry.source);
        }
    }

    /// Adds or removes an Egress under its sources, HTTPRouteGroups and the services that its hosts spell.
    pub(super) fn file_egress(&mut self, egress: &Egress, present: bool) {
        for source in &egress.sources {
            set(&mut self.egress_of, source.clone(), egress.id.clone(), present);
            let is_source = self.egress_of.contains_key(source);
            set(&mut self.egress_sources_in, source.namespace().to_owned(), source.clone(), is_source);
        }
        for group in egress.matches.iter().flatten() {
            set(&mut self.egress_using, group.clone(), egress.id.clone(), present);
        }
        for (_, service) in egress.resolved_services() {
            set(&mut self.egress_naming, service, egress.id.clone(), present);
        }
    }

    /// Adds or removes an IngressBackend under its backends, sources and HTTPRouteGroups.
    pub(super) fn file_ingress_backend(&mut self, object: &IngressBackend, present: bool) {
        for opened in &object.backends {
            set(&mut self.ingress_to, opened.service.clone(), object.id.clone(), present);
        }
        for service in object.sources.addresses.iter().flat_map(|addresses| &addresses.services) {
            set(&mut self.ingress_from, service.clone(), object.id.clone(), present);
        }
        for group in object.matches.iter().flatten() {
            set(&mut self.ingress_using, group.clone(), object.id.clone(), present);
        }
    }

    /// Records whether a service selects a workload.
    pub(super) fn set_selected(&mut self, service: &ServiceId, workload: &WorkloadId, selected: bool) {
        set(&mut self.selected, service.clone(), workload.clone(), selected);
        set(&mut self.selecting, workload.clone(), service.clone(), selected);
    }

    /// The rarest label of a selector, the first of those that are equally rare, and how many have it.
    pub(super) fn rarest_label(&self, namespace: &str, selector: &Labels) -> Option<(usize, Label)> {
        let counted = |label: Label| (self.labelled.get(&label).map_or(0, BTreeSet::len), label);
        labels(namespace, selector).map(counted).min()
    }

    /// Puts a service under the rarest label of its selector; under none, if it selects no pods.
    pub(super) fn file_selector(&mut self, service: &ServiceId, label: Option<Label>) {
        let was = self.rarest.get(service);
        if was == label.as_ref() {
            return;
        }
        if let Some(was) = was.cloned() {
            set(&mut self.by_rarest, was, service.clone(), false);
        }
        match label {
            Some(label) => {
                set(&mut self.by_rarest, label.clone(), service.clone(), true);
                self.rarest.insert(service.clone(), label);
            }
            None => {
                self.rarest.remove(service);
            }
        }
    }

    /// The services whose selector may match a pod with these labels.
    pub(super) fn services_filed_under(
        &self,
        namespace: &str,
        of_pod: &Labels,
    ) -> impl Iterator<Item = &ServiceId> {
        labels(namespace, of_pod).filter_map(|label| self.by_rarest.get(&label)).flatten()
    }

    /// The services that have one of these labels in their selector.
    pub(super) fn services_of_labels(&self, labels: &BTreeSet<Label>) -> impl Iterator<Item = &ServiceId> {
        labels.iter().filter_map(|label| self.by_label.get(label)).flatten()
    }

    /// These labels, as far as they are in the selector of a service.
    pub(super) fn labels_selected_by(&self, namespace: &str, of_pod: &Labels) -> impl Iterator<Item = Label> {
        labels(namespace, of_pod).filter(|label| self.by_label.contains_key(label))
    }

    /// The pods that the selector of a service may match: those with the rarest of its labels.
    pub(super) fn pods_filed_under(&self, service: &ServiceId) -> impl Iterator<Item = &WorkloadId> {
        let label = self.rarest.get(service);
        label.and_then(|label| self.labelled.get(label)).into_iter().flatten()
    }

    /// The workloads at an address, by namespace and standing.
    pub(super) fn workloads_at(&self, ip: IpAddr) -> impl Iterator<Item = &WorkloadId> {
        let from_here = self.at_address.range((ip, String::new(), Standing::FIRST)..);
        from_here.take_while(move |((at, ..), _)| *at == ip).flat_map(|(_, workloads)| workloads)
    }

    /// The workloads of a namespace at an address, by standing.
    pub(super) fn standing_at(
        &self,
        ip: IpAddr,
        namespace: &str,
    ) -> impl Iterator<Item = (Standing, &BTreeSet<WorkloadId>)> {
        let from_here = self.at_address.range((ip, namespace.to_owned(), Standing::FIRST)..);
        let here = from_here.take_while(move |((at, of, _), _)| *at == ip && of == namespace);
        here.map(|((.., standing), workloads)| (*standing, workloads))
    }

    /// The slices of `namespace` that hold the address.
    pub(super) fn slices_at(&self, namespace: &str, ip: IpAddr) -> impl Iterator<Item = &NamespacedName> {
        self.slices_at.get(&(namespace.to_owned(), ip)).into_iter().flatten()
    }

    /// Adds a difference to the backends of a service, which is there or was.
    pub(super) fn change_backends(&mut self, service: &ServiceId, change: Backends, exists: bool) {
        let backends = self.backends.entry(service.clone()).or_default();
        for (workload, begins) in backends.turned_workloads(&change) {
            set(&mut self.services_of, workload.clone(), service.clone(), begins);
        }
        for (account, begins) in backends.turned_accounts(&change) {
            set(&mut self.services_behind, account.clone(), service.clone(), begins);
        }
        backends.add(change);
        if !exists {
            self.backends.remove(service);
        }
    }

    /// The class, as another sidecar of it has it: a class is as large as the ports of a workload are many.
    pub(super) fn shared(&self, class: ProxyClass) -> Arc<ProxyClass> {
        let classes = self.classes.get(&class.account);
        let known = classes.and_then(|classes| classes.get_key_value(&class));
        known.map_or_else(|| Arc::new(class), |(known, _)| Arc::clone(known))
    }

    /// Sets a workload's sidecar and returns the one it had, and the accounts that gained or lost a class.
    pub(super) fn set_sidecar(
        &mut self,
        workload: &WorkloadId,
        new: Option<Sidecar>,
    ) -> (Option<Sidecar>, BTreeSet<ServiceAccountId>) {
        let mut accounts = BTreeSet::new();
        if let Some(sidecar) = &new {
            set(&mut self.by_proxy, sidecar.proxy.clone(), workload.clone(), true);
            let classes = self.classes.entry(sidecar.class.account.clone()).or_default();
            let count = classes.entry(Arc::clone(&sidecar.class)).or_insert(0);
            if *count == 0 {
                let account = &sidecar.class.account;
                set(&mut self.accounts_in, account.namespace().to_owned(), account.clone(), true);
                accounts.insert(account.clone());
                file_conflicts(&mut self.conflicts, &sidecar.class, true);
                file_logging(&mut self.logging, &sidecar.class, true);
            }
            *count += 1;
        }
        let old = match new {
            Some(sidecar) => self.sidecars.insert(workload.clone(), sidecar),
            None => self.sidecars.remove(workload),
        };
        if let Some(sidecar) = &old {
            if self.sidecars.get(workload).is_none_or(|now| now.proxy != sidecar.proxy) {
                set(&mut self.by_proxy, sidecar.proxy.clone(), workload.clone(), false);
            }
            let account = &sidecar.class.account;
            if let Some(classes) = self.classes.get_mut(account) {
                if let Some(count) = classes.get_mut(&sidecar.class) {
                    *count -= 1;
                    if *count == 0 {
                        classes.remove(&sidecar.class);
                        accounts.insert(account.clone());
                        file_conflicts(&mut self.conflicts, &sidecar.class, false);
                        file_logging(&mut self.logging, &sidecar.class, false);
                    }
                }
                if classes.is_empty() {
                    self.classes.remove(account);
                    set(&mut self.accounts_in, account.namespace().to_owned(), account.clone(), false);
                }
            }
        }
        (old, accounts)
    }
}
