//! The resources that the server has: Kubernetes' own, and those that SMC's definitions define.
//!
//! Owns where each kind is, and what discovery says of it.

use std::sync::LazyLock;

use serde_json::Value;
use smc_kubernetes::crds::definitions;
use smc_types::ids::MeshNamespace;
use smc_types::object_ref::Kind;

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
        self.kind.spec().custom
    }

    /// What discovery says of it.
    pub(super) fn describe(&self) -> String {
        let (plural, kind, namespaced) = (self.plural, self.kind, self.kind != Kind::Namespace);
        format!(
            r#"{{"name":"{plural}","singularName":"","namespaced":{namespaced},"kind":"{kind}","verbs":["get","list","watch"]}},{{"name":"{plural}/status","singularName":"","namespaced":{namespaced},"kind":"{kind}","verbs":["get","patch","update"]}}"#
        )
    }
}

/// All resources. Definitions are read once: that takes longer than a story.
pub(super) fn all() -> &'static [Resource] {
    static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
        let built_in = Kind::ALL.iter().map(|kind| kind.spec()).filter(|spec| !spec.custom);
        let built_in = built_in.flat_map(|spec| {
            spec.api_versions().map(|version| (version, spec.name.to_owned(), spec.plural.to_owned()))
        });
        built_in.chain(custom()).filter_map(resource).collect()
    });
    &RESOURCES
}

fn resource((api_version, kind, plural): (String, String, String)) -> Option<Resource> {
    let kind = Kind::of_name(&kind)?;
    Some(Resource { kind, api_version: api_version.leak(), plural: plural.leak() })
}

/// The custom resources of SMC: `apiVersion`, kind and plural.
fn custom() -> impl Iterator<Item = (String, String, String)> {
    let definitions = definitions(&MeshNamespace::default()).expect("valid definitions");
    definitions.into_iter().flat_map(|definition| {
        let spec = definition.as_json()["spec"].clone();
        let versions = spec["versions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let served = versions.into_iter().filter(|version| version["served"] == true);
        let resources = served.map(|version| {
            let api_version = format!("{}/{}", text(&spec["group"]), text(&version["name"]));
            (api_version, text(&spec["names"]["kind"]), text(&spec["names"]["plural"]))
        });
        resources.collect::<Vec<_>>()
    })
}

/// The group of an `apiVersion`; empty for the core group.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
