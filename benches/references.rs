//! What delivered resources refer to.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::service::discovery::v3::Resource as Delivered;
use prost::Message;
use smc_mesh::lint::Facts;
use smc_mesh::resource::{Resource, ResourceType, Version};

/// The endpoints, routes and secrets that resources reference, by type.
pub fn references(kind: ResourceType, delivered: &[Delivered]) -> BTreeMap<ResourceType, BTreeSet<String>> {
    let mut references: BTreeMap<ResourceType, BTreeSet<String>> = BTreeMap::new();
    for Delivered { name, resource: any, .. } in delivered {
        let Some(any) = any else { continue };
        let resource = Resource {
            kind,
            name: name.as_str().into(),
            version: Version::of(&any.value),
            any: any.encode_to_vec().into(),
            delta: Vec::new().into(),
            warms_on: None,
            made_of: std::sync::Arc::default(),
        };
        for (kind, name) in Facts::of(&resource).references {
            if !kind.is_wildcard() {
                references.entry(kind).or_default().insert(name.to_string());
            }
        }
    }
    references
}
