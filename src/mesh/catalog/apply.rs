//! How an event changes the catalog, and what it affects.
//!
//! Owns the upkeep of the index and the computation of [`Affected`]. The plan is the same for every kind:
//! take the answers before, change the objects, recompute what depends on them, take the answers after, and
//! name those that differ. Where the exact answer would be intricate, it names more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::backends::{Backends, Source};
use super::index::{Sidecar, selects};
use super::{Affected, Catalog, Object, SourceEvent, addresses};
use crate::policy::allows_something;
use smc_api::osm::MeshConfig;
use smc_api::smi::{HttpRouteGroup, RouteGroup, RuleKind, TcpRoute, TrafficSplit, TrafficTarget};
use smc_model::topology::{EndpointSlice, Namespace, Service, Workload};
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::kind::EffectiveKind;
use smc_types::object_ref::ObjectRef;

impl Catalog {
    /// Applies one event and returns what may differ now. An event without news affects nothing. The cost is
    /// that of what the event affects, not of the whole mesh, except for a [`MeshConfig`] and for permissive
    /// mode, where a service affects all identities.
    pub fn apply(&mut self, event: SourceEvent) -> Affected {
        let mut affected = self.change(event);
        self.settle(&mut affected);
        affected
    }

    /// As [`Self::apply`], for one of several events: [`Self::settle`] completes what they affect.
    pub fn change(&mut self, event: SourceEvent) -> Affected {
        match event {
            SourceEvent::Upsert(object) => self.upsert(object),
            SourceEvent::Remove(reference) => self.remove(&reference),
        }
    }

    /// Completes what the events affect since the last call. Who may call a service takes a walk through all
    /// grants, once before these events and once after them, and not once more for each pod behind it.
    pub fn settle(&mut self, affected: &mut Affected) {
        for service in std::mem::take(&mut self.rewired) {
            affected.accounts.extend(self.accounts_mentioning(&service));
        }
    }

    /// Notes that the configuration of those that mention these services may change, or has changed. Those
    /// that mention them now are affected, and with [`Self::settle`] those that do in the end. What comes in
    /// between is never served.
    fn rewire(&mut self, services: BTreeSet<ServiceId>, affected: &mut Affected) {
        for service in services {
            if !self.rewired.contains(&service) {
                affected.accounts.extend(self.accounts_mentioning(&service));
                self.rewired.insert(service);
            }
        }
    }

    fn upsert(&mut self, object: Object) -> Affected {
        match object {
            Object::Namespace(new) => self.set_namespace(&new.name.clone(), Some(new)),
            Object::Service(new) => self.set_service(&new.id.clone(), Some(new)),
            Object::ServiceAccount(new) => {
                self.service_accounts.insert(new);
                Affected::default()
            }
            Object::Workload(new) => self.set_workload(&new.id.clone(), Some(new)),
            Object::EndpointSlice(new) => self.set_slice(&new.id.clone(), Some(new)),
            Object::TrafficTarget(new) => self.set_target(&new.id.clone(), Some(new)),
            Object::HttpRouteGroup(new) => self.set_http_route_group(&new.id.clone(), Some(new)),
            Object::TcpRoute(new) => self.set_tcp_route(&new.id.clone(), Some(new)),
            Object::UdpRoute(new) => {
                self.udp_routes.insert(new.id.clone(), new);
                Affected::default()
            }
            Object::TrafficSplit(new) => self.set_split(&new.id.clone(), Some(new)),
            Object::MeshConfig(name, new) => self.set_mesh_config(&name, Some(new)),
        }
    }

