//! How what several events changed comes into effect, once for all of them.
//!
//! Owns the order: the selected pods, the budget of endpoints, the backends, the sidecars, and who is
//! affected by it. The callers of a service are looked for before its backends change and after: those in
//! between are never served.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::backends::Backends;
use super::index::Sidecar;
use super::mentions::Mentions;
use super::pending::{Change, Pending};
use super::problems::check::Check;
use super::{Affected, Catalog};
use smc_types::ids::{ServiceId, WorkloadId};

impl Catalog {
    /// Completes what the events since the last call change, and returns what they affect. Until then the
    /// queries for backends, endpoints, sidecars and identities answer as before these events.
    pub fn settle(&mut self) -> Affected {
        self.select();
        let pending = std::mem::take(&mut self.pending);
        let Pending {
            mut affected,
            backends,
            mut workloads,
            mut rewired,
            mut disputed,
            mut reopened,
            mut sources,
            egress,
            telemetries,
            opened,
            mut before,
            ..
        } = pending;
        self.survey_egress(egress);
        // Those that run in the mesh may call what is open, before or after.
        let is_home = |catalog: &Self| opened.iter().any(|name| catalog.accounts_in(name).next().is_some());
        let was_home = is_home(self);
        let named = backends.keys().filter(|service| self.index.ingress_from.contains_key(service));
        sources.extend(named.cloned());
        reopened.extend(self.turned_sources(sources));
        affected.inbound.extend(self.accounts_opened_by(&reopened));
        let mut differing = Vec::new();
        let none = Backends::default();
        for (id, change) in self.within_budget(backends) {
            let exists = self.services.get(&id);
            let old = self.index.backends.get(&id);
            let change = self.difference(&id, change);
            if change == none && old.is_some() == exists.is_some() {
                continue;
            }
            let turned = old.unwrap_or(&none).turned(&change);
            if turned.endpoints || old.is_some() != exists.is_some() {
                affected.endpoints.insert(id.clone());
            }
            // Callers validate exactly the accounts behind a service, and listen on the addresses of a
            // headless one. Nothing else of the backends is part of their configuration.
            let headless = exists.is_some_and(|service| service.headless);
            if turned.accounts || headless && !turned.listening.is_empty() {
                rewired.insert(id.clone());
            }
            workloads.extend(turned.targets);
            disputed.extend(turned.listening);
            differing.push((id, change));
        }
        // Another service may lose an address of its pods, or get it back.
        rewired.extend(self.claiming(&disputed));
        before.visit_all(self, &rewired);
        if was_home {
            before.visit_everyone(self);
        }
        for (id, change) in differing {
            let exists = self.services.contains_key(&id);
            self.index.change_backends(&id, change, exists);
        }
        workloads.extend(self.logging_otherwise(&telemetries));
        for id in &workloads {
            self.refresh_sidecar(id, &mut affected);
        }
        affected.accounts.extend(self.accounts_logging_by(&telemetries));
        affected.inbound.extend(self.accounts_opened_by(&reopened));
        self.found.all_of(reopened.into_iter().map(Check::IngressBackend));
        rewired.extend(self.claiming(&disputed));
        let mut after = Mentions::default();
        after.visit_all(self, &rewired);
        if was_home || is_home(self) {
            after.visit_everyone(self);
        }
        for service in &rewired {
            self.due_around_service(service);
        }
        affected.accounts.extend(before.into_callers());
        affected.accounts.extend(after.into_callers());
        affected
    }

    /// These changes, and those of the services that go over the budget of their namespace by them, or come
    /// back within it.
    fn within_budget(&mut self, mut changes: BTreeMap<ServiceId, Change>) -> BTreeMap<ServiceId, Change> {
        let cost = |id: &ServiceId| self.services.get(id).map(|service| self.endpoint_cost(service));
        let costs = changes.keys().map(|id| (id.clone(), cost(id))).collect();
        let turned = self.index.endpoint_budgets.set(costs);
        changes.extend(turned.into_iter().map(|id| (id, Change::Anew)));
        self.found.all_of(changes.keys().cloned().map(Check::Service));
        changes
    }

    /// What a change adds to the backends of a service, or takes away.
    fn difference(&self, id: &ServiceId, change: Change) -> Backends {
        match change {
            Change::By { sources, before } => {
                let mut change = Backends::from(self, id, &sources);
                change.subtract(&before);
                change
            }
            Change::Anew => {
                let service = self.services.get(id);
                let mut change = service.map(|service| Backends::of(self, service)).unwrap_or_default();
                if let Some(old) = self.index.backends.get(id) {
                    change.subtract(old);
                }
                change
            }
        }
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
        let proxy = new.as_ref().map(|sidecar| sidecar.proxy.clone());
        let class = new.as_ref().map(|sidecar| Arc::clone(&sidecar.class));
        let (old, accounts) = self.index.set_sidecar(id, new);
        if !accounts.is_empty() {
            for account in &accounts {
                self.due_around_account(account);
            }
            for class in old.as_ref().map(|sidecar| &sidecar.class).into_iter().chain(&class) {
                self.due_behind_class(class);
            }
        }
        let proxies = old.map(|sidecar| sidecar.proxy).into_iter().chain(proxy);
        for proxy in proxies {
            self.found.due(Check::Proxy(proxy.clone()));
            affected.proxies.insert(proxy);
        }
        affected.accounts.extend(accounts);
    }
}
