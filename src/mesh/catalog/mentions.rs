//! The accounts whose configuration mentions a service.
//!
//! Owns the walk from services over the splits between them and the accounts behind them to those that may
//! call these. It visits each root, each service and each account once for all services that are asked for:
//! a split of a hundred backends makes a hundred services lead to the same ones.

use std::collections::BTreeSet;

use super::Catalog;
use super::backends::Backends;
use crate::policy::allows_something;
use smc_types::ids::{ServiceAccountId, ServiceId};

/// What was visited, and found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Mentions {
    asked: BTreeSet<ServiceId>,
    roots: BTreeSet<ServiceId>,
    services: BTreeSet<ServiceId>,
    accounts: BTreeSet<ServiceAccountId>,
    callers: BTreeSet<ServiceAccountId>,
    /// Whether all accounts were found.
    everyone: bool,
}

impl Mentions {
    /// The accounts that mention a service that was visited.
    pub(super) fn into_callers(self) -> BTreeSet<ServiceAccountId> {
        self.callers
    }

    /// As [`Self::visit`], for each of these.
    pub(super) fn visit_all(&mut self, catalog: &Catalog, services: &BTreeSet<ServiceId>) {
        for service in services {
            self.visit(catalog, service);
        }
    }

    /// Adds those that may call the service, or a root whose traffic is split to it, or that may call it
    /// because they may reach one of its leaves.
    fn visit(&mut self, catalog: &Catalog, service: &ServiceId) {
        if !first(&mut self.asked, service) {
            return;
        }
        if catalog.mesh_config().permissive {
            self.visit_everyone(catalog);
            return;
        }
        for split in catalog.splits_into(service) {
            self.visit_root(catalog, &split.root);
        }
        self.visit_root(catalog, service);
    }

    /// Adds all accounts.
    pub(super) fn visit_everyone(&mut self, catalog: &Catalog) {
        if !self.everyone {
            self.everyone = true;
            self.callers.extend(catalog.accounts().cloned());
        }
    }

    fn visit_root(&mut self, catalog: &Catalog, root: &ServiceId) {
        if !first(&mut self.roots, root) {
            return;
        }
        self.visit_backends(catalog, root);
        for split in catalog.splits_of(root) {
            split.backends.iter().for_each(|backend| self.visit_backends(catalog, &backend.service));
        }
    }

    fn visit_backends(&mut self, catalog: &Catalog, service: &ServiceId) {
        if !first(&mut self.services, service) {
            return;
        }
        let backends = catalog.index.backends.get(service);
        for account in backends.into_iter().flat_map(Backends::accounts) {
            self.visit_account(catalog, account);
        }
    }

    fn visit_account(&mut self, catalog: &Catalog, account: &ServiceAccountId) {
        if self.everyone || !first(&mut self.accounts, account) {
            return;
        }
        if catalog.accepts_anyone(account) {
            self.visit_everyone(catalog);
            return;
        }
        let targets = catalog.traffic_targets_for(account);
        for target in targets.filter(|target| allows_something(catalog, target)) {
            for source in &target.sources {
                first(&mut self.callers, source);
            }
        }
    }
}

/// Whether `value` is new in the set.
fn first<T: Ord + Clone>(set: &mut BTreeSet<T>, value: &T) -> bool {
    !set.contains(value) && set.insert(value.clone())
}
