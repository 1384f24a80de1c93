//! What a person may choose about an installation.
//!
//! Owns the choices, their defaults, and how an upgrade finds those of the installation that it replaces.

use serde_json::Value;
use smc_types::ids::{MeshName, MeshNamespace};

/// The Envoy of sidecars.
pub const ENVOY_IMAGE: &str = "docker.io/envoyproxy/envoy:v1.40.0";

/// The Secret of the key-encryption key where a person names none.
const KEY_SECRET: &str = "smc-kek";

/// The volume of the key-encryption key.
pub(crate) const KEY_VOLUME: &str = "kek";

/// The volume of the other key-encryption key.
pub(crate) const OTHER_KEY_VOLUME: &str = "kek-also";

/// The disks of the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disks {
    /// A volume for each, of a storage class or of the cluster's default one.
    Persistent {
        /// The size, as Kubernetes writes it.
        size: String,
        /// The storage class.
        class: Option<String>,
    },
    /// None: the mesh of one controller is lost with its pod.
    Ephemeral,
}

/// The choices of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the mesh.
    pub mesh: MeshName,
    /// The namespace of the control plane.
    pub namespace: MeshNamespace,
    /// The namespace whose control plane converts TrafficSplits. The definition is the cluster's: where there
    /// are several meshes, one of them converts for all.
    pub converting: MeshNamespace,
    /// The trust domain.
    pub trust_domain: String,
    /// The image of the controller.
    pub image: String,
    /// The image of Envoy.
    pub envoy_image: String,
    /// The resources, the spread and the failure policy of several controllers.
    pub high_availability: bool,
    /// How many controllers; `None` for as many as the profile has.
    pub replicas: Option<u64>,
    /// The most controllers.
    pub max_replicas: u64,
    /// Their disks.
    pub disks: Disks,
    /// The Secret of the key-encryption key.
    pub key: String,
    /// Another one, whose key is accepted while one key takes the place of the other.
    pub other_key: Option<String>,
}

impl Settings {
    /// What an installation into this namespace is without any choice.
    pub fn new(mesh: MeshName, namespace: MeshNamespace) -> Self {
        Self {
            mesh,
            converting: namespace.clone(),
            namespace,
            trust_domain: "cluster.local".to_owned(),
            image: default_image(),
            envoy_image: ENVOY_IMAGE.to_owned(),
            high_availability: false,
            replicas: None,
            max_replicas: 5,
            disks: Disks::Persistent { size: "1Gi".to_owned(), class: None },
            key: KEY_SECRET.to_owned(),
            other_key: None,
        }
    }

    /// The settings of the installation that `set`, its StatefulSet, shows, with the images of this
    /// version, from the repositories of those that it has. What cannot be changed stays as it was, and so
    /// does the number of replicas, which `kubectl scale` changes as well.
    #[must_use]
    pub fn continued(mut self, set: &Value) -> Self {
        if let Some(domain) = argument(set, "--trust-domain=") {
            self.trust_domain = domain;
        }
        if let Some(max) = argument(set, "--max-replicas=").and_then(|max| max.parse().ok()) {
            self.max_replicas = max;
        }
        if let Some(installed) = text(set, "/spec/template/spec/containers/0/image") {
            self.image = from_repository(&installed, &self.image);
        }
        if let Some(installed) = argument(set, "--envoy-image=") {
            self.envoy_image = from_repository(&installed, &self.envoy_image);
        }
        self.replicas = set.pointer("/spec/replicas").and_then(Value::as_u64).or(self.replicas);
        let claim = set.pointer("/spec/volumeClaimTemplates/0/spec");
        self.disks = match claim {
            None => Disks::Ephemeral,
            Some(claim) => Disks::Persistent {
                size: text(claim, "/resources/requests/storage").unwrap_or_else(|| "1Gi".to_owned()),
                class: text(claim, "/storageClassName"),
            },
        };
        key_secret(set).clone_into(&mut self.key);
        self.other_key = other_key_secret(set).map(str::to_owned);
        self.high_availability = spreads(set);
        self
    }

