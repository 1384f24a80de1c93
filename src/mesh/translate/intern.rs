//! One allocation for each distinct resource, and one look at its content.
//!
//! Owns the table of encoded resources. Proxies of different identities are served many equal resources
//! (the cluster of a service is the same for all who may call it); they share the bytes, and the lint
//! looks at each content once, when it first appears.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use crate::lint::Facts;
use crate::resource::{Resource, ResourceType, Version};

/// A sweep is not worth its time below this many resources.
const SMALL: usize = 1024;

/// A resource with what the lint found in it.
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

/// The table. Holds resources that nobody else holds until the next sweep, so that one which goes and
/// comes back is not encoded twice; at most about as many as are in use.
#[derive(Debug, Default)]
pub(super) struct Interner {
    table: BTreeMap<(Version, ResourceType, Arc<str>), Interned>,
    in_use: usize,
}

impl Interner {
    /// Encodes `message`, and returns the resource that has this content already if there is one.
    pub(super) fn encode(&mut self, kind: ResourceType, name: &str, message: &impl Message) -> Interned {
        let resource = Resource::encode(kind, name, message);
        let key = (resource.version, kind, Arc::clone(&resource.name));
        self.table.entry(key).or_insert_with(|| Interned::of(resource)).clone()
    }

    /// Encodes `message`, and leaves the table as it is.
    pub(super) fn encode_unshared(&self, kind: ResourceType, name: &str, message: &impl Message) -> Interned {
        let resource = Resource::encode(kind, name, message);
        let key = (resource.version, kind, Arc::clone(&resource.name));
        self.table.get(&key).cloned().unwrap_or_else(|| Interned::of(resource))
    }

    /// Whether the table holds something of this name.
    #[cfg(test)]
    pub(super) fn holds(&self, name: &str) -> bool {
        self.table.keys().any(|(_, _, held)| **held == *name)
    }

    /// From now on, content that equals this resource's is taken to have a fault.
    #[cfg(test)]
    pub(super) fn poison(&mut self, resource: &Resource) {
        let key = (resource.version, resource.kind, Arc::clone(&resource.name));
        let facts = Facts { faults: vec!["is poisoned".to_owned()], ..Facts::of(resource) };
        self.table.insert(key, Interned { resource: Arc::new(resource.clone()), facts: Arc::new(facts) });
    }

    /// Drops what nobody holds, once it may be half of the table: the cost is spread over the additions.
    pub(super) fn sweep(&mut self) {
        if self.table.len() > SMALL && self.table.len() > 2 * self.in_use {
            self.table.retain(|_, interned| Arc::strong_count(&interned.resource) > 1);
            self.in_use = self.table.len();
        }
    }
}
