//! The table of EDS resources that all proxies share, and how many snapshots use each.
//!
//! Owns the bookkeeping: an endpoint set is encoded once for all proxies, again when the endpoints
//! of its service change, and dropped when no snapshot refers to it. The cost of an endpoint change
//! depends on the service alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::endpoint::EndpointSet;
use super::intern::Interner;
use super::provenance;
use crate::catalog::Topology;
use smc_types::ids::ServiceId;
use smc_xds::resource::{Resource, ResourceType};
use smc_xds::served_state::ServedState;

/// The EDS names in use.
#[derive(Debug, Default)]
pub(super) struct EndpointTable {
    sets: BTreeMap<Arc<str>, InUse>,
    by_service: BTreeMap<ServiceId, BTreeSet<Arc<str>>>,
    /// Names whose resource may be missing, outdated or unused.
    stale: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct InUse {
    set: EndpointSet,
    /// How many outbound halves refer to it.
    users: usize,
}

impl EndpointTable {
    /// Adds a user to each of these.
    pub(super) fn acquire(&mut self, sets: &[(Arc<str>, EndpointSet)]) {
        for (name, set) in sets {
            if let Some(known) = self.sets.get_mut(name) {
                known.users += 1;
                continue;
            }
            self.by_service.entry(set.service.clone()).or_default().insert(Arc::clone(name));
            self.sets.insert(Arc::clone(name), InUse { set: set.clone(), users: 1 });
            self.stale.insert(Arc::clone(name));
        }
    }

    /// Removes a user from each of these.
    pub(super) fn release(&mut self, sets: &[(Arc<str>, EndpointSet)]) {
        for (name, set) in sets {
            let Some(known) = self.sets.get_mut(name) else { continue };
            known.users -= 1;
            if known.users > 0 {
                continue;
            }
            self.sets.remove(name);
            self.stale.insert(Arc::clone(name));
            if let Some(names) = self.by_service.get_mut(&set.service) {
                names.remove(name);
                if names.is_empty() {
                    self.by_service.remove(&set.service);
                }
            }
        }
    }

    /// Marks the endpoints of this service as possibly changed.
    pub(super) fn mark(&mut self, service: &ServiceId) {
        if let Some(names) = self.by_service.get(service) {
            self.stale.extend(names.iter().cloned());
        }
    }

    /// Marks the endpoints of all services as possibly changed.
    pub(super) fn mark_all(&mut self) {
        self.stale.extend(self.sets.keys().cloned());
    }

    /// Brings the endpoints of the served state up to date. Returns the names that changed.
    pub(super) fn refresh(
        &mut self,
        topology: Topology<'_>,
        served: &mut ServedState,
        interner: &mut Interner,
    ) -> BTreeSet<Arc<str>> {
        let mut changed = BTreeSet::new();
        for name in std::mem::take(&mut self.stale) {
            let Some(InUse { set, .. }) = self.sets.get(&name) else {
                if served.endpoints.remove(&name).is_some() {
                    changed.insert(name);
                }
                continue;
            };
            let resource = Resource::encode(ResourceType::Endpoint, &name, &set.assignment(&name, topology));
            if served.endpoints.get(&name).is_none_or(|held| held.version != resource.version) {
                let objects = interner.objects(&provenance::service(&set.service));
                served.endpoints.insert(Arc::clone(&name), Arc::new(resource.made_of(objects)));
                changed.insert(name);
            }
        }
        changed
    }
}
