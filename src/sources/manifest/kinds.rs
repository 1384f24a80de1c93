//! The kinds and versions that are read, and which function reads each.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use smc_mesh::catalog::{Kind, Object, ObjectRef};
use smc_mesh::ids::{InvalidName, NamespacedName};
use smc_mesh::problem::Problem;
use smc_mesh::smi::{self, Reading, SplitVersion};
use thiserror::Error;

use super::fields::decode;
use crate::sources::kubernetes::{self, Scope, UnstatedReadiness};

/// What a kind means to the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    /// An object that is read.
    Object(Reader),
    /// A list of objects: of the kind given, or of any kind.
    List(Option<&'a str>),
    /// A kind that is read in another version only: this one.
    OtherVersion(&'static str),
    /// Nothing.
    Foreign,
}

/// How an object is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Namespace,
    Service,
    ServiceAccount,
    Pod,
    EndpointSlice,
    TrafficTarget,
    HttpRouteGroup,
    TcpRoute,
    UdpRoute,
    TrafficSplit(SplitVersion),
    MeshConfig,
}

impl Reader {
    fn scope(self) -> Scope {
        Scope::Namespaced(match self {
            Self::Namespace => return Scope::Cluster,
            Self::Service => Kind::Service,
            Self::ServiceAccount => Kind::ServiceAccount,
            Self::Pod => Kind::Pod,
            Self::EndpointSlice => Kind::EndpointSlice,
            Self::TrafficTarget => Kind::TrafficTarget,
            Self::HttpRouteGroup => Kind::HTTPRouteGroup,
            Self::TcpRoute => Kind::TCPRoute,
            Self::UdpRoute => Kind::UDPRoute,
            Self::TrafficSplit(_) => Kind::TrafficSplit,
            Self::MeshConfig => Kind::MeshConfig,
        })
    }
}

/// What an `apiVersion` and a `kind` mean.
pub(super) fn meaning<'a>(api_version: &str, kind: &'a str) -> Meaning<'a> {
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

fn object_meaning(api_version: &str, kind: &str) -> Meaning<'static> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (readers, read): (&[(&str, Reader)], _) = match (group, kind) {
        ("", "Namespace") => (&[("v1", Reader::Namespace)], "v1"),
        ("", "Service") => (&[("v1", Reader::Service)], "v1"),
        ("", "ServiceAccount") => (&[("v1", Reader::ServiceAccount)], "v1"),
        ("", "Pod") => (&[("v1", Reader::Pod)], "v1"),
        ("discovery.k8s.io", "EndpointSlice") => (&[("v1", Reader::EndpointSlice)], "discovery.k8s.io/v1"),
        ("access.smi-spec.io", "TrafficTarget") => {
            (&[("v1alpha3", Reader::TrafficTarget)], "access.smi-spec.io/v1alpha3")
        }
        // v1alpha3 and v1alpha4 of HTTPRouteGroup have one shape. v1alpha3 of TCPRoute has no ports, and
        // there is no UDPRoute before v1alpha4.
        ("specs.smi-spec.io", "HTTPRouteGroup") => (
            &[("v1alpha4", Reader::HttpRouteGroup), ("v1alpha3", Reader::HttpRouteGroup)],
            "specs.smi-spec.io/v1alpha4",
        ),
        ("specs.smi-spec.io", "TCPRoute") => {
            (&[("v1alpha4", Reader::TcpRoute)], "specs.smi-spec.io/v1alpha4")
        }
        ("specs.smi-spec.io", "UDPRoute") => {
            (&[("v1alpha4", Reader::UdpRoute)], "specs.smi-spec.io/v1alpha4")
        }
        ("split.smi-spec.io", "TrafficSplit") => (
            &[
                ("v1alpha4", Reader::TrafficSplit(SplitVersion::V1Alpha4)),
                ("v1alpha3", Reader::TrafficSplit(SplitVersion::V1Alpha3)),
                ("v1alpha2", Reader::TrafficSplit(SplitVersion::V1Alpha2)),
                ("v1alpha1", Reader::TrafficSplit(SplitVersion::V1Alpha1)),
            ],
            "split.smi-spec.io/v1alpha1 to v1alpha4",
        ),
        ("config.openservicemesh.io", "MeshConfig") => {
            (&[("v1alpha2", Reader::MeshConfig)], "config.openservicemesh.io/v1alpha2")
        }
        _ => return Meaning::Foreign,
    };
    match readers.iter().find(|(known, _)| *known == version) {
        Some((_, reader)) => Meaning::Object(*reader),
        None => Meaning::OtherVersion(read),
    }
}

