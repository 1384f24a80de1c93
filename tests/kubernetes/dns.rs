//! Owns the objects by which pods find the name server, which runs on the node itself.

use serde_json::{Value, json};

use crate::config::{DNS_SERVICE, NODE_ADDRESS};

/// The list of objects: a Service with a fixed virtual IP, its endpoint, and what CoreDNS may read.
pub(crate) fn objects() -> Value {
    let system = |name: &str| json!({ "name": name, "namespace": "kube-system" });
    let port = |protocol: &str| json!({ "name": protocol.to_lowercase(), "port": 53, "protocol": protocol });
    let ports = json!([port("UDP"), port("TCP")]);
    let mut slice = system("kube-dns");
    slice["labels"] = json!({ "kubernetes.io/service-name": "kube-dns" });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Service", "metadata": system("kube-dns"),
          "spec": { "clusterIP": DNS_SERVICE, "ports": ports } },
        { "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": slice,
          "addressType": "IPv4", "ports": ports,
          "endpoints": [{ "addresses": [NODE_ADDRESS], "conditions": { "ready": true } }] },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
          "metadata": { "name": "coredns" },
          "rules": [
              { "apiGroups": [""], "resources": ["services", "pods", "namespaces"],
                "verbs": ["list", "watch"] },
              { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
                "verbs": ["list", "watch"] },
          ] },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
          "metadata": { "name": "coredns" },
          "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "coredns" },
          "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "coredns" }] },
    ]})
}
