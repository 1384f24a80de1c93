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

/// Checks that a change makes due together. They are noted by what they have in common, and looked up once
/// for all changes since: otherwise each of a thousand splits would note each of the thousand Retries that
/// name its backend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::catalog) enum Around {
    /// The Retries that name a service.
    RetriesTo(ServiceId),
    /// The Retries of a source.
    RetriesOf(ServiceAccountId),
    /// The UpstreamTrafficSettings of a service.
    SettingsOf(ServiceId),
    /// The Egresses that spell the name of a service.
    EgressesNaming(NamespacedName),
    /// The Telemetries of a namespace.
    TelemetriesIn(String),
    /// The ExtensionServices whose host is a service.
    ExtensionServicesAt(ServiceId),
    /// The Telemetries that name an ExtensionService.
    TelemetriesNaming(NamespacedName),
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(in crate::catalog) struct Found {
    /// What each check found, other than nothing, when it was not due.
    problems: BTreeMap<Check, Vec<Problem>>,
    due: BTreeSet<Check>,
    around: BTreeSet<Around>,
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
        if !self.everything_is_due && !is_noted(&mut self.due, check) {
            self.all_due();
        }
    }

    /// As [`Self::due`], for all checks that have this in common when they are run. One that has it no more,
    /// or not yet, is due by itself.
    pub(in crate::catalog) fn due_around(&mut self, around: Around) {
        if !self.everything_is_due && !is_noted(&mut self.around, around) {
            self.all_due();
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
        self.around = BTreeSet::new();
        self.problems = BTreeMap::new();
    }
}

/// Notes one more as due. Returns false if so many are that it finds no place.
fn is_noted<T: Ord>(due: &mut BTreeSet<T>, one: T) -> bool {
    if due.len() == MAX_DUE {
        return due.contains(&one);
    }
    due.insert(one);
    true
}

impl Catalog {
    /// Runs the checks that are due, so that the next [`Self::problems`] finds them done.
    pub fn recheck(&mut self) {
        let due = self.due_checks();
        let Found { problems, .. } = std::mem::take(&mut self.found);
        let mut found = Found { problems, ..Found::default() };
        for check in due {
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
        let due = self.due_checks();
        let known = self.found.problems.iter().filter(|(check, _)| !due.contains(check));
        let known = known.flat_map(|(_, problems)| problems.iter().cloned());
        known.chain(due.iter().flat_map(|check| self.check(check))).collect()
    }

    /// Every check that is due.
    fn due_checks(&self) -> BTreeSet<Check> {
        if self.found.everything_is_due {
            return self.every_check().collect();
        }
        let mut due = self.found.due.clone();
        for around in &self.found.around {
            match around {
                Around::RetriesTo(service) => {
                    let names = self.index.retries_to.get(service).into_iter().flatten();
                    due.extend(names.cloned().map(Check::Retry));
                }
                Around::RetriesOf(source) => {
                    let names = self.index.retries_of.get(source).into_iter().flat_map(BTreeMap::values);
                    due.extend(names.flatten().cloned().map(Check::Retry));
                }
                Around::SettingsOf(service) => {
                    let names = self.index.settings_of.get(service).into_iter().flatten();
                    due.extend(names.cloned().map(Check::UpstreamTrafficSetting));
                }
                Around::EgressesNaming(service) => {
                    let names = self.index.egress_naming.get(service).into_iter().flatten();
                    due.extend(names.cloned().map(Check::Egress));
                }
                Around::TelemetriesIn(namespace) => {
                    let names = self.telemetries.get(namespace).into_iter().flat_map(BTreeMap::keys);
                    due.extend(names.cloned().map(Check::Telemetry));
                }
                Around::ExtensionServicesAt(service) => {
                    let names = self.index.extended_at.get(service).into_iter().flatten();
                    due.extend(names.cloned().map(Check::ExtensionService));
                }
                Around::TelemetriesNaming(service) => {
                    due.extend(self.telemetries_naming(service).map(Check::Telemetry));
                }
            }
        }
        due
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
        self.found.due_around(Around::SettingsOf(service.id.clone()));
        self.found.due_around(Around::RetriesTo(service.id.clone()));
        self.found.due_around(Around::EgressesNaming(service.id.as_name().clone()));
        self.due_about_servers(|named| *named == service.id);
        self.found.due_around(Around::ExtensionServicesAt(service.id.clone()));
        for &ip in &service.cluster_ips {
            self.found.due(Check::Address(ip));
            let others = self.index.services_at.get(&ip).into_iter().flatten();
            self.found.all_of(others.cloned().map(Check::Service));
        }
    }

    /// Notes that the MeshConfig is to be checked, if a server that it names is such a service.
    fn due_about_servers(&mut self, is_meant: impl Fn(&ServiceId) -> bool) {
        let named = |config| mesh_config::servers(config).any(|named| is_meant(&named));
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
        self.found.all_of(class.telemetry.iter().cloned().map(Check::Telemetry));
    }

    /// Notes that all of a namespace, which joins the mesh or leaves it, is to be checked.
    pub(in crate::catalog) fn due_in_namespace(&mut self, namespace: &str) {
        for service in self.index.retries_to.keys().filter(|id| id.namespace() == namespace) {
            self.found.due_around(Around::RetriesTo(service.clone()));
        }
        for service in self.index.egress_naming.keys().filter(|id| id.namespace() == namespace) {
            self.found.due_around(Around::EgressesNaming(service.clone()));
        }
        self.due_about_servers(|named| named.namespace() == namespace);
        for service in self.index.extended_at.keys().filter(|id| id.namespace() == namespace) {
            self.found.due_around(Around::ExtensionServicesAt(service.clone()));
        }
        self.found.due_around(Around::TelemetriesIn(namespace.to_owned()));
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
            .chain(self.extension_services.keys().filter(is_in).cloned().map(Check::ExtensionService))
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