/// Why nobody knows which object is meant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Unnamed {
    /// There is no name.
    #[error("missing or not text, so nobody knows which object this is; not read")]
    Missing(&'static str),
    /// It is a name that no object can have.
    #[error("{0}; the object has no effect")]
    Invalid(InvalidName),
}

impl Unnamed {
    /// Whether it is certain that this document does not mean an object that was read from it earlier.
    pub(super) fn is_certain(&self) -> bool {
        matches!(self, Self::Invalid(_))
    }

    /// The field to mend.
    pub(super) fn field(&self) -> String {
        match self {
            Self::Missing(field) => (*field).to_owned(),
            Self::Invalid(name) if name.what == "namespace" => "metadata.namespace".to_owned(),
            Self::Invalid(_) => "metadata.name".to_owned(),
        }
    }
}

/// Which object `value` names. Looks at nothing but the two names, so that an object can be told by its
/// name even when all else in it is wrong.
pub(super) fn reference(reader: Reader, value: &Value) -> Result<ObjectRef, Unnamed> {
    let text = |pointer: &str, field| match value.pointer(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(Unnamed::Missing(field)),
    };
    let name = text("/metadata/name", "metadata.name")?.ok_or(Unnamed::Missing("metadata.name"))?;
    let namespace = text("/metadata/namespace", "metadata.namespace")?;
    let meta = ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() };
    kubernetes::object_ref(reader.scope(), &meta).map_err(|error| match reader {
        // The name of a Namespace is checked as a namespace but written as a name.
        Reader::Namespace => Unnamed::Invalid(InvalidName { what: "name", ..error }),
        _ => Unnamed::Invalid(error),
    })
}

/// Reads the object that `reference` names; `None` where it must have no effect.
pub(super) fn convert(
    reader: Reader,
    reference: &ObjectRef,
    value: &Value,
) -> (Option<Object>, Vec<Problem>) {
    let mut target = Target { label: reference.to_string(), value, problems: Vec::new() };
    let object = match (reader, reference) {
        (Reader::Namespace, _) => target.api(kubernetes::read_namespace).map(Object::Namespace),
        (Reader::Service, _) => target.api(kubernetes::read_service).map(Object::Service),
        (Reader::ServiceAccount, _) => target
            .api(|account: &core::ServiceAccount| kubernetes::service_account(&account.metadata))
            .map(Object::ServiceAccount),
        (Reader::Pod, _) => target
            .api(|pod: &core::Pod| kubernetes::read_pod(pod, UnstatedReadiness::Ready))
            .map(Object::Workload),
        (Reader::EndpointSlice, _) => target
            .api(|slice: &discovery::EndpointSlice| kubernetes::read_endpoint_slice(slice))
            .map(Object::EndpointSlice),
        (_, ObjectRef::Namespaced(_, id)) => target.custom(reader, id),
        (_, ObjectRef::Namespace(_)) => None,
    };
    (object, target.problems)
}

/// An object of a custom resource: its `spec` is read by the mesh's own rules.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomObject {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "metadata")]
    _metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default, rename = "status")]
    _status: Value,
}

struct Target<'a> {
    label: String,
    value: &'a Value,
    problems: Vec<Problem>,
}

