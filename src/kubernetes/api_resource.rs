//! Where an API server serves the objects of a custom kind.
//!
//! Owns the version in which SMC asks for them, and the way from one page of a list to the next.

use kube::api::{ApiResource, ListMeta, ListParams};
use kube::core::GroupVersionKind;
use smc_types::kind::{Kind, KindSpec};

/// The resource of a custom kind, in the version that is stored. `None` for kinds of Kubernetes itself.
pub(crate) fn api_resource(kind: Kind) -> Option<ApiResource> {
    let spec = kind.spec();
    let KindSpec { name, group, plural, .. } = spec;
    let stored = spec.stored_version()?;
    Some(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, stored, name), plural))
}

/// What to ask for after the page of `asked` whose metadata are these; `None` after the last one.
pub(crate) fn next_page(asked: ListParams, metadata: &ListMeta) -> Option<ListParams> {
    let token = metadata.continue_.as_deref().filter(|token| !token.is_empty())?;
    Some(asked.continue_token(token))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use smc_types::ids::MeshNamespace;

    use super::*;
    use crate::crds::definitions;

    #[test]
    fn every_custom_kind_is_asked_for_in_the_version_that_is_stored() {
        let resources = Kind::ALL.iter().filter_map(|kind| Some((kind, api_resource(*kind)?)));
        let written: BTreeSet<_> = resources
            .map(|(kind, resource)| {
                assert_eq!(kind.as_str(), resource.kind);
                (format!("{}.{}", resource.plural, resource.group), resource.version)
            })
            .collect();
        let stored = definitions(&MeshNamespace::default()).unwrap().into_iter().map(|definition| {
            let versions = definition.as_json()["spec"]["versions"].as_array().unwrap();
            let stored = versions.iter().find(|version| version["storage"] == true).unwrap();
            (definition.name().to_owned(), stored["name"].as_str().unwrap().to_owned())
        });
        assert_eq!(written, stored.collect::<BTreeSet<_>>());
    }
}
