//! One allocation for each distinct resource, and one reading of its content by the lint.
//!
//! Owns the table of encoded resources. Proxies of different identities are served many equal
//! resources, such as the cluster of a service that both may call. They share the bytes, and the
//! lint reads each content once.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use super::provenance::Objects;
use crate::lint::Facts;
use crate::resource::{Resource, ResourceType, Version};
use smc_types::object_ref::ObjectRef;

/// Below this many resources a sweep costs more than it frees.
const SMALL: usize = 1024;

/// A resource with the facts that the lint read from it.
#[derive(Debug, Clone)]
pub(super) struct Interned {
    pub(super) resource: Arc<Resource>,
    pub(super) facts: Arc<Facts>,
}

impl Interned {
    fn of(resource: Resource) -> Self {
        let facts = Arc::new(Facts::of(&resource));
        Self { resource: Arc::new(resource), facts }
    }
}

/// The table. It keeps unused resources until the next sweep, in case they are used again: at most
/// about as many as are in use.
#[derive(Debug, Default)]
pub(super) struct Interner {
    table: BTreeMap<(Version, ResourceType, Arc<str>), Interned>,
    in_use: usize,
    /// The sets of objects that resources are made of.
    objects: BTreeSet<Arc<[ObjectRef]>>,
    objects_in_use: usize,
}

impl Interner {
    /// Returns the held resource that equals `resource`, or adds `resource` to the table.
    pub(super) fn share(&mut self, resource: Resource) -> Interned {
        let key = (resource.version, resource.kind, Arc::clone(&resource.name));
        match self.table.entry(key) {
            Entry::Vacant(vacant) => vacant.insert(Interned::of(resource)).clone(),
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                if held.resource.made_of != resource.made_of {
                    // Equal content made of other objects: it shares the bytes.
                    let resource = Resource::clone(&held.resource).made_of(resource.made_of);
                    held.resource = Arc::new(resource);
                }
                held.clone()
            }
        }
    }

    /// Returns the one allocation of this set of objects.
    pub(super) fn objects(&mut self, objects: &Objects) -> Arc<[ObjectRef]> {
        let sorted: Vec<_> = objects.iter().cloned().collect();
        if let Some(held) = self.objects.get(&*sorted) {
            return Arc::clone(held);
        }
        let objects: Arc<[ObjectRef]> = sorted.into();
        self.objects.insert(Arc::clone(&objects));
        objects
    }

    /// Inspects `resource` without adding it to the table.
    pub(super) fn inspect(&self, resource: Resource) -> Interned {
        let key = (resource.version, resource.kind, Arc::clone(&resource.name));
        self.table.get(&key).cloned().unwrap_or_else(|| Interned::of(resource))
    }

    /// Whether the table holds a resource of this name.
    #[cfg(test)]
    pub(super) fn holds(&self, name: &str) -> bool {
        self.table.keys().any(|(_, _, held)| **held == *name)
    }

    /// Makes the lint find a fault in content that equals this resource's.
    #[cfg(test)]
    pub(super) fn poison(&mut self, resource: &Resource) {
        let key = (resource.version, resource.kind, Arc::clone(&resource.name));
        let facts = Facts { faults: vec!["is poisoned".to_owned()], ..Facts::of(resource) };
        self.table.insert(key, Interned { resource: Arc::new(resource.clone()), facts: Arc::new(facts) });
    }

    /// Drops unused resources and sets of objects, once they may be half of their table. The cost is
    /// amortised over additions.
    pub(super) fn sweep(&mut self) {
        if self.table.len() > SMALL && self.table.len() > 2 * self.in_use {
            self.table.retain(|_, interned| Arc::strong_count(&interned.resource) > 1);
            self.in_use = self.table.len();
        }
        // They have a condition of their own: content may stay the same while objects are renamed.
        if self.objects.len() > SMALL && self.objects.len() > 2 * self.objects_in_use {
            self.objects.retain(|objects| Arc::strong_count(objects) > 1);
            self.objects_in_use = self.objects.len();
        }
    }
}