    fn remove(&mut self, reference: &ObjectRef) -> Affected {
        let (kind, name) = match reference {
            ObjectRef::Namespace(name) => return self.set_namespace(name, None),
            ObjectRef::Namespaced(kind, name) => (*kind, name),
        };
        // Of the others the catalog holds none.
        let Some(kind) = kind.effective() else { return Affected::default() };
        match kind {
            EffectiveKind::Namespace => self.set_namespace(name.name(), None),
            EffectiveKind::Service => self.set_service(&name.clone().into(), None),
            EffectiveKind::ServiceAccount => {
                self.service_accounts.remove(&ServiceAccountId::from(name.clone()));
                Affected::default()
            }
            EffectiveKind::Pod => self.set_workload(&name.clone().into(), None),
            EffectiveKind::MeshWorkload => self.set_workload(&WorkloadId::machine(name.clone()), None),
            EffectiveKind::EndpointSlice => self.set_slice(name, None),
            EffectiveKind::TrafficTarget => self.set_target(name, None),
            EffectiveKind::HttpRouteGroup => self.set_http_route_group(name, None),
            EffectiveKind::TcpRoute => self.set_tcp_route(name, None),
            EffectiveKind::UdpRoute => {
                self.udp_routes.remove(name);
                Affected::default()
            }
            EffectiveKind::TrafficSplit => self.set_split(name, None),
            EffectiveKind::MeshConfig => self.set_mesh_config(name, None),
        }
    }

    fn set_namespace(&mut self, name: &str, new: Option<Namespace>) -> Affected {
        let old = self.namespaces.get(name);
        if old == new.as_ref() {
            return Affected::default();
        }
        let is_open = |namespace: &Namespace| namespace.permissive;
        let (was_open, opens) = (old.is_some_and(is_open), new.as_ref().is_some_and(is_open));
        match new {
            Some(new) => self.namespaces.insert(name.to_owned(), new),
            None => self.namespaces.remove(name),
        };
        if opens {
            self.index.permissive.insert(name.to_owned());
        } else {
            self.index.permissive.remove(name);
        }
        let workloads = self.index.workloads_in.get(name).cloned().unwrap_or_default();
        let services = workloads
            .iter()
            .filter_map(|id| self.workloads.get(id))
            .flat_map(|workload| self.services_holding(workload))
            .chain(workloads.iter().filter_map(|id| self.index.selecting.get(id)).flatten())
            .cloned()
            .collect();
        // Those that run in the mesh may call what is open, before or after.
        let callers = (was_open != opens && self.accounts_in(name).next().is_some())
            .then(|| self.accounts().cloned().collect::<BTreeSet<_>>());
        let mut affected = self.refresh(anew(services), &BTreeSet::new(), workloads);
        affected.accounts.extend(callers.into_iter().flatten());
        affected
    }

    fn set_workload(&mut self, id: &WorkloadId, new: Option<Arc<Workload>>) -> Affected {
        let old = self.workloads.get(id);
        if old == new.as_ref() {
            return Affected::default();
        }
        let selected = self.index.selecting.get(id).cloned().unwrap_or_default();
        let selecting = match (old, &new) {
            (Some(old), Some(new)) if old.labels == new.labels && old.services == new.services => {
                selected.clone()
            }
            (_, Some(new)) => self.services_selecting(new),
            (_, None) => BTreeSet::new(),
        };
        let mut sources: BTreeMap<ServiceId, BTreeSet<Source>> = BTreeMap::new();
        for service in selected.union(&selecting) {
            sources.entry(service.clone()).or_default().insert(Source::Workload(id.clone()));
        }
        for (slice, ip) in old.into_iter().chain(&new).flat_map(|state| self.slices_holding(state)) {
            let source = Source::Slice(slice.id.clone(), Some(ip));
            sources.entry(slice.service.clone()).or_default().insert(source);
        }
        let mut changes: BTreeMap<ServiceId, Change> = BTreeMap::new();
        for (service, sources) in sources {
            let before = Backends::from(self, &service, &sources);
            changes.insert(service, Change::By { sources, before });
        }
        for service in changes.keys() {
            self.index.set_selected(service, id, selecting.contains(service));
        }
        if let Some(old) = self.workloads.remove(id) {
            self.index.file_workload(&old, false);
        }
        if let Some(new) = new {
            self.index.file_workload(&new, true);
            self.workloads.insert(id.clone(), new);
        }
        self.refresh(changes, &BTreeSet::new(), BTreeSet::from([id.clone()]))
    }

