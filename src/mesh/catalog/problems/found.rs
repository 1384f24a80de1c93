//! What the checks have found, and which of them are due.
//!
//! Owns which checks a change makes due. What they found is kept, so that the problems of a mesh cost what
//! has changed since they were last looked for, and not a search through every object.

use std::collections::{BTreeMap, BTreeSet};

use super::check::Check;
use super::mesh_config;
use crate::catalog::Catalog;
use smc_model::topology::Service;
use smc_types::ids::{NamespacedName, ServiceAccountId, ServiceId};
use smc_types::problem::Problem;
use smc_types::proxy_class::ProxyClass;

/// The most checks that are noted as due. Beyond it every check is due, which costs no more than a few times
/// as much, and takes no memory.
const MAX_DUE: usize = 10_000;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(in crate::catalog) struct Found {
    /// What each check found, other than nothing, when it was not due.
    problems: BTreeMap<Check, Vec<Problem>>,
    due: BTreeSet<Check>,
    everything_is_due: bool,
}

/// What is remembered of checks changes no answer.
impl PartialEq for Found {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Found {}

impl Found {
    /// Notes that a check may find something else now.
    pub(in crate::catalog) fn due(&mut self, check: Check) {
        if self.everything_is_due || self.due.contains(&check) {
            return;
        }
        if self.due.len() == MAX_DUE {
            self.all_due();
        } else {
            self.due.insert(check);
        }
    }

    /// As [`Self::due`], for each of these.
    pub(in crate::catalog) fn all_of(&mut self, checks: impl IntoIterator<Item = Check>) {
        for check in checks {
            self.due(check);
        }
    }

    /// Notes that every check may find something else now.
    pub(in crate::catalog) fn all_due(&mut self) {
        self.everything_is_due = true;
        self.due = BTreeSet::new();
        self.problems = BTreeMap::new();
    }
}

impl Catalog {
    /// Runs the checks that are due, so that the next [`Self::problems`] finds them done.
    pub fn recheck(&mut self) {
        let mut found = std::mem::take(&mut self.found);
        if found.everything_is_due {
            found = Found::default();
            found.due.extend(self.every_check());
        }
        for check in std::mem::take(&mut found.due) {
            let problems = self.check(&check);
            if problems.is_empty() {
                found.problems.remove(&check);
            } else {
                found.problems.insert(check, problems);
            }
        }
        self.found = found;
    }

    /// What all checks find, in any order.
    pub(super) fn found(&self) -> Vec<Problem> {
        if self.found.everything_is_due {
            return self.every_check().flat_map(|check| self.check(&check)).collect();
        }
        let known = self.found.problems.iter().filter(|(check, _)| !self.found.due.contains(check));
        let known = known.flat_map(|(_, problems)| problems.iter().cloned());
        known.chain(self.found.due.iter().flat_map(|check| self.check(check))).collect()
    }

    /// Notes that a service, the splits of it and those that lead to it are to be checked.
    pub(in crate::catalog) fn due_around_service(&mut self, id: &ServiceId) {
        self.found.due(Check::Service(id.clone()));
        let splits = [&self.index.splits_of, &self.index.splits_into];
        let splits = splits.into_iter().filter_map(|splits| splits.get(id)).flatten();
        self.found.all_of(splits.cloned().map(Check::Split));
        let ingress = [&self.index.ingress_to, &self.index.ingress_from];
        let ingress = ingress.into_iter().filter_map(|objects| objects.get(id)).flatten();
        self.found.all_of(ingress.cloned().map(Check::IngressBackend));
    }

