//! What an Envoy subscribes to: all clusters and listeners, and by name what the resources that it holds
//! refer to.
//!
//! Owns the order of a stream's first requests, and the requests that follow from a response.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, Resource as Delivered};
use prost::Message as _;
use smc_mesh::lint::Facts;
use smc_mesh::resource::{ResourceType, Version};

/// The order of types in which Envoy subscribes.
const TYPES: [ResourceType; 5] = [
    ResourceType::Cluster,
    ResourceType::Endpoint,
    ResourceType::Listener,
    ResourceType::Route,
    ResourceType::Secret,
];

/// The names that one proxy has subscribed to, by type. They outlast its streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscriptions(BTreeMap<ResourceType, BTreeSet<String>>);

impl Subscriptions {
    /// Subscribes to this name from the first stream on, whatever refers to it.
    pub fn to(kind: ResourceType, name: &str) -> Self {
        Self(BTreeMap::from([(kind, BTreeSet::from([name.to_owned()]))]))
    }

    /// The first requests of a stream of a proxy that holds resources in these versions.
    pub fn first(
        &self,
        node: Node,
        held: impl Fn(ResourceType) -> BTreeMap<String, String>,
    ) -> Vec<DeltaDiscoveryRequest> {
        let mut node = Some(node);
        let subscribed = TYPES.into_iter().filter(|kind| kind.is_wildcard() || self.0.contains_key(kind));
        let first = subscribed.map(|kind| DeltaDiscoveryRequest {
            node: node.take(),
            initial_resource_versions: held(kind).into_iter().collect(),
            ..subscribe(kind, self.0.get(&kind).into_iter().flatten().cloned().collect())
        });
        first.collect()
    }

    /// Subscribes to what the resources of a response refer to. Returns the names that are new, by type.
    pub fn follow(
        &mut self,
        kind: ResourceType,
        delivered: &[Delivered],
    ) -> BTreeMap<ResourceType, Vec<String>> {
        let mut new: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (kind, name) in delivered.iter().flat_map(|delivered| references(kind, delivered)) {
            if self.0.entry(kind).or_default().insert(name.clone()) {
                new.entry(kind).or_default().push(name);
            }
        }
        new
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

/// The endpoints, routes and secrets that a resource refers to.
fn references(kind: ResourceType, delivered: &Delivered) -> Vec<(ResourceType, String)> {
    // Thousands of clients of a bench share the cores with the replicas: they read what can refer to others.
    if matches!(kind, ResourceType::Endpoint | ResourceType::Secret) {
        return Vec::new();
    }
    let Some(any) = &delivered.resource else { return Vec::new() };
    let version = delivered.version.parse().unwrap_or_else(|_| Version::of(&any.value));
    let facts = Facts::of_any(kind, &delivered.name, version, &any.encode_to_vec());
    let references = facts.references.into_iter();
    references.filter(|(kind, _)| !kind.is_wildcard()).map(|(kind, name)| (kind, name.to_string())).collect()
}
