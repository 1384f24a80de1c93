//! The objects of an installation.
//!
//! Owns how settings become objects. The chart is the only place where they are written down:
//! `deploy/render` renders it once for each profile, with markers for what a person chooses, and this program
//! contains the result. So `smc install` needs no helm, and makes what helm makes; a test compares the two.

use serde_json::{Value, json};
use smc_decode::manifest::documents::split;
use thiserror::Error;

use super::settings::{Disks, KEY_VOLUME, OTHER_KEY_VOLUME, Settings};
use crate::crds::{DefinitionError, definitions};

const SINGLE: &str = include_str!("templates/single.yaml");
const HIGH_AVAILABILITY: &str = include_str!("templates/ha.yaml");

/// The objects of this program cannot be made, which is a bug.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// A template is no YAML.
    #[error("the manifests in this program cannot be read")]
    Template(#[from] serde_saphyr::Error),
    /// A template lacks what is to be set.
    #[error("the manifests in this program have no {0}")]
    Missing(&'static str),
    /// A definition cannot be made.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// An object cannot be written as YAML.
    #[error("cannot write an object as YAML")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// The objects of the chart `smc`, as `helm template` makes them with the same choices, in the order in which
/// they are applied: what others need comes first, and the webhooks after what serves them.
pub fn chart_objects(settings: &Settings) -> Result<Vec<Value>, ManifestError> {
    let template = if settings.high_availability { HIGH_AVAILABILITY } else { SINGLE };
    let mut objects = Vec::new();
    for document in split(template) {
        let mut object: Value = serde_saphyr::from_str(document.text)?;
        if is_beyond(&object, settings.max_replicas) {
            continue;
        }
        fill_in(&mut object, settings);
        if object["kind"] == "StatefulSet" {
            set_replicas(&mut object, settings)?;
            set_disks(&mut object, &settings.disks)?;
            set_keys(&mut object, settings)?;
        }
        if object["kind"] == "ValidatingAdmissionPolicy" && object["spec"].get("variables").is_some() {
            set_key_of_policy(&mut object, settings)?;
        }
        objects.push(object);
    }
    objects.sort_by_key(|object| rank(object["kind"].as_str().unwrap_or_default()));
    Ok(objects)
}

/// All objects of an installation: the namespace, the definitions of custom resources, and the chart's.
pub fn all_objects(settings: &Settings) -> Result<Vec<Value>, ManifestError> {
    let mut objects = vec![namespace(settings)];
    objects.extend(definitions(&settings.converting)?.iter().map(|definition| definition.as_json().clone()));
    objects.extend(chart_objects(settings)?);
    Ok(objects)
}

/// Whether an object stays when the installation goes: running sidecars know the controllers by it. The chart
/// says so by helm's annotation.
pub fn is_kept(object: &Value) -> bool {
    object.pointer("/metadata/annotations/helm.sh~1resource-policy").is_some_and(|policy| policy == "keep")
}

/// The objects as a stream of YAML documents.
pub fn to_yaml(objects: &[Value]) -> Result<String, ManifestError> {
    let documents = objects.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

/// The control plane's namespace. Its pods keep to the restricted Pod Security Standard.
fn namespace(settings: &Settings) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": settings.namespace.as_str(),
            "labels": {
                "app.kubernetes.io/part-of": "smc",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    })
}

/// The kinds of the chart that say what the controllers may do.
pub(super) const RIGHTS: [&str; 7] = [
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// The order of kinds: names and rights first, then what runs with them, then what calls it.
fn rank(kind: &str) -> usize {
    const OTHERS: [&str; 4] = ["Service", "NetworkPolicy", "PodDisruptionBudget", "StatefulSet"];
    let mut order = RIGHTS.iter().chain(&OTHERS);
    order.position(|known| *known == kind).unwrap_or(RIGHTS.len() + OTHERS.len())
}

/// Replaces the markers in all texts.
fn fill_in(value: &mut Value, settings: &Settings) {
    match value {
        Value::String(text) => {
            for (marker, chosen) in [
                ("marker-image:marker-tag", settings.image.as_str()),
                ("marker-envoy", &settings.envoy_image),
                ("marker-domain", &settings.trust_domain),
                ("marker-namespace", settings.namespace.as_str()),
                ("marker-mesh", settings.mesh.as_str()),
            ] {
                if text.contains(marker) {
                    *text = text.replace(marker, chosen);
                    // What was filled in is not looked at again: it could look like a marker.
                    return;
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, settings)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill_in(field, settings)),
        _ => {}
    }
}

/// Whether the object is for a replica beyond the greatest number of them. The templates have a Service for
/// each replica that any installation may have.
fn is_beyond(object: &Value, max: u64) -> bool {
    let pod = object.pointer("/spec/selector/statefulset.kubernetes.io~1pod-name").and_then(Value::as_str);
    let ordinal =
        pod.and_then(|pod| pod.rsplit_once('-')).and_then(|(_, ordinal)| ordinal.parse::<u64>().ok());
    ordinal.is_some_and(|ordinal| ordinal >= max)
}

/// The Secret that the controllers may make in their namespace.
fn set_key_of_policy(policy: &mut Value, settings: &Settings) -> Result<(), ManifestError> {
    let variables = policy.pointer_mut("/spec/variables").and_then(Value::as_array_mut);
    let key = variables.into_iter().flatten().find(|variable| variable["name"] == "key");
    key.ok_or(ManifestError::Missing("variable for the key"))?["expression"] =
        format!("'{}'", settings.key).into();
    Ok(())
}

fn set_replicas(set: &mut Value, settings: &Settings) -> Result<(), ManifestError> {
    if let Some(replicas) = settings.replicas {
        let place = set.pointer_mut("/spec/replicas").ok_or(ManifestError::Missing("replicas"))?;
        *place = replicas.into();
        let noted = set.pointer_mut("/metadata/annotations/mesh.smc.dev~1replicas");
        *noted.ok_or(ManifestError::Missing("annotation"))? = replicas.to_string().into();
    }
    let arguments = set.pointer_mut("/spec/template/spec/containers/0/args").and_then(Value::as_array_mut);
    let arguments = arguments.ok_or(ManifestError::Missing("arguments"))?;
    let is_max = |argument: &Value| argument.as_str().is_some_and(|text| text.starts_with("--max-replicas="));
    let max = arguments.iter_mut().find(|argument| is_max(argument));
    *max.ok_or(ManifestError::Missing("--max-replicas"))? =
        format!("--max-replicas={}", settings.max_replicas).into();
    Ok(())
}

fn set_disks(set: &mut Value, disks: &Disks) -> Result<(), ManifestError> {
    match disks {
        Disks::Persistent { size, class } => {
            let claim = set.pointer_mut("/spec/volumeClaimTemplates/0/spec").and_then(Value::as_object_mut);
            let claim = claim.ok_or(ManifestError::Missing("claims of volumes"))?;
            claim.insert("resources".to_owned(), json!({ "requests": { "storage": size } }));
            match class {
                Some(class) => drop(claim.insert("storageClassName".to_owned(), class.clone().into())),
                None => drop(claim.remove("storageClassName")),
            }
        }
        Disks::Ephemeral => {
            let spec = set["spec"].as_object_mut().ok_or(ManifestError::Missing("specification"))?;
            spec.remove("volumeClaimTemplates");
            let volumes = set.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut);
            let volumes = volumes.ok_or(ManifestError::Missing("volumes"))?;
            volumes.push(json!({ "name": "data", "emptyDir": {} }));
        }
    }
    Ok(())
}

/// Names the Secrets of the key-encryption keys: to the init container that makes the first, and as volumes.
fn set_keys(set: &mut Value, settings: &Settings) -> Result<(), ManifestError> {
    let Settings { key, other_key, .. } = settings;
    let is_volume = |item: &Value| item["name"] == KEY_VOLUME;
    let begins = |item: &Value, flag: &str| item.as_str().is_some_and(|text| text.starts_with(flag));
    let spec = set.pointer_mut("/spec/template/spec").ok_or(ManifestError::Missing("pod"))?;
    let (arguments, at) = found(spec, "/initContainers/0/args", |item| begins(item, "--secret="))?;
    arguments[at] = format!("--secret={key}").into();
    let (volumes, at) = found(spec, "/volumes", is_volume)?;
    volumes[at]["secret"]["secretName"] = key.clone().into();
    let Some(other) = other_key else { return Ok(()) };
    let secret = json!({ "secretName": other, "defaultMode": 256 });
    volumes.insert(at + 1, json!({ "name": OTHER_KEY_VOLUME, "secret": secret }));
    let (mounts, at) = found(spec, "/containers/0/volumeMounts", is_volume)?;
    let mount = json!({ "name": OTHER_KEY_VOLUME, "mountPath": "/etc/smc/kek-also", "readOnly": true });
    mounts.insert(at + 1, mount);
    let (arguments, at) = found(spec, "/containers/0/args", |item| begins(item, "--kek-file="))?;
    arguments.insert(at + 1, "--also-kek-file=/etc/smc/kek-also/kek".into());
    Ok(())
}

/// A list of the pod, and the place of an item in it.
fn found<'a>(
    spec: &'a mut Value,
    list: &str,
    is_it: impl Fn(&Value) -> bool,
) -> Result<(&'a mut Vec<Value>, usize), ManifestError> {
    const MISSING: ManifestError = ManifestError::Missing("key-encryption key");
    let items = spec.pointer_mut(list).and_then(Value::as_array_mut).ok_or(MISSING)?;
    let place = items.iter().position(is_it).ok_or(MISSING)?;
    Ok((items, place))
}

#[cfg(test)]
mod tests;