    fn set_service(&mut self, id: &ServiceId, new: Option<Arc<Service>>) -> Affected {
        let old = self.services.get(id);
        if old == new.as_ref() {
            return Affected::default();
        }
        let mut disputed = addresses::moved(old.map(Arc::as_ref), new.as_deref());
        if old.map(|old| old.headless) != new.as_ref().map(|new| new.headless) {
            disputed.extend(self.index.backends.get(id).map(Backends::addresses).unwrap_or_default());
        }
        let mut changed = self.claiming(&disputed);
        let ports =
            |service: &Arc<Service>| service.ports.iter().map(|port| port.port).collect::<BTreeSet<_>>();
        let same_ports = old.map(ports) == new.as_ref().map(ports);
        let same_selector = old.map(|old| &old.selector) == new.as_ref().map(|new| &new.selector);
        if let Some(old) = self.services.remove(id) {
            self.index.file_service(&old, false);
        }
        if let Some(new) = new {
            self.index.file_service(&new, true);
            self.services.insert(id.clone(), new);
        }
        if !same_selector {
            self.select_pods_of(id);
        }
        changed.extend(self.claiming(&disputed));
        changed.insert(id.clone());
        let mut affected = self.refresh(anew(BTreeSet::from([id.clone()])), &changed, BTreeSet::new());
        // Each declared port has its set of endpoints, if only an empty one.
        if !same_ports {
            affected.endpoints.insert(id.clone());
        }
        affected
    }

    fn set_slice(&mut self, id: &NamespacedName, new: Option<EndpointSlice>) -> Affected {
        if self.slices.get(id) == new.as_ref() {
            return Affected::default();
        }
        let of = |slice: &EndpointSlice| slice.service.clone();
        let services: BTreeSet<_> = self.slices.get(id).iter().copied().chain(&new).map(of).collect();
        let sliced = |catalog: &Self, service: &ServiceId| catalog.index.slices_of.contains_key(service);
        let mut changes: BTreeMap<ServiceId, Change> = BTreeMap::new();
        for service in services {
            let sources = BTreeSet::from([Source::Slice(id.clone(), None)]);
            let before = Backends::from(self, &service, &sources);
            let was_sliced = sliced(self, &service);
            changes.insert(service, if was_sliced { Change::By { sources, before } } else { Change::Anew });
        }
        if let Some(old) = self.slices.remove(id) {
            self.index.file_slice(&old, false);
        }
        if let Some(new) = new {
            self.index.file_slice(&new, true);
            self.slices.insert(id.clone(), new);
        }
        for (service, change) in &mut changes {
            // What a selector contributes depends on whether there is a slice.
            if !sliced(self, service) {
                *change = Change::Anew;
            }
        }
        self.refresh(changes, &BTreeSet::new(), BTreeSet::new())
    }

    fn set_target(&mut self, id: &NamespacedName, new: Option<Arc<TrafficTarget>>) -> Affected {
        let old = self.traffic_targets.get(id);
        if old == new.as_ref() {
            return Affected::default();
        }
        // Where anyone is accepted, access policy has no effect.
        let granting = |target: &&Arc<TrafficTarget>| {
            !self.accepts_anyone(&target.destination) && allows_something(self, target)
        };
        let before = callers_by(old.filter(granting));
        let after = callers_by(new.as_ref().filter(granting));
        let destinations = before.union(&after).map(|(_, destination)| *destination);
        let sources = before.symmetric_difference(&after).map(|(source, _)| *source);
        let accounts = destinations.chain(sources).cloned().collect();
        if let Some(old) = self.traffic_targets.remove(id) {
            self.index.file_target(&old, false);
        }
        if let Some(new) = new {
            self.index.file_target(&new, true);
            self.traffic_targets.insert(id.clone(), new);
        }
        Affected { accounts, ..Affected::default() }
    }

