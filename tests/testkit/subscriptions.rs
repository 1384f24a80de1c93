//! What an Envoy subscribes to: all clusters and listeners, and by name what the resources that it holds
//! refer to, for as long as they do.
//!
//! Owns the order of a stream's first requests, and the requests that follow from a response.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, Resource as Delivered};
use prost::Message as _;
use smc_mesh::lint::Facts;
use smc_xds::resource::{ResourceType, Version};

/// The order of types in which Envoy subscribes.
const TYPES: [ResourceType; 6] = [
    ResourceType::Cluster,
    ResourceType::Endpoint,
    ResourceType::Listener,
    ResourceType::ExtensionConfig,
    ResourceType::Route,
    ResourceType::Secret,
];

/// A resource's type and name.
type Key = (ResourceType, String);

/// The names that one proxy has subscribed to, by type. They outlast its streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscriptions {
    names: BTreeMap<ResourceType, BTreeSet<String>>,
    /// What each resource refers to.
    references: BTreeMap<Key, BTreeSet<Key>>,
    /// How many resources refer to a name.
    counts: BTreeMap<Key, usize>,
}

/// The subscriptions that follow from a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Followed {
    /// The names that are new.
    pub subscribe: BTreeMap<ResourceType, Vec<String>>,
    /// The names to which nothing refers any more.
    pub unsubscribe: BTreeMap<ResourceType, Vec<String>>,
}

impl Followed {
    /// The requests that say so.
    pub fn requests(self) -> impl Iterator<Item = DeltaDiscoveryRequest> {
        let new = self.subscribe.into_iter().map(|(kind, names)| subscribe(kind, names));
        new.chain(self.unsubscribe.into_iter().map(|(kind, names)| unsubscribe(kind, names)))
    }
}

impl Subscriptions {
    /// Subscribes to this name from the first stream on, whatever refers to it.
    pub fn to(kind: ResourceType, name: &str) -> Self {
        let names = BTreeMap::from([(kind, BTreeSet::from([name.to_owned()]))]);
        Self { names, counts: BTreeMap::from([((kind, name.to_owned()), 1)]), ..Self::default() }
    }

    /// The first requests of a stream of a proxy that holds resources in these versions.
    pub fn first(
        &self,
        node: Node,
        held: impl Fn(ResourceType) -> BTreeMap<String, String>,
    ) -> Vec<DeltaDiscoveryRequest> {
        let mut node = Some(node);
        let subscribed = TYPES.into_iter().filter(|kind| kind.is_wildcard() || self.names.contains_key(kind));
        let first = subscribed.map(|kind| DeltaDiscoveryRequest {
            node: node.take(),
            initial_resource_versions: held(kind).into_iter().collect(),
            ..subscribe(kind, self.names.get(&kind).into_iter().flatten().cloned().collect())
        });
        first.collect()
    }

    /// Follows a response: subscribes to what its resources refer to, and no longer to what only resources
    /// referred to that are gone or say something else now.
    pub fn follow(&mut self, kind: ResourceType, delivered: &[Delivered], removed: &[String]) -> Followed {
        let mut followed = Followed::default();
        // Thousands of clients of a bench share the cores with the replicas: they read what can refer to
        // others.
        if matches!(kind, ResourceType::Endpoint | ResourceType::Secret) {
            return followed;
        }
        let mut dropped = BTreeSet::new();
        let changes = delivered.iter().map(|delivered| (&delivered.name, references(kind, delivered)));
        for (name, now) in changes.chain(removed.iter().map(|name| (name, BTreeSet::new()))) {
            let before = self.references.insert((kind, name.clone()), now.clone()).unwrap_or_default();
            for key in now.difference(&before) {
                *self.counts.entry(key.clone()).or_default() += 1;
                if self.names.entry(key.0).or_default().insert(key.1.clone()) {
                    followed.subscribe.entry(key.0).or_default().push(key.1.clone());
                }
            }
            for key in before.difference(&now) {
                self.counts.entry(key.clone()).and_modify(|count| *count -= 1);
                dropped.insert(key.clone());
            }
        }
        for key in dropped {
            if self.counts.get(&key) != Some(&0) {
                continue;
            }
            self.counts.remove(&key);
            let (kind, name) = key;
            if self.names.get_mut(&kind).is_some_and(|names| names.remove(&name)) {
                followed.unsubscribe.entry(kind).or_default().push(name);
            }
        }
        followed
    }
}

/// The request that subscribes to these names too.
pub fn subscribe(kind: ResourceType, names: Vec<String>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: kind.url().to_owned(),
        resource_names_subscribe: names,
        ..DeltaDiscoveryRequest::default()
    }
}

/// The request that ends the subscription to these names.
fn unsubscribe(kind: ResourceType, names: Vec<String>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: kind.url().to_owned(),
        resource_names_unsubscribe: names,
        ..DeltaDiscoveryRequest::default()
    }
}

/// The endpoints, routes and secrets that a resource refers to.
fn references(kind: ResourceType, delivered: &Delivered) -> BTreeSet<Key> {
    let Some(any) = &delivered.resource else { return BTreeSet::new() };
    let version = delivered.version.parse().unwrap_or_else(|_| Version::of(&any.value));
    let facts = Facts::of_any(kind, &delivered.name, version, &any.encode_to_vec());
    let references = facts.references.into_iter();
    references.filter(|(kind, _)| !kind.is_wildcard()).map(|(kind, name)| (kind, name.to_string())).collect()
}
