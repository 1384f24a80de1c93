//! Owns an object of every kind that the source reads, as its author would write it.

use serde_json::{Value, json};
use smc_types::object_ref::Kind;

/// The kinds of the objects in the namespaces of the mesh.
pub(super) fn in_namespaces() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| kind.spec().extent.follows_namespaces())
}

/// The name of an object as the source's watcher has it.
pub(super) fn reference(kind: Kind, namespace: &str, name: &str) -> String {
    format!("{kind} {namespace}/{name}")
}

/// Labels of a namespace that is in the mesh `smc`.
pub(super) fn in_mesh() -> Value {
    json!({"openservicemesh.io/monitored-by": "smc"})
}

/// A namespace with these labels.
#[expect(clippy::needless_pass_by_value, reason = "labels are made where they are used")]
pub(super) fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// The mesh's configuration, in the namespace of the control plane.
pub(super) fn mesh_config() -> Value {
    json!({"apiVersion": api_version(Kind::MeshConfig), "kind": "MeshConfig",
        "metadata": {"name": "osm-mesh-config", "namespace": "own"},
        "spec": {"traffic": {"enablePermissiveTrafficPolicyMode": false}}})
}

/// The version in which an author writes objects of this kind.
pub(super) fn api_version(kind: Kind) -> String {
    kind.spec().api_versions().next().unwrap()
}

/// An object of this kind in a namespace.
pub(super) fn object(kind: Kind, namespace: &str, name: &str) -> Value {
    let mut object = body(kind, namespace);
    object["apiVersion"] = api_version(kind).into();
    object["kind"] = kind.as_str().into();
    object["metadata"] = json!({"name": name, "namespace": namespace});
    if kind == Kind::EndpointSlice {
        object["metadata"]["labels"] = json!({"kubernetes.io/service-name": "web"});
    }
    object
}

/// What an object of this kind has beside its name.
fn body(kind: Kind, namespace: &str) -> Value {
    if let Some(custom) = smc_api::custom(kind) {
        return json!({"spec": (custom.example)(namespace)});
    }
    match kind {
        Kind::Service => json!({"spec": {"selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
        Kind::ServiceAccount => json!({}),
        Kind::Pod => json!({
            "spec": {"serviceAccountName": "web", "automountServiceAccountToken": false,
                "containers": [{"name": "app", "image": "app"}]},
            "status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
                "conditions": [{"type": "Ready", "status": "True"}]}}),
        Kind::EndpointSlice => json!({"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.9"]}],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}),
        other => panic!("{other} is no kind of Kubernetes itself, or is in no namespace of the mesh"),
    }
}
