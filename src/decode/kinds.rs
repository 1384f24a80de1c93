//! The kinds and versions that are read, and which function reads each.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use smc_api::kind::{CustomKind, Declared};
use smc_api::object::Object;
use smc_types::ids::InvalidName;
use smc_types::ids::MeshName;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Reading};
use thiserror::Error;

use super::fields::{Unknown, decode};
use super::{Platform, Rules, core as kubernetes};

/// How the mesh treats a kind.
#[derive(Clone, Copy)]
pub enum Meaning<'a> {
    /// An object that this reader reads.
    Object(Reader),
    /// A list of objects: of the kind given, or of any kind.
    List(Option<&'a str>),
    /// A kind that is read only in these versions.
    OtherVersion(&'static str),
    /// A kind that the mesh does not read.
    Foreign,
}

/// How an object is read: by the row of its kind, in the version that the object is written in.
#[derive(Clone, Copy)]
pub struct Reader {
    row: Row,
    version: &'static str,
}

/// One kind that is read.
#[derive(Clone, Copy)]
enum Row {
    /// A kind of Kubernetes itself.
    Platform(&'static PlatformKind),
    /// A kind of [`smc_api::kinds`].
    Custom(&'static CustomKind),
}

impl Row {
    fn kind(self) -> Kind {
        match self {
            Self::Platform(row) => row.kind,
            Self::Custom(row) => row.kind,
        }
    }
}

/// A kind of Kubernetes itself.
struct PlatformKind {
    kind: Kind,
    read: fn(&mut Target<'_>) -> Option<Object>,
}

/// All kinds of Kubernetes itself that are read.
const PLATFORM: &[PlatformKind] = &[
    PlatformKind {
        kind: Kind::Namespace,
        read: |target| {
            let mesh = target.rules;
            target.api(|namespace| kubernetes::read_namespace(namespace, mesh)).map(Object::Namespace)
        },
    },
    PlatformKind {
        kind: Kind::Service,
        read: |target| target.api(kubernetes::read_service).map(Object::from),
    },
    PlatformKind {
        kind: Kind::ServiceAccount,
        read: |target| {
            let read = |account: &core::ServiceAccount| kubernetes::service_account(&account.metadata);
            target.api(read).map(Object::ServiceAccount)
        },
    },
    PlatformKind {
        kind: Kind::Pod,
        read: |target| {
            let platform = target.rules.platform;
            let read = |pod: &core::Pod| kubernetes::read_pod(pod, platform);
            target.api(read).map(Object::from)
        },
    },
    PlatformKind {
        kind: Kind::EndpointSlice,
        read: |target| target.api(kubernetes::read_endpoint_slice).map(Object::EndpointSlice),
    },
];

/// Looks up an `apiVersion` and a `kind` in the table of kinds.
pub fn meaning<'a>(api_version: &str, kind: &'a str) -> Meaning<'a> {
    if (api_version, kind) == ("v1", "List") {
        return Meaning::List(None);
    }
    if let Some(item) = kind.strip_suffix("List")
        && let Meaning::Object(_) = object_meaning(api_version, item)
    {
        return Meaning::List(Some(item));
    }
    object_meaning(api_version, kind)
}

/// All kinds that are read.
fn rows() -> impl Iterator<Item = Row> {
    PLATFORM.iter().map(Row::Platform).chain(smc_api::kinds().map(Row::Custom))
}

fn object_meaning(api_version: &str, kind: &str) -> Meaning<'static> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let of_group = |row: &Row| row.kind().spec().group == group && row.kind().as_str() == kind;
    let Some(row) = rows().find(of_group) else { return Meaning::Foreign };
    let spec = row.kind().spec();
    match spec.versions.iter().find(|known| **known == version) {
        Some(version) => Meaning::Object(Reader { row, version }),
        None => Meaning::OtherVersion(spec.advertised),
    }
}

/// Why it is unknown which object is meant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unnamed {
    /// There is no name.
    #[error("missing or not text, so the object has no name; not read")]
    Missing(&'static str),
    /// Its name is invalid.
    #[error("{0}; the object has no effect")]
    Invalid(InvalidName),
}

impl Unnamed {
    /// Whether the document certainly does not declare an object that was read from it earlier.
    pub(crate) fn is_certain(&self) -> bool {
        matches!(self, Self::Invalid(_))
    }

    /// The field that is wrong.
    pub fn field(&self) -> String {
        match self {
            Self::Missing(field) => (*field).to_owned(),
            Self::Invalid(name) if name.what == "namespace" => "metadata.namespace".to_owned(),
            Self::Invalid(_) => "metadata.name".to_owned(),
        }
    }
}

/// The object that `value` names. Reads only its name and namespace, so that an object whose other fields
/// are wrong is still identified.
pub fn reference(reader: Reader, value: &Value) -> Result<ObjectRef, Unnamed> {
    let text = |pointer: &str, field| match value.pointer(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(Unnamed::Missing(field)),
    };
    let name = text("/metadata/name", "metadata.name")?.ok_or(Unnamed::Missing("metadata.name"))?;
    let namespace = text("/metadata/namespace", "metadata.namespace")?;
    let meta = ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() };
    kubernetes::object_ref(reader.row.kind(), &meta).map_err(|error| match reader.row.kind() {
        // The name of a Namespace is checked as a namespace, but its field is `name`.
        Kind::Namespace => Unnamed::Invalid(InvalidName { what: "name", ..error }),
        _ => Unnamed::Invalid(error),
    })
}

