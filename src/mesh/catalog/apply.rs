//! How an event changes the catalog, and what it affects.
//!
//! Owns what an event changes in the objects and in the index over them. The plan is the same for every kind:
//! note what depends on the object ([`super::pending`]), change it, and leave to [`Catalog::settle`] what
//! follows. Where the exact answer would be intricate, more is named as affected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::backends::{Backends, Source};
use super::problems::check::Check;
use super::problems::found::Around;
use super::{Affected, Catalog, Object, SourceEvent, addresses};
use crate::policy::allows_something;
use smc_api::osm::{IngressBackend, MeshConfig};
use smc_api::smi::{HttpRouteGroup, RouteGroup, RuleKind, TcpRoute, TrafficSplit, TrafficTarget};
use smc_model::topology::{EndpointSlice, Namespace, Service, Workload};
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::kind::Kind;
use smc_types::object_ref::ObjectRef;

impl Catalog {
    /// Applies one event and returns what may differ now. An event without news affects nothing. The cost is
    /// that of what the event affects, not of the whole mesh, except for a [`MeshConfig`] and for permissive
    /// mode, where a service affects all identities.
    pub fn apply(&mut self, event: SourceEvent) -> Affected {
        self.change(event);
        self.settle()
    }

    /// As [`Self::apply`], for one of several events: [`Self::settle`] completes what they change, and says
    /// what they affect.
    pub fn change(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Upsert(object) => self.upsert(object),
            SourceEvent::Remove(reference) => self.remove(&reference),
        }
    }

    fn upsert(&mut self, object: Object) {
        match object {
            Object::Namespace(new) => self.set_namespace(&new.name.clone(), Some(new)),
            Object::Service(new) => self.set_service(&new.id.clone(), Some(new)),
            Object::ServiceAccount(new) => {
                self.due_around_account(&new);
                self.service_accounts.insert(new);
            }
            Object::Workload(new) => self.set_workload(&new.id.clone(), Some(new)),
            Object::EndpointSlice(new) => self.set_slice(&new.id.clone(), Some(new)),
            Object::TrafficTarget(new) => self.set_target(&new.id.clone(), Some(new)),
            Object::HttpRouteGroup(new) => self.set_http_route_group(&new.id.clone(), Some(new)),
            Object::TcpRoute(new) => self.set_tcp_route(&new.id.clone(), Some(new)),
            Object::UdpRoute(new) => {
                self.found.due(Check::UdpRoute(new.id.clone()));
                self.udp_routes.insert(new.id.clone(), new);
            }
            Object::TrafficSplit(new) => self.set_split(&new.id.clone(), Some(new)),
            Object::MeshConfig(name, new) => self.set_mesh_config(&name, Some(new)),
            Object::Egress(new) => self.set_egress(&new.id.clone(), Some(new)),
            Object::IngressBackend(new) => self.set_ingress_backend(&new.id.clone(), Some(new)),
            Object::Retry(new) => self.set_retry(&new.id.clone(), Some(new)),
            Object::UpstreamTrafficSetting(new) => self.set_upstream_setting(&new.id.clone(), Some(new)),
            Object::Telemetry(new) => self.set_telemetry(&new.id.clone(), Some(new)),
            Object::ExtensionService(new) => self.set_extension_service(&new.id.clone(), Some(new)),
            Object::MeshRootCertificate(new) => self.set_mesh_root_certificate(&new.id.clone(), Some(new)),
        }
    }

    fn remove(&mut self, reference: &ObjectRef) {
        let (kind, name) = match reference {
            ObjectRef::Namespace(name) => return self.set_namespace(name, None),
            ObjectRef::Namespaced(kind, name) => (*kind, name),
        };
        match kind {
            Kind::Namespace => self.set_namespace(name.name(), None),
            Kind::Service => self.set_service(&name.clone().into(), None),
            Kind::ServiceAccount => {
                let account = ServiceAccountId::from(name.clone());
                self.due_around_account(&account);
                self.service_accounts.remove(&account);
            }
            Kind::Pod => self.set_workload(&name.clone().into(), None),
            Kind::MeshWorkload => self.set_workload(&WorkloadId::machine(name.clone()), None),
            Kind::EndpointSlice => self.set_slice(name, None),
            Kind::TrafficTarget => self.set_target(name, None),
            Kind::HttpRouteGroup => self.set_http_route_group(name, None),
            Kind::TcpRoute => self.set_tcp_route(name, None),
            Kind::UdpRoute => {
                self.found.due(Check::UdpRoute(name.clone()));
                self.udp_routes.remove(name);
            }
            Kind::TrafficSplit => self.set_split(name, None),
            Kind::MeshConfig => self.set_mesh_config(name, None),
            Kind::Egress => self.set_egress(name, None),
            Kind::IngressBackend => self.set_ingress_backend(name, None),
            Kind::Retry => self.set_retry(name, None),
            Kind::UpstreamTrafficSetting => self.set_upstream_setting(name, None),
            Kind::Telemetry => self.set_telemetry(name, None),
            Kind::ExtensionService => self.set_extension_service(name, None),
            Kind::MeshRootCertificate => self.set_mesh_root_certificate(name, None),
        }
    }

    fn set_namespace(&mut self, name: &str, new: Option<Namespace>) {
        let old = self.namespaces.get(name);
        if old == new.as_ref() {
            return;
        }
        let is_mesh = |namespace: &Namespace| (namespace.monitored, namespace.injection);
        let same_mesh = old.map(is_mesh) == new.as_ref().map(is_mesh);
        let logs = |namespace: &Namespace| namespace.access_log;
        let same_log = old.and_then(logs) == new.as_ref().and_then(logs);
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
        let ips = workloads.iter().filter_map(|id| self.workloads.get(id)).flat_map(|workload| &workload.ips);
        let ips: BTreeSet<_> = ips.copied().collect();
        let holding =
            ips.into_iter().flat_map(|ip| self.slices_holding(name, ip)).map(|slice| &slice.service);
        let selecting = workloads.iter().filter_map(|id| self.index.selecting.get(id)).flatten();
        let services: BTreeSet<_> = holding.chain(selecting).cloned().collect();
        if was_open != opens {
            self.pending.opened.insert(name.to_owned());
        }
        if !same_mesh {
            self.due_in_namespace(name);
            let sources =
                || self.index.ingress_from.iter().filter(|(service, _)| service.namespace() == name);
            self.pending.sources.extend(sources().map(|(service, _)| service.clone()));
            let naming = sources().flat_map(|(_, objects)| objects).cloned();
            self.found.all_of(naming.map(Check::IngressBackend));
        }
        if !same_log {
            let accounts: Vec<_> = self.accounts_in(name).cloned().collect();
            self.pending.affected.accounts.extend(accounts);
        }
        self.touch_all(services);
        self.pending.workloads.extend(workloads);
    }

    fn set_workload(&mut self, id: &WorkloadId, new: Option<Arc<Workload>>) {
        let old = self.workloads.get(id);
        if old == new.as_ref() {
            return;
        }
        let mut sources: BTreeMap<ServiceId, BTreeSet<Source>> = BTreeMap::new();
        for service in self.index.selecting.get(id).into_iter().flatten() {
            sources.entry(service.clone()).or_default().insert(Source::Workload(id.clone()));
        }
        let states = old.zip(new.as_ref());
        if states.is_none_or(|(old, new)| old.labels != new.labels || old.services != new.services) {
            let states = old.into_iter().chain(&new);
            let labels =
                states.flat_map(|state| self.index.labels_selected_by(id.namespace(), &state.labels));
            self.pending.labels.extend(labels);
            self.pending.relabelled.insert(id.clone());
        }
        let mut due: Vec<_> = Vec::from_iter(id.is_machine().then(|| Check::Machine(id.clone())));
        let ips: BTreeSet<_> = old.into_iter().chain(&new).flat_map(|state| &state.ips).copied().collect();
        due.extend(ips.iter().copied().map(Check::Address));
        for ip in ips {
            // Pods that share an address would each note all slices that hold it.
            if !self.pending.moved.insert((id.namespace().to_owned(), ip)) {
                continue;
            }
            for slice in self.slices_holding(id.namespace(), ip) {
                let source = Source::Slice(slice.id.clone(), Some(ip));
                due.push(Check::Slice(slice.id.clone()));
                sources.entry(slice.service.clone()).or_default().insert(source);
            }
        }
        self.found.all_of(due);
        for (service, sources) in sources {
            self.touch(&service, sources);
        }
        if let Some(old) = self.workloads.remove(id) {
            self.index.file_workload(&old, false);
        }
        if let Some(new) = new {
            self.index.file_workload(&new, true);
            self.workloads.insert(id.clone(), new);
        }
        self.pending.workloads.insert(id.clone());
    }

    fn set_service(&mut self, id: &ServiceId, new: Option<Arc<Service>>) {
        let old = self.services.get(id);
        if old == new.as_ref() {
            return;
        }
        let mut disputed = addresses::moved(old.map(Arc::as_ref), new.as_deref());
        if old.map(|old| old.headless) != new.as_ref().map(|new| new.headless) {
            disputed.extend(self.index.backends.get(id).map(Backends::addresses).unwrap_or_default());
        }
        self.pending.disputed.extend(disputed);
        let ports =
            |service: &Arc<Service>| service.ports.iter().map(|port| port.port).collect::<BTreeSet<_>>();
        let same_ports = old.map(ports) == new.as_ref().map(ports);
        let same_selector = old.map(|old| &old.selector) == new.as_ref().map(|new| &new.selector);
        if let Some(old) = self.services.remove(id) {
            self.index.file_service(&old, false);
            self.due_beside_service(&old);
        }
        if let Some(new) = new {
            self.index.file_service(&new, true);
            self.due_beside_service(&new);
            self.services.insert(id.clone(), new);
        }
        if !same_selector {
            self.pending.reselecting.insert(id.clone());
        }
        self.pending.rewired.insert(id.clone());
        self.touch_all([id.clone()]);
        // Each declared port has its set of endpoints, if only an empty one.
        if !same_ports {
            self.pending.affected.endpoints.insert(id.clone());
        }
    }

    fn set_slice(&mut self, id: &NamespacedName, new: Option<EndpointSlice>) {
        if self.slices.get(id) == new.as_ref() {
            return;
        }
        self.found.due(Check::Slice(id.clone()));
        let of = |slice: &EndpointSlice| slice.service.clone();
        let services: BTreeSet<_> = self.slices.get(id).iter().copied().chain(&new).map(of).collect();
        for service in &services {
            self.touch(service, BTreeSet::from([Source::Slice(id.clone(), None)]));
        }
        let sliced = |catalog: &Self, service: &ServiceId| catalog.index.slices_of.contains_key(service);
        let were_sliced: Vec<_> = services.into_iter().map(|id| (sliced(self, &id), id)).collect();
        if let Some(old) = self.slices.remove(id) {
            self.index.file_slice(&old, false);
        }
        if let Some(new) = new {
            self.index.file_slice(&new, true);
            self.slices.insert(id.clone(), new);
        }
        for (was_sliced, service) in were_sliced {
            // What a selector contributes depends on whether there is a slice.
            if !(was_sliced && sliced(self, &service)) {
                self.touch_all([service]);
            }
        }
    }

    fn set_target(&mut self, id: &NamespacedName, new: Option<Arc<TrafficTarget>>) {
        let old = self.traffic_targets.get(id);
        if old == new.as_ref() {
            return;
        }
        // Where anyone is accepted, access policy has no effect.
        let granting = |target: &&Arc<TrafficTarget>| {
            !self.accepts_anyone(&target.destination) && allows_something(self, target)
        };
        let before = callers_by(old.filter(granting));
        let after = callers_by(new.as_ref().filter(granting));
        let destinations = before.union(&after).map(|(_, destination)| *destination);
        let sources = before.symmetric_difference(&after).map(|(source, _)| *source);
        self.pending.affected.accounts.extend(destinations.chain(sources).cloned());
        self.found.due(Check::Target(id.clone()));
        for target in self.traffic_targets.get(id).into_iter().chain(&new) {
            self.found.due(Check::Destination(target.destination.clone()));
        }
        if let Some(old) = self.traffic_targets.remove(id) {
            self.index.file_target(&old, false);
        }
        if let Some(new) = new {
            self.index.file_target(&new, true);
            self.traffic_targets.insert(id.clone(), new);
        }
    }

    fn set_http_route_group(&mut self, id: &NamespacedName, new: Option<HttpRouteGroup>) {
        if self.http_route_groups.get(id) == new.as_ref() {
            return;
        }
        self.found.due(Check::HttpRouteGroup(id.clone()));
        match new {
            Some(new) => self.http_route_groups.insert(id.clone(), new),
            None => self.http_route_groups.remove(id),
        };
        for (id, group) in self.route_groups.declare(&self.http_route_groups, id) {
            self.set_route_group(&id, group);
        }
    }

    fn set_route_group(&mut self, id: &NamespacedName, new: Option<RouteGroup>) {
        let old = self.route_groups.get(id);
        if old == new.as_ref() {
            return;
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
        let splits = self.index.splits_using.get(id).into_iter().flatten();
        let splits = splits.filter_map(|split| self.traffic_splits.get(split));
        let roots: Vec<_> = splits.map(|split| split.root.clone()).collect();
        self.rewire(roots);
        let ingress = self.index.ingress_using.get(id).into_iter().flatten().cloned();
        self.pending.reopened.extend(ingress);
        self.turn_egress_using(id);
        self.around_route(RuleKind::HttpRouteGroup, id, concerns, |catalog| {
            catalog.route_groups.set((id.clone(), new));
        });
    }

    fn set_tcp_route(&mut self, id: &NamespacedName, new: Option<TcpRoute>) {
        if self.tcp_routes.get(id) == new.as_ref() {
            return;
        }
        self.found.due(Check::TcpRoute(id.clone()));
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
        );
    }

    /// Changes a route object, which affects accounts of the targets that refer to it: the destination if
    /// the change `concerns` the target, the sources if the target starts or stops to grant anything. Builds
    /// no grant: a target's cost is that of its own rules, and not of the matches.
    fn around_route(
        &mut self,
        kind: RuleKind,
        id: &NamespacedName,
        concerns: impl Fn(&TrafficTarget) -> bool,
        change: impl FnOnce(&mut Self),
    ) {
        let targets = self.index.targets_using.get(&(kind, id.clone())).cloned().unwrap_or_default();
        self.found.all_of(targets.iter().cloned().map(Check::Target));
        let granting = |catalog: &Self| -> Vec<bool> {
            let targets = targets.iter().filter_map(|target| catalog.traffic_targets.get(target));
            targets.map(|target| allows_something(catalog, target)).collect()
        };
        let before = granting(self);
        change(self);
        let after = granting(self);
        let mut accounts = BTreeSet::new();
        let targets = targets.iter().filter_map(|target| self.traffic_targets.get(target));
        for (target, (before, after)) in targets.zip(before.into_iter().zip(after)) {
            if self.accepts_anyone(&target.destination) {
                continue;
            }
            if (before || after) && concerns(target) {
                accounts.insert(target.destination.clone());
            }
            if before != after {
                accounts.extend(target.sources.iter().cloned());
            }
        }
        self.pending.affected.accounts.extend(accounts);
    }

    fn set_split(&mut self, id: &NamespacedName, new: Option<TrafficSplit>) {
        let old = self.traffic_splits.get(id);
        if old == new.as_ref() {
            return;
        }
        let roots: Vec<_> = old.iter().copied().chain(&new).map(|s| s.root.clone()).collect();
        let named = old.into_iter().chain(&new).flat_map(|split| &split.backends);
        let leaves: BTreeSet<_> = named.map(|backend| backend.service.clone()).collect();
        for root in &roots {
            self.found.due_around(Around::SettingsOf(root.clone()));
        }
        self.rewire(roots);
        for leaf in leaves {
            self.found.due_around(Around::RetriesTo(leaf));
        }
        self.found.due(Check::Split(id.clone()));
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
            self.rewire(self.roots_beyond(id.namespace(), before.min(share)));
        }
    }

    fn set_ingress_backend(&mut self, id: &NamespacedName, new: Option<Arc<IngressBackend>>) {
        if self.ingress_backends.get(id) == new.as_ref() {
            return;
        }
        self.found.due(Check::IngressBackend(id.clone()));
        let before = self.accounts_opened_by([id]);
        let old = self.ingress_backends.remove(id);
        for object in old.iter().chain(&new) {
            let services = object.sources.addresses.iter().flat_map(|addresses| &addresses.services);
            self.pending.sources.extend(services.cloned());
        }
        if let Some(old) = old {
            self.index.file_ingress_backend(&old, false);
        }
        if let Some(new) = new {
            self.index.file_ingress_backend(&new, true);
            self.ingress_backends.insert(id.clone(), new);
        }
        self.pending.affected.inbound.extend(before);
        self.pending.reopened.insert(id.clone());
    }

    fn set_mesh_config(&mut self, name: &NamespacedName, new: Option<MeshConfig>) {
        let before = self.mesh_config();
        self.found.due(Check::MeshConfig(name.clone()));
        match new {
            Some(new) => self.mesh_configs.insert(name.clone(), new),
            None => self.mesh_configs.remove(name),
        };
        let after = self.mesh_config();
        // The lifetime of certificates is no part of any answer about policy or endpoints.
        self.pending.affected.everything |= before.permissive != after.permissive
            || before.egress != after.egress
            || before.local_proxy_mode != after.local_proxy_mode
            || before.access_log != after.access_log
            || before.external_authorization != after.external_authorization
            || before.tracing != after.tracing
            || before.request_metrics != after.request_metrics
            || before.tls != after.tls
            || before.ignores_ingress != after.ignores_ingress;
        if before.ignores_root_certificates != after.ignores_root_certificates {
            self.found.due(Check::MeshRootCertificates);
        }
        let turned_egress = before.ignores_egress != after.ignores_egress;
        if turned_egress {
            self.pending.affected.accounts.extend(self.index.egress_of.keys().cloned());
        }
        let turned_retries = before.ignores_retries != after.ignores_retries;
        if turned_retries {
            self.pending.affected.accounts.extend(self.index.retries_of.keys().cloned());
        }
        if before.egress != after.egress
            || before.ignores_ingress != after.ignores_ingress
            || turned_egress
            || turned_retries
        {
            self.found.all_due();
        }
    }

    /// The slices of a namespace that hold the address.
    fn slices_holding(&self, namespace: &str, ip: IpAddr) -> impl Iterator<Item = &EndpointSlice> {
        self.index.slices_at(namespace, ip).filter_map(|slice| self.slices.get(slice))
    }
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