    fn set_http_route_group(&mut self, id: &NamespacedName, new: Option<HttpRouteGroup>) -> Affected {
        if self.http_route_groups.get(id) == new.as_ref() {
            return Affected::default();
        }
        match new {
            Some(new) => self.http_route_groups.insert(id.clone(), new),
            None => self.http_route_groups.remove(id),
        };
        let mut affected = Affected::default();
        for (id, group) in self.route_groups.declare(&self.http_route_groups, id) {
            affected.merge(self.set_route_group(&id, group));
        }
        affected
    }

    fn set_route_group(&mut self, id: &NamespacedName, new: Option<RouteGroup>) -> Affected {
        let old = self.route_groups.get(id);
        if old == new.as_ref() {
            return Affected::default();
        }
        let changed = changed_matches(old, new.as_ref());
        let begins_or_ends = old.is_some() != new.is_some();
        let concerns = |target: &TrafficTarget| {
            let mut rules =
                target.rules.iter().filter(|rule| rule.kind == RuleKind::HttpRouteGroup && rule.name == *id);
            rules.any(|rule| {
                begins_or_ends
                    || rule
                        .matches
                        .as_ref()
                        .is_none_or(|names| names.iter().any(|name| changed.contains(name)))
            })
        };
        let mut affected = self.around_route(RuleKind::HttpRouteGroup, id, concerns, |catalog| {
            catalog.route_groups.set((id.clone(), new));
        });
        for split in self.index.splits_using.get(id).into_iter().flatten() {
            if let Some(split) = self.traffic_splits.get(split) {
                affected.accounts.extend(self.accounts_mentioning(&split.root));
            }
        }
        affected
    }

    fn set_tcp_route(&mut self, id: &NamespacedName, new: Option<TcpRoute>) -> Affected {
        if self.tcp_routes.get(id) == new.as_ref() {
            return Affected::default();
        }
        self.around_route(
            RuleKind::TcpRoute,
            id,
            |_| true,
            |catalog| {
                match new {
                    Some(new) => catalog.tcp_routes.insert(id.clone(), new),
                    None => catalog.tcp_routes.remove(id),
                };
            },
        )
    }

    /// Changes a route object and returns the affected accounts of the targets that refer to it: the
    /// destination if the change `concerns` the target, the sources if the target starts or stops to grant
    /// anything. Builds no grant: a target's cost is that of its own rules, and not of the matches.
    fn around_route(
        &mut self,
        kind: RuleKind,
        id: &NamespacedName,
        concerns: impl Fn(&TrafficTarget) -> bool,
        change: impl FnOnce(&mut Self),
    ) -> Affected {
        let targets = self.index.targets_using.get(&(kind, id.clone())).cloned().unwrap_or_default();
        let granting = |catalog: &Self| -> Vec<bool> {
            let targets = targets.iter().filter_map(|target| catalog.traffic_targets.get(target));
            targets.map(|target| allows_something(catalog, target)).collect()
        };
        let before = granting(self);
        change(self);
        let after = granting(self);
        let mut affected = Affected::default();
        let targets = targets.iter().filter_map(|target| self.traffic_targets.get(target));
        for (target, (before, after)) in targets.zip(before.into_iter().zip(after)) {
            if self.accepts_anyone(&target.destination) {
                continue;
            }
            if (before || after) && concerns(target) {
                affected.accounts.insert(target.destination.clone());
            }
            if before != after {
                affected.accounts.extend(target.sources.iter().cloned());
            }
        }
        affected
    }

    fn set_split(&mut self, id: &NamespacedName, new: Option<TrafficSplit>) -> Affected {
        let old = self.traffic_splits.get(id);
        if old == new.as_ref() {
            return Affected::default();
        }
        let roots = old.iter().copied().chain(&new).map(|s| s.root.clone()).collect();
        let mut affected = Affected::default();
        self.rewire(roots, &mut affected);
        let share = self.share_of_a_root(id.namespace());
        if let Some(old) = self.traffic_splits.remove(id) {
            self.index.file_split(&old, false);
        }
        if let Some(new) = new {
            // One that names services of a domain that is none of the mesh's has no effect.
            if self.foreign_domain(&new).is_none() {
                self.index.file_split(&new, true);
            }
            self.traffic_splits.insert(id.clone(), new);
        }
        let (before, share) = (share, self.share_of_a_root(id.namespace()));
        if before != share {
            let beyond = self.roots_beyond(id.namespace(), before.min(share)).into_iter().collect();
            self.rewire(beyond, &mut affected);
        }
        affected
    }