    /// Notes that what names a service, or has one of its addresses, is to be checked. The service is the
    /// former one or the new one.
    pub(in crate::catalog) fn due_beside_service(&mut self, service: &Service) {
        let slices = self.index.slices_of.get(&service.id).into_iter().flatten();
        self.found.all_of(slices.cloned().map(Check::Slice));
        let machines = self.index.naming.get(&service.id).into_iter().flatten();
        self.found.all_of(machines.cloned().map(Check::Machine));
        self.due_about_settings([&service.id]);
        self.due_about_retries([&service.id]);
        self.due_about_egress(service.id.as_name());
        self.due_about_authorization(|named| *named == service.id);
        for &ip in &service.cluster_ips {
            self.found.due(Check::Address(ip));
            let others = self.index.services_at.get(&ip).into_iter().flatten();
            self.found.all_of(others.cloned().map(Check::Service));
        }
    }

    /// Notes that the MeshConfig is to be checked, if the server that it names is such a service.
    fn due_about_authorization(&mut self, is_meant: impl Fn(&ServiceId) -> bool) {
        let named = |config| mesh_config::authorization_service(config).is_some_and(|named| is_meant(&named));
        let own = self.own_mesh_config().filter(|(_, config)| named(config));
        if let Some(name) = own.map(|(name, _)| name.clone()) {
            self.found.due(Check::MeshConfig(name));
        }
    }

    /// Notes that what names an account, or counts it, is to be checked.
    pub(in crate::catalog) fn due_around_account(&mut self, account: &ServiceAccountId) {
        self.found.due(Check::Namespace(account.namespace().to_owned()));
        let targets = [&self.index.targets_to, &self.index.targets_from];
        let targets = targets.into_iter().filter_map(|targets| targets.get(account)).flatten();
        self.found.all_of(targets.cloned().map(Check::Target));
    }

    /// Notes that the services behind a class, which begins or ends, are to be checked.
    pub(in crate::catalog) fn due_behind_class(&mut self, class: &ProxyClass) {
        let services = || class.inbound.iter().flat_map(|port| &port.services);
        self.found.all_of(services().cloned().map(Check::Service));
        let ingress = services().filter_map(|service| self.index.ingress_to.get(service)).flatten();
        self.found.all_of(ingress.cloned().map(Check::IngressBackend));
    }

    /// Notes that all of a namespace, which joins the mesh or leaves it, is to be checked.
    pub(in crate::catalog) fn due_in_namespace(&mut self, namespace: &str) {
        let services = self.index.retries_to.keys().filter(|id| id.namespace() == namespace);
        self.due_about_retries(&services.cloned().collect::<Vec<_>>());
        let spelt = self.index.egress_naming.keys().filter(|id| id.namespace() == namespace);
        for service in spelt.cloned().collect::<Vec<_>>() {
            self.due_about_egress(&service);
        }
        self.due_about_authorization(|named| named.namespace() == namespace);
        let found = &mut self.found;
        let is_in = |id: &&NamespacedName| id.namespace() == namespace;
        let policy = (self.traffic_targets.keys().filter(is_in).cloned().map(Check::Target))
            .chain(self.http_route_groups.keys().filter(is_in).cloned().map(Check::HttpRouteGroup))
            .chain(self.tcp_routes.keys().filter(is_in).cloned().map(Check::TcpRoute))
            .chain(self.traffic_splits.keys().filter(is_in).cloned().map(Check::Split))
            .chain(self.egresses.keys().filter(is_in).cloned().map(Check::Egress))
            .chain(self.ingress_backends.keys().filter(is_in).cloned().map(Check::IngressBackend))
            .chain(self.retries.keys().filter(is_in).cloned().map(Check::Retry))
            .chain(self.upstream_settings.keys().filter(is_in).cloned().map(Check::UpstreamTrafficSetting))
            .chain(self.slices.keys().filter(is_in).cloned().map(Check::Slice));
        found.all_of(policy);
        let services = self.services.keys().filter(|id| id.namespace() == namespace);
        found.all_of(services.cloned().map(Check::Service));
        for id in self.index.workloads_in.get(namespace).into_iter().flatten() {
            if id.is_machine() {
                found.due(Check::Machine(id.clone()));
            }
            let ips = self.workloads.get(id).into_iter().flat_map(|workload| &workload.ips);
            found.all_of(ips.copied().map(Check::Address));
        }
    }
}