/// The object of this kind, namespace and name.
pub fn named(kind: Kind, namespace: &str, name: &str) -> Result<ObjectRef, InvalidName> {
    let namespace = Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty());
    kubernetes::object_ref(
        kind,
        &ObjectMeta { name: Some(name.to_owned()), namespace, ..ObjectMeta::default() },
    )
}

/// Reads the object that `reference` names; `None` if it is refused and must have no effect.
pub fn convert(
    reader: Reader,
    reference: &ObjectRef,
    value: &Value,
    rules: &Rules,
) -> (Option<Object>, Vec<Problem>) {
    let mut target = Target { reference, version: reader.version, value, rules, problems: Vec::new() };
    let object = match reader.row {
        Row::Platform(row) => (row.read)(&mut target),
        Row::Custom(row) => target.custom(row),
    };
    (object, target.problems)
}

/// An object of a custom resource. Its `spec` is read by [`smc_api`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomObject {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default, rename = "status")]
    _status: Value,
}

/// The object that is being read.
struct Target<'a> {
    reference: &'a ObjectRef,
    version: &'static str,
    value: &'a Value,
    rules: &'a Rules,
    problems: Vec<Problem>,
}

impl Target<'_> {
    fn api<T: DeserializeOwned, O>(&mut self, read: impl FnOnce(&T) -> Reading<O>) -> Option<O> {
        let decoded = decode(self.reference, self.value, self.unknown(), &mut self.problems)?;
        let reading = read(&decoded);
        self.take(reading)
    }

    /// A newer API server knows more fields of its own kinds; in a file, an unknown field is a mistake.
    fn unknown(&self) -> Unknown {
        match self.rules.platform {
            Platform::Files => Unknown::Reported,
            Platform::ApiServer => Unknown::Ignored,
        }
    }

    fn take<O>(&mut self, reading: Reading<O>) -> Option<O> {
        self.problems.extend(reading.problems);
        reading.object
    }

    fn custom(&mut self, row: &CustomKind) -> Option<Object> {
        let CustomObject { metadata, spec, .. } =
            decode(self.reference, self.value, Unknown::Reported, &mut self.problems)?;
        let ObjectRef::Namespaced(_, id) = self.reference else { return None };
        let label = metadata.labels.as_ref().and_then(|labels| labels.get(kubernetes::PROXY_UUID_LABEL));
        self.take((row.read)(Declared {
            id: id.clone(),
            version: self.version,
            proxy_uuid: label.map(String::as_str),
            terminating: metadata.deletion_timestamp.is_some(),
            spec,
        }))
    }
}

/// Reads the JSON of one object; `None` if it is of no kind that is read, or has no usable name.
pub fn read(json: &str, rules: &Rules) -> Option<(ObjectRef, Option<Object>, Vec<Problem>)> {
    let value: Value = serde_json::from_str(json).ok()?;
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let Meaning::Object(reader) = meaning(text("apiVersion"), text("kind")) else { return None };
    let reference = reference(reader, &value).ok()?;
    let (object, problems) = convert(reader, &reference, &value, rules);
    Some((reference, object, problems))
}

