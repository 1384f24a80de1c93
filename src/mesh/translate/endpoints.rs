//! The one table of EDS resources that all proxies share, and who needs which.
//!
//! Owns the bookkeeping: a set of endpoints is encoded once however many proxies see it, again when its
//! service's endpoints change, and dropped when nothing refers to it any more. The cost of an endpoint
//! change depends on the service alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::endpoint::EndpointSet;
use crate::catalog::Catalog;
use crate::ids::ServiceId;
use crate::resource::{Resource, ResourceType};
use crate::world::World;

/// The names in use.
#[derive(Debug, Default)]
pub(super) struct EndpointTable {
    sets: BTreeMap<Arc<str>, InUse>,
    by_service: BTreeMap<ServiceId, BTreeSet<Arc<str>>>,
    /// Names whose resource may be missing, stale or no longer needed.
    stale: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct InUse {
    set: EndpointSet,
    /// How many outbound halves refer to it.
    users: usize,
}

impl EndpointTable {
    /// One more user of each of these.
    pub(super) fn acquire(&mut self, sets: &BTreeMap<Arc<str>, EndpointSet>) {
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

    /// One user less of each of these.
    pub(super) fn release(&mut self, sets: &BTreeMap<Arc<str>, EndpointSet>) {
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

    /// The endpoints of this service may have changed.
    pub(super) fn touch(&mut self, service: &ServiceId) {
        if let Some(names) = self.by_service.get(service) {
            self.stale.extend(names.iter().cloned());
        }
    }

    /// The endpoints of all services may have changed.
    pub(super) fn touch_all(&mut self) {
        self.stale.extend(self.sets.keys().cloned());
    }

    /// Brings the world's table up to date; returns the names that changed.
    pub(super) fn refresh(&mut self, catalog: &Catalog, world: &mut World) -> BTreeSet<Arc<str>> {
        let mut changed = BTreeSet::new();
        for name in std::mem::take(&mut self.stale) {
            let Some(InUse { set, .. }) = self.sets.get(&name) else {
                if world.endpoints.remove(&name).is_some() {
                    changed.insert(name);
                }
                continue;
            };
            let resource = Resource::encode(ResourceType::Endpoint, &name, &set.assignment(&name, catalog));
            if world.endpoints.get(&name).is_none_or(|held| held.version != resource.version) {
                world.endpoints.insert(Arc::clone(&name), Arc::new(resource));
                changed.insert(name);
            }
        }
        changed
    }
}