    fn set_mesh_config(&mut self, name: &NamespacedName, new: Option<MeshConfig>) -> Affected {
        let before = self.mesh_config();
        match new {
            Some(new) => self.mesh_configs.insert(name.clone(), new),
            None => self.mesh_configs.remove(name),
        };
        let after = self.mesh_config();
        // The lifetime of certificates is no part of any answer about policy or endpoints.
        let everything = before.permissive != after.permissive
            || before.egress != after.egress
            || before.local_proxy_mode != after.local_proxy_mode;
        Affected { everything, ..Affected::default() }
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

    /// The services with a slice that holds an address of the workload.
    fn services_holding(&self, workload: &Workload) -> impl Iterator<Item = &ServiceId> {
        self.slices_holding(workload).map(|(slice, _)| &slice.service)
    }

    /// The slices that hold an address of the workload, with the address.
    fn slices_holding(&self, workload: &Workload) -> impl Iterator<Item = (&EndpointSlice, IpAddr)> {
        let namespace = workload.id.namespace();
        let at = move |ip: IpAddr| self.index.slices_at(namespace, ip).map(move |slice| (slice, ip));
        let slices = workload.ips.iter().flat_map(move |&ip| at(ip));
        slices.filter_map(|(slice, ip)| Some((self.slices.get(slice)?, ip)))
    }

    /// Selects the pods and machines of a service whose selector is new, or that is gone.
    fn select_pods_of(&mut self, id: &ServiceId) {
        let was = self.index.selected.get(id).cloned().unwrap_or_default();
        let selector = self.services.get(id).map(|service| &service.selector);
        let candidates = selector.map(|selector| self.index.pods_filed_under(id.namespace(), selector));
        let mut is: BTreeSet<WorkloadId> = candidates
            .into_iter()
            .flatten()
            .filter(|pod| self.workloads.get(pod).zip(selector).is_some_and(|(w, s)| selects(s, &w.labels)))
            .cloned()
            .collect();
        if selector.is_some() {
            is.extend(self.index.naming.get(id).into_iter().flatten().cloned());
        }
        for pod in was.symmetric_difference(&is) {
            self.index.set_selected(id, pod, is.contains(pod));
        }
    }

    /// Brings the backends of services up to date, and the sidecars of `workloads` and of all workloads whose
    /// ports those services now target differently. The objects are already changed. For the services in
    /// `changed` the objects themselves are new, so all accounts that mention them are affected.
    fn refresh(
        &mut self,
        mut changes: BTreeMap<ServiceId, Change>,
        changed: &BTreeSet<ServiceId>,
        mut workloads: BTreeSet<WorkloadId>,
    ) -> Affected {
        let mut affected = Affected::default();
        let mut rewired = changed.clone();
        let cost = |id: &ServiceId| self.services.get(id).map(|service| self.endpoint_cost(service));
        let costs = changes.keys().map(|id| (id.clone(), cost(id))).collect();
        changes.extend(anew(self.index.endpoint_budgets.set(costs)));
        let mut differing: Vec<(ServiceId, Backends)> = Vec::new();
        let mut disputed = BTreeSet::new();
        let none = Backends::default();
        for (id, change) in changes {
            let service = self.services.get(&id);
            let old = self.index.backends.get(&id);
            let change = match change {
                Change::By { sources, before } => {
                    let mut change = Backends::from(self, &id, &sources);
                    change.subtract(&before);
                    change
                }
                Change::Anew => {
                    let mut change = service.map(|service| Backends::of(self, service)).unwrap_or_default();
                    if let Some(old) = old {
                        change.subtract(old);
                    }
                    change
                }
            };
            if change == none && old.is_some() == service.is_some() {
                continue;
            }
            let turned = old.unwrap_or(&none).turned(&change);
            if turned.endpoints || old.is_some() != service.is_some() {
                affected.endpoints.insert(id.clone());
            }
            // Callers validate exactly the accounts behind a service, and listen on the addresses of a
            // headless one. Nothing else of the backends is part of their configuration.
            let headless = service.is_some_and(|service| service.headless);
            if turned.accounts || headless && !turned.listening.is_empty() {
                rewired.insert(id.clone());
            }
            workloads.extend(turned.targets);
            disputed.extend(turned.listening);
            differing.push((id, change));
        }
        // Another service may lose an address of its pods, or get it back.
        rewired.extend(self.claiming(&disputed));
        self.rewire(rewired, &mut affected);
        for (id, change) in differing {
            let exists = self.services.contains_key(&id);
            self.index.change_backends(&id, change, exists);
        }
        self.rewire(self.claiming(&disputed), &mut affected);
        for id in &workloads {
            self.refresh_sidecar(id, &mut affected);
        }
        affected
    }

    /// Recomputes the sidecar of one workload.
    fn refresh_sidecar(&mut self, id: &WorkloadId, affected: &mut Affected) {
        let new = self.workloads.get(id).filter(|workload| self.in_mesh(workload)).map(|workload| Sidecar {
            proxy: workload.proxy_name(),
            class: self.index.shared(self.class_of(workload)),
        });
        if self.index.sidecars.get(id) == new.as_ref() {
            return;
        }
        affected.proxies.extend(new.as_ref().map(|sidecar| sidecar.proxy.clone()));
        let (old, accounts) = self.index.set_sidecar(id, new);
        affected.proxies.extend(old.map(|sidecar| sidecar.proxy));
        affected.accounts.extend(accounts);
    }

    /// The accounts whose configuration mentions the service: those that may call it, or a root whose
    /// traffic is split to it, or that may call it because they may reach one of its leaves.
    fn accounts_mentioning(&self, service: &ServiceId) -> BTreeSet<ServiceAccountId> {
        if self.mesh_config().permissive {
            return self.accounts().cloned().collect();
        }
        let roots = self.index.splits_into.get(service).into_iter().flatten();
        let roots = roots.filter_map(|split| self.traffic_splits.get(split)).map(|split| &split.root);
        let mut related: BTreeSet<&ServiceId> = roots.chain([service]).collect();
        let splits = related.iter().filter_map(|root| self.index.splits_of.get(root)).flatten();
        let leaves: Vec<&ServiceId> = splits
            .filter_map(|split| self.traffic_splits.get(split))
            .flat_map(|split| split.backends.iter().map(|backend| &backend.service))
            .collect();
        related.extend(leaves);
        related
            .into_iter()
            .filter_map(|service| self.index.backends.get(service))
            .flat_map(Backends::accounts)
            .flat_map(|account| self.allowed_inbound_accounts(account))
            .collect()
    }
}

/// How the backends of a service are brought up to date.
enum Change {
    /// From nothing.
    Anew,
    /// By the difference of what these sources contribute; `before` is what they did.
    By { sources: BTreeSet<Source>, before: Backends },
}

fn anew(services: BTreeSet<ServiceId>) -> BTreeMap<ServiceId, Change> {
    services.into_iter().map(|id| (id, Change::Anew)).collect()
}

/// Who may call whom by a target that grants anything.
fn callers_by(target: Option<&Arc<TrafficTarget>>) -> BTreeSet<(&ServiceAccountId, &ServiceAccountId)> {
    let target = target.into_iter();
    target.flat_map(|target| target.sources.iter().map(|source| (source, &target.destination))).collect()
}

/// The names whose match differs between two states of a group.
fn changed_matches<'a>(old: Option<&'a RouteGroup>, new: Option<&'a RouteGroup>) -> BTreeSet<String> {
    let get = |group: Option<&'a RouteGroup>, name: &str| group.and_then(|group| group.matches.get(name));
    let names = old.into_iter().chain(new).flat_map(|group| group.matches.keys());
    names.filter(|name| get(old, name) != get(new, name)).cloned().collect()
}