/// As [`read`], for a custom object, which reads the same in every mesh.
pub fn read_custom(json: &str) -> Option<(ObjectRef, Option<Object>, Vec<Problem>)> {
    read(json, &Rules::api_server(MeshName::default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(meaning: Meaning<'_>) -> String {
        match meaning {
            Meaning::Object(Reader { row, version }) => format!("{} {version}", row.kind()),
            Meaning::List(Some(kind)) => format!("list of {kind}"),
            Meaning::List(None) => "any list".to_owned(),
            Meaning::OtherVersion(versions) => format!("read as {versions}"),
            Meaning::Foreign => "foreign".to_owned(),
        }
    }

    #[test]
    fn every_kind_has_a_reader() {
        let mut read: Vec<_> = rows().map(Row::kind).collect();
        read.sort();
        assert_eq!(read, Kind::ALL);
    }

    #[test]
    fn kinds_are_read_in_the_versions_that_the_mesh_knows() {
        for (api_version, kind, expected) in [
            ("v1", "Namespace", "Namespace v1"),
            ("v1", "Service", "Service v1"),
            ("v1", "ServiceAccount", "ServiceAccount v1"),
            ("v1", "Pod", "Pod v1"),
            ("v2", "Pod", "read as v1"),
            ("discovery.k8s.io/v1", "EndpointSlice", "EndpointSlice v1"),
            ("discovery.k8s.io/v1beta1", "EndpointSlice", "read as discovery.k8s.io/v1"),
            ("mesh.smc.dev/v1alpha1", "MeshWorkload", "MeshWorkload v1alpha1"),
            ("mesh.smc.dev/v1", "MeshWorkload", "read as mesh.smc.dev/v1alpha1"),
            ("access.smi-spec.io/v1alpha3", "TrafficTarget", "TrafficTarget v1alpha3"),
            ("access.smi-spec.io/v1alpha2", "TrafficTarget", "read as access.smi-spec.io/v1alpha3"),
            ("access.smi-spec.io/v1alpha1", "TrafficTarget", "read as access.smi-spec.io/v1alpha3"),
            ("specs.smi-spec.io/v1alpha4", "HTTPRouteGroup", "HTTPRouteGroup v1alpha4"),
            ("specs.smi-spec.io/v1alpha3", "HTTPRouteGroup", "HTTPRouteGroup v1alpha3"),
            ("specs.smi-spec.io/v1alpha2", "HTTPRouteGroup", "read as specs.smi-spec.io/v1alpha4"),
            ("specs.smi-spec.io/v1alpha4", "TCPRoute", "TCPRoute v1alpha4"),
            ("specs.smi-spec.io/v1alpha3", "TCPRoute", "read as specs.smi-spec.io/v1alpha4"),
            ("specs.smi-spec.io/v1alpha4", "UDPRoute", "UDPRoute v1alpha4"),
            ("split.smi-spec.io/v1alpha1", "TrafficSplit", "TrafficSplit v1alpha1"),
            ("split.smi-spec.io/v1alpha4", "TrafficSplit", "TrafficSplit v1alpha4"),
            ("split.smi-spec.io/v1", "TrafficSplit", "read as split.smi-spec.io/v1alpha1 to v1alpha4"),
            ("config.openservicemesh.io/v1alpha2", "MeshConfig", "MeshConfig v1alpha2"),
            ("config.openservicemesh.io/v1alpha1", "MeshConfig", "MeshConfig v1alpha1"),
            ("config.openservicemesh.io/v1", "MeshConfig", "read as config.openservicemesh.io/v1alpha2"),
            ("policy.openservicemesh.io/v1alpha1", "Egress", "Egress v1alpha1"),
            ("policy.openservicemesh.io/v1", "Retry", "read as policy.openservicemesh.io/v1alpha1"),
            ("v1", "List", "any list"),
            ("v1", "PodList", "list of Pod"),
            ("access.smi-spec.io/v1alpha3", "TrafficTargetList", "list of TrafficTarget"),
            ("v1", "ConfigMapList", "foreign"),
            ("v1", "ConfigMap", "foreign"),
            ("apps/v1", "Deployment", "foreign"),
            ("example.com/v1", "Service", "foreign"),
            ("v1", "pod", "foreign"),
            ("", "", "foreign"),
            ("/", "Pod", "read as v1"),
        ] {
            assert_eq!(described(meaning(api_version, kind)), expected, "{api_version} {kind}");
        }
    }

    #[test]
    fn an_object_is_identified_even_when_all_but_its_names_is_wrong() {
        for (kind, metadata, expected) in [
            (Kind::Pod, json!({"name": "a", "namespace": "b"}), Ok("Pod b/a")),
            (Kind::Pod, json!({"name": "a", "labels": 7}), Ok("Pod default/a")),
            (Kind::Pod, json!({"name": "a", "namespace": ""}), Ok("Pod default/a")),
            (Kind::Namespace, json!({"name": "a"}), Ok("Namespace a")),
            (Kind::Pod, json!({}), Err(("metadata.name", false))),
            (Kind::Pod, json!(null), Err(("metadata.name", false))),
            (Kind::Pod, json!({"name": 5}), Err(("metadata.name", false))),
            (Kind::Pod, json!({"name": "a", "namespace": 5}), Err(("metadata.namespace", false))),
            (Kind::Pod, json!({"name": "A"}), Err(("metadata.name", true))),
            (Kind::Pod, json!({"name": "a", "namespace": "b.c"}), Err(("metadata.namespace", true))),
            (Kind::Namespace, json!({"name": "a.b"}), Err(("metadata.name", true))),
        ] {
            let Meaning::Object(reader) = meaning("v1", kind.as_str()) else { panic!("{kind}") };
            let found = reference(reader, &json!({"metadata": metadata, "spec": 1}));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected),
                (Err(found), Err((field, certain))) => {
                    assert_eq!((found.field().as_str(), found.is_certain()), (field, certain));
                }
                (found, expected) => panic!("{metadata}: {found:?} instead of {expected:?}"),
            }
        }
    }
}