    /// The settings with the images that `set` names, whatever their version.
    #[must_use]
    pub fn with_images_of(mut self, set: &Value) -> Self {
        self.image = text(set, "/spec/template/spec/containers/0/image").unwrap_or(self.image);
        self.envoy_image = argument(set, "--envoy-image=").unwrap_or(self.envoy_image);
        self
    }
}

/// The namespace whose control plane converts the objects of `definition`, a CustomResourceDefinition.
pub fn converting(definition: &Value) -> Option<MeshNamespace> {
    let namespace = text(definition, "/spec/conversion/webhook/clientConfig/service/namespace")?;
    MeshNamespace::new(&namespace).ok()
}

/// The version of `wanted`, an image, in the repository of `installed`: a registry of one's own has copies
/// under the tags of the originals.
fn from_repository(installed: &str, wanted: &str) -> String {
    let version = wanted.strip_prefix(repository(wanted)).unwrap_or_default();
    format!("{}{version}", repository(installed))
}

/// An image without its tag and digest (<https://github.com/opencontainers/distribution-spec>): a colon
/// before the last slash is that of a port.
fn repository(image: &str) -> &str {
    let untagged = image.split_once('@').map_or(image, |(named, _)| named);
    let name = untagged.rfind('/').map_or(0, |slash| slash + 1);
    untagged[name..].find(':').map_or(untagged, |colon| &untagged[..name + colon])
}

/// The image of this version.
pub fn default_image() -> String {
    concat!("smc:", env!("CARGO_PKG_VERSION")).to_owned()
}

/// Whether controllers may share no node, which the settings for production ask for.
fn spreads(set: &Value) -> bool {
    let constraints = set.pointer("/spec/template/spec/topologySpreadConstraints").and_then(Value::as_array);
    constraints.into_iter().flatten().any(|constraint| constraint["whenUnsatisfiable"] == "DoNotSchedule")
}

/// The version of the manifests that `set` is of.
pub fn installed_version(set: &Value) -> Option<&str> {
    set.pointer("/metadata/labels/app.kubernetes.io~1version").and_then(Value::as_str)
}

/// The Secret with the key-encryption key of the controllers.
pub fn key_secret(set: &Value) -> &str {
    mounted_secret(set, KEY_VOLUME).unwrap_or(KEY_SECRET)
}

/// The Secret with another key, which the controllers accept beside it.
pub fn other_key_secret(set: &Value) -> Option<&str> {
    mounted_secret(set, OTHER_KEY_VOLUME)
}

/// The Secret that the controllers mount as `volume`.
fn mounted_secret<'a>(set: &'a Value, volume: &str) -> Option<&'a str> {
    let volumes = set.pointer("/spec/template/spec/volumes")?.as_array()?;
    volumes.iter().find(|mounted| mounted["name"] == volume)?["secret"]["secretName"].as_str()
}

/// The argument of the controller that begins with `flag`.
pub fn argument(set: &Value, flag: &str) -> Option<String> {
    let arguments = set.pointer("/spec/template/spec/containers/0/args")?.as_array()?;
    arguments
        .iter()
        .filter_map(Value::as_str)
        .find_map(|argument| argument.strip_prefix(flag).map(str::to_owned))
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_this_version_comes_from_the_repository_that_is_used() {
        for (installed, expected) in [
            ("smc:0.0.9", "smc:0.1.0"),
            ("smc", "smc:0.1.0"),
            ("registry.example:5000/mesh/smc:0.0.9", "registry.example:5000/mesh/smc:0.1.0"),
            ("registry.example:5000/smc", "registry.example:5000/smc:0.1.0"),
            ("registry.example/smc@sha256:0a", "registry.example/smc:0.1.0"),
            ("registry.example/smc:0.0.9@sha256:0a", "registry.example/smc:0.1.0"),
        ] {
            assert_eq!(from_repository(installed, "docker.io/library/smc:0.1.0"), expected, "{installed:?}");
        }
    }
}
