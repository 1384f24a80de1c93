//! Owns an object of every kind that the source reads, as its author would write it.

use serde_json::{Value, json};
use smc_types::object_ref::Kind;

/// The kinds without effect: an object of such a kind is known by the problem that says so.
pub(super) const CHECKED: [Kind; 5] =
    [Kind::Egress, Kind::IngressBackend, Kind::Retry, Kind::Telemetry, Kind::UpstreamTrafficSetting];

/// The kinds of the objects in the namespaces of the mesh.
pub(super) fn in_namespaces() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| !matches!(kind, Kind::Namespace | Kind::MeshConfig))
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
    let account = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    match kind {
        Kind::Namespace | Kind::MeshConfig => panic!("{kind} is in no namespace of the mesh"),
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
        Kind::MeshWorkload => {
            json!({"spec": {"serviceAccountName": "web", "addresses": ["192.0.2.7"], "services": ["web"]}})
        }
        Kind::TrafficTarget => json!({"spec": {"destination": account("web"), "sources": [account("caller")],
            "rules": [{"kind": "HTTPRouteGroup", "name": "all"}]}}),
        Kind::HttpRouteGroup => json!({"spec": {"matches": [{"name": "all"}]}}),
        Kind::TcpRoute => json!({"spec": {"matches": {"ports": [3306]}}}),
        Kind::UdpRoute => json!({"spec": {"matches": {"ports": [53]}}}),
        Kind::TrafficSplit => {
            json!({"spec": {"service": "web", "backends": [{"service": "web-v1", "weight": 1}]}})
        }
        Kind::Egress => json!({"spec": {"sources": [account("web")], "hosts": ["example.org"],
            "ports": [{"number": 80, "protocol": "http"}]}}),
        Kind::IngressBackend => json!({"spec": {
            "backends": [{"name": "web", "port": {"number": 8080, "protocol": "http"}}],
            "sources": [{"kind": "Service", "namespace": "ingress", "name": "gateway"}]}}),
        Kind::Retry => json!({"spec": {"source": account("web"), "retryPolicy": {"retryOn": "5xx"},
            "destinations": [{"kind": "Service", "name": "web", "namespace": namespace}]}}),
        Kind::Telemetry => json!({"spec": {"accessLog": {"format": "%RESPONSE_CODE%"}}}),
        Kind::UpstreamTrafficSetting => json!({"spec": {"host": "web.shop.svc.cluster.local",
            "connectionSettings": {"tcp": {"maxConnections": 10}}}}),
    }
}
