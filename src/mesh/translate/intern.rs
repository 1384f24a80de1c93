//! One allocation for each distinct resource, and one reading of its content by the lint.
//!
//! Owns the table of encoded resources. Proxies of different identities are served many equal
//! resources, such as the cluster of a service that both may call. They share the bytes, and the
//! lint reads each content once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use super::provenance::Objects;
use crate::lint::Facts;
use smc_types::object_ref::ObjectRef;
use smc_xds::resource::{Resource, ResourceType, Version};

/// A sweep follows once this many bytes may have become unused, or an eighth of all that is held if that is
/// more: a sweep looks at every entry, and costs no more than to encode so many bytes again.
const SWEEP_BYTES: usize = 256 * 1024;

/// What an entry takes besides the names in it.
const ENTRY_BYTES: usize = 256;

/// What a reference takes besides the name in it.
const REFERENCE_BYTES: usize = 48;

/// A resource with the facts that the lint read from it.
#[derive(Debug, Clone)]
pub(super) struct Interned {
    pub(super) resource: Arc<Resource>,
    pub(super) facts: Arc<Facts>,
}

impl Interned {
    /// Reads `resource` without adding it to a table.
    pub(super) fn of(resource: Resource) -> Self {
        let facts = Arc::new(Facts::of(&resource));
        Self { resource: Arc::new(resource), facts }
    }
}

/// A resource in the table. Only those who serve the resource hold it: it goes with the last of them.
#[derive(Debug)]
struct Held {
    resource: Weak<Resource>,
    facts: Arc<Facts>,
}

/// The table. Of a resource that is served no more it keeps the name and the facts until the next sweep.
#[derive(Debug, Default)]
pub(super) struct Interner {
    table: BTreeMap<(Version, ResourceType, Arc<str>), Held>,
    /// The sets of objects that resources are made of.
    objects: BTreeSet<Arc<[ObjectRef]>>,
    /// The bytes that entries take, without the resources.
    bytes: usize,
    /// The bytes that were added, or may have become unused, since the last sweep.
    churn: usize,
    #[cfg(test)]
    poisoned: Vec<Arc<Resource>>,
}

impl Interner {
    /// Returns the held resource that equals `resource`, or adds `resource` to the table.
    pub(super) fn share(&mut self, resource: Resource) -> Interned {
        let key = (resource.version, resource.kind, Arc::clone(&resource.name));
        if let Some(held) = self.table.get_mut(&key)
            && let Some(mut shared) = held.resource.upgrade()
        {
            if shared.made_of != resource.made_of {
                // Equal content made of other objects: it shares the bytes.
                shared = Arc::new(Resource::clone(&shared).made_of(resource.made_of));
                held.resource = Arc::downgrade(&shared);
            }
            return Interned { resource: shared, facts: Arc::clone(&held.facts) };
        }
        let facts = Arc::new(Facts::of(&resource));
        let interned = Interned { resource: Arc::new(resource.packed()), facts };
        let held = Held { resource: Arc::downgrade(&interned.resource), facts: Arc::clone(&interned.facts) };
        self.bytes += size(&key.2, &held.facts);
        self.churn += size(&key.2, &held.facts);
        if let Some(old) = self.table.insert(key, held) {
            self.bytes -= size(&interned.resource.name, &old.facts);
        }
        interned
    }

    /// Returns the one allocation of this set of objects.
    pub(super) fn objects(&mut self, objects: &Objects) -> Arc<[ObjectRef]> {
        let sorted: Vec<_> = objects.iter().cloned().collect();
        if let Some(held) = self.objects.get(&*sorted) {
            return Arc::clone(held);
        }
        let objects: Arc<[ObjectRef]> = sorted.into();
        self.bytes += size_of_objects(&objects);
        self.churn += size_of_objects(&objects);
        self.objects.insert(Arc::clone(&objects));
        objects
    }

    /// Notes that a snapshot does not serve this resource any more. Others may.
    pub(super) fn released(&mut self, resource: &Resource) {
        self.churn += ENTRY_BYTES + resource.name.len() + resource.any_len();
    }

    /// The entries of the table, the bytes that they take, and the encoded bytes of their resources.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize, usize) {
        let alive = self.table.values().filter_map(|held| held.resource.upgrade());
        let encoded = alive.map(|resource| resource.any_len() + resource.delta_len()).sum();
        (self.table.len() + self.objects.len(), self.bytes, encoded)
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
        let resource = Arc::new(resource.clone());
        self.bytes += size(&key.2, &facts);
        let held = Held { resource: Arc::downgrade(&resource), facts: Arc::new(facts) };
        if let Some(old) = self.table.insert(key, held) {
            self.bytes -= size(&resource.name, &old.facts);
        }
        self.poisoned.push(resource);
    }

    /// Drops the entries of resources, and the sets of objects, without a user, once they may be many.
    /// The cost is amortised over what was added or released.
    pub(super) fn sweep(&mut self) {
        if self.churn < SWEEP_BYTES.max(self.bytes / 8) {
            return;
        }
        self.churn = 0;
        self.table.retain(|_, held| held.resource.strong_count() > 0);
        self.objects.retain(|objects| Arc::strong_count(objects) > 1);
        let entries = self.table.iter().map(|((_, _, name), held)| size(name, &held.facts));
        let objects = self.objects.iter().map(|objects| size_of_objects(objects));
        self.bytes = entries.chain(objects).sum();
    }
}

fn size(name: &str, facts: &Facts) -> usize {
    let references = facts.references.iter().map(|(_, name)| REFERENCE_BYTES + name.len());
    let faults = facts.faults.iter().map(String::len);
    ENTRY_BYTES + name.len() + references.chain(faults).sum::<usize>()
}

fn size_of_objects(objects: &[ObjectRef]) -> usize {
    ENTRY_BYTES * (1 + objects.len())
}
