//! Whether an installation is the one that a command means.
//!
//! Owns the reasons to leave it alone: objects of another mesh would be made beside it, with selectors that
//! find none of its pods, and helm would take back what it did not write.

use serde_json::Value;
use smc_types::ids::{MeshName, MeshNamespace};
use thiserror::Error;

use super::settings::argument;

/// Where helm writes the name of the release that an object belongs to.
const HELM_RELEASE: &str = "/metadata/annotations/meta.helm.sh~1release-name";

/// The installation is not that of the command. Trying again does not help.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OwnershipError {
    /// The mesh has another name.
    #[error("the mesh in {namespace} is {installed}: use --mesh-name {installed}")]
    OtherMesh {
        /// The namespace of the control plane.
        namespace: MeshNamespace,
        /// The name of its mesh.
        installed: String,
    },
    /// Helm keeps the record of it.
    #[error("helm installed SMC in {namespace}, as the release {release}: use `helm {instead} {release}`")]
    Helm {
        /// The namespace of the control plane.
        namespace: MeshNamespace,
        /// The release.
        release: String,
        /// The command of helm.
        instead: &'static str,
    },
}

/// Refuses an installation in `namespace`, of which `set` is the StatefulSet, unless it is that of `mesh` and
/// not helm's. `instead` is what helm calls the command.
pub fn check(
    set: &Value,
    mesh: &MeshName,
    namespace: &MeshNamespace,
    instead: &'static str,
) -> Result<(), OwnershipError> {
    if let Some(release) = helm_release(set) {
        let (namespace, release) = (namespace.clone(), release.to_owned());
        return Err(OwnershipError::Helm { namespace, release, instead });
    }
    match other_mesh(set, mesh.as_str()) {
        Some(installed) => Err(OwnershipError::OtherMesh { namespace: namespace.clone(), installed }),
        None => Ok(()),
    }
}

/// The namespace of the control plane that an object of a whole cluster is for: a webhook configuration, or
/// the binding of the controllers' rights. These are named after the mesh alone.
pub fn leads_to(object: &Value) -> Option<&str> {
    let of_webhook = object.pointer("/webhooks/0/clientConfig/service/namespace");
    of_webhook.or_else(|| object.pointer("/subjects/0/namespace"))?.as_str()
}

/// The release of helm's that `set`, a StatefulSet, belongs to.
pub fn helm_release(set: &Value) -> Option<&str> {
    set.pointer(HELM_RELEASE).and_then(Value::as_str)
}

/// The name of the mesh of `set`, a StatefulSet, if it is not `mesh`.
pub fn other_mesh(set: &Value, mesh: &str) -> Option<String> {
    argument(set, "--mesh-name=").filter(|installed| installed != mesh)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::manifests::chart_objects;
    use crate::install::settings::Settings;

    #[test]
    fn what_a_whole_cluster_has_one_of_says_which_control_plane_it_is_for() {
        let namespace = MeshNamespace::new("blue-system").unwrap();
        let objects = chart_objects(&Settings::new(MeshName::default(), namespace)).unwrap();
        let whole: Vec<_> =
            objects.iter().filter(|object| object.pointer("/metadata/namespace").is_none()).collect();
        let led: Vec<_> = whole.iter().filter_map(|object| leads_to(object)).collect();
        assert_eq!(led, ["blue-system"; 3], "{whole:#?}");
    }
}
