//! The resources that the server has: Kubernetes' own, and those that SMC's definitions define.
//!
//! Owns where each kind is, and what discovery says of it.

use std::sync::LazyLock;

use smc_types::object_ref::Kind;

use crate::kubernetes::{self, Objects};

/// A kind in one version.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) kind: Kind,
    /// Such as `discovery.k8s.io/v1`.
    pub(super) api_version: &'static str,
    pub(super) plural: &'static str,
}

impl Resource {
    /// Whether it is a custom resource, which is there only while its definition is.
    pub(super) fn is_custom(&self) -> bool {
        is_custom(self.kind)
    }

    /// What discovery says of it.
    pub(super) fn describe(&self) -> String {
        let (plural, kind, namespaced) = (self.plural, self.kind, self.kind != Kind::Namespace);
        format!(
            r#"{{"name":"{plural}","singularName":"","namespaced":{namespaced},"kind":"{kind}","verbs":["get","list","watch"]}},{{"name":"{plural}/status","singularName":"","namespaced":{namespaced},"kind":"{kind}","verbs":["get","patch","update"]}}"#
        )
    }
}

/// Whether objects of a kind are custom resources.
pub(super) fn is_custom(kind: Kind) -> bool {
    use Kind::{EndpointSlice, Namespace, Pod, Service, ServiceAccount};
    !matches!(kind, Namespace | Service | ServiceAccount | Pod | EndpointSlice)
}

/// All resources. Definitions are read once: that takes longer than a story.
pub(super) fn all() -> &'static [Resource] {
    static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
        let resources = Objects::default().resources().to_vec();
        let resource = |found: kubernetes::Resource| {
            let kind = Kind::of_name(&found.kind)?;
            Some(Resource { kind, api_version: found.api_version.leak(), plural: found.plural.leak() })
        };
        resources.into_iter().filter_map(resource).collect()
    });
    &RESOURCES
}

/// The group of an `apiVersion`; empty for the core group.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