impl Target<'_> {
    fn api<T: DeserializeOwned, O>(&mut self, read: impl FnOnce(&T) -> Reading<O>) -> Option<O> {
        let decoded = decode(&self.label, self.value, &mut self.problems)?;
        let reading = read(&decoded);
        self.take(reading)
    }

    fn take<O>(&mut self, reading: Reading<O>) -> Option<O> {
        self.problems.extend(reading.problems);
        reading.object
    }

    fn custom(&mut self, reader: Reader, id: &NamespacedName) -> Option<Object> {
        let custom: CustomObject = decode(&self.label, self.value, &mut self.problems)?;
        let (id, spec) = (id.clone(), custom.spec);
        match reader {
            Reader::TrafficTarget => self.take(smi::read_traffic_target(id, spec)).map(Object::TrafficTarget),
            Reader::HttpRouteGroup => {
                self.take(smi::read_http_route_group(id, spec)).map(Object::HttpRouteGroup)
            }
            Reader::TcpRoute => self.take(smi::read_tcp_route(id, spec)).map(Object::TcpRoute),
            Reader::UdpRoute => self.take(smi::read_udp_route(id, spec)).map(Object::UdpRoute),
            Reader::TrafficSplit(version) => {
                self.take(smi::read_traffic_split(id, version, spec)).map(Object::TrafficSplit)
            }
            Reader::MeshConfig => {
                let reading = smi::read_mesh_config(id.clone(), spec);
                self.take(reading).map(|config| Object::MeshConfig(id, config))
            }
            Reader::Namespace
            | Reader::Service
            | Reader::ServiceAccount
            | Reader::Pod
            | Reader::EndpointSlice => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_read_in_the_versions_that_the_mesh_knows() {
        use Meaning::{Foreign, List, OtherVersion};
        let object = Meaning::Object;
        for (api_version, kind, expected) in [
            ("v1", "Namespace", object(Reader::Namespace)),
            ("v1", "Service", object(Reader::Service)),
            ("v1", "ServiceAccount", object(Reader::ServiceAccount)),
            ("v1", "Pod", object(Reader::Pod)),
            ("v2", "Pod", OtherVersion("v1")),
            ("discovery.k8s.io/v1", "EndpointSlice", object(Reader::EndpointSlice)),
            ("discovery.k8s.io/v1beta1", "EndpointSlice", OtherVersion("discovery.k8s.io/v1")),
            ("access.smi-spec.io/v1alpha3", "TrafficTarget", object(Reader::TrafficTarget)),
            ("access.smi-spec.io/v1alpha2", "TrafficTarget", OtherVersion("access.smi-spec.io/v1alpha3")),
            ("access.smi-spec.io/v1alpha1", "TrafficTarget", OtherVersion("access.smi-spec.io/v1alpha3")),
            ("specs.smi-spec.io/v1alpha4", "HTTPRouteGroup", object(Reader::HttpRouteGroup)),
            ("specs.smi-spec.io/v1alpha3", "HTTPRouteGroup", object(Reader::HttpRouteGroup)),
            ("specs.smi-spec.io/v1alpha2", "HTTPRouteGroup", OtherVersion("specs.smi-spec.io/v1alpha4")),
            ("specs.smi-spec.io/v1alpha4", "TCPRoute", object(Reader::TcpRoute)),
            ("specs.smi-spec.io/v1alpha3", "TCPRoute", OtherVersion("specs.smi-spec.io/v1alpha4")),
            ("specs.smi-spec.io/v1alpha4", "UDPRoute", object(Reader::UdpRoute)),
            (
                "split.smi-spec.io/v1alpha1",
                "TrafficSplit",
                object(Reader::TrafficSplit(SplitVersion::V1Alpha1)),
            ),
            (
                "split.smi-spec.io/v1alpha4",
                "TrafficSplit",
                object(Reader::TrafficSplit(SplitVersion::V1Alpha4)),
            ),
            ("split.smi-spec.io/v1", "TrafficSplit", OtherVersion("split.smi-spec.io/v1alpha1 to v1alpha4")),
            ("config.openservicemesh.io/v1alpha2", "MeshConfig", object(Reader::MeshConfig)),
            (
                "config.openservicemesh.io/v1alpha1",
                "MeshConfig",
                OtherVersion("config.openservicemesh.io/v1alpha2"),
            ),
            ("v1", "List", List(None)),
            ("v1", "PodList", List(Some("Pod"))),
            ("access.smi-spec.io/v1alpha3", "TrafficTargetList", List(Some("TrafficTarget"))),
            ("v1", "ConfigMapList", Foreign),
            ("v1", "ConfigMap", Foreign),
            ("apps/v1", "Deployment", Foreign),
            ("example.com/v1", "Service", Foreign),
            ("v1", "pod", Foreign),
            ("", "", Foreign),
            ("/", "Pod", OtherVersion("v1")),
        ] {
            assert_eq!(meaning(api_version, kind), expected, "{api_version} {kind}");
        }
    }

    #[test]
    fn an_object_is_told_by_its_names_even_when_all_else_is_wrong() {
        for (reader, metadata, expected) in [
            (Reader::Pod, json!({"name": "a", "namespace": "b"}), Ok("Pod b/a")),
            (Reader::Pod, json!({"name": "a", "labels": 7}), Ok("Pod default/a")),
            (Reader::Pod, json!({"name": "a", "namespace": ""}), Ok("Pod default/a")),
            (Reader::Namespace, json!({"name": "a"}), Ok("Namespace a")),
            (Reader::Pod, json!({}), Err(("metadata.name", false))),
            (Reader::Pod, json!(null), Err(("metadata.name", false))),
            (Reader::Pod, json!({"name": 5}), Err(("metadata.name", false))),
            (Reader::Pod, json!({"name": "a", "namespace": 5}), Err(("metadata.namespace", false))),
            (Reader::Pod, json!({"name": "A"}), Err(("metadata.name", true))),
            (Reader::Pod, json!({"name": "a", "namespace": "b.c"}), Err(("metadata.namespace", true))),
            (Reader::Namespace, json!({"name": "a.b"}), Err(("metadata.name", true))),
        ] {
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
