//! Owns a controller that runs as a process of the host and serves the webhooks of a cluster without a node.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use smc_test_kubernetes::{Cluster, MESH_NAMESPACE};
use smc_testkit::held_port::HeldPort;

use crate::controller::Controller;

/// A running controller. It ends with this value.
pub(super) struct ControlPlane {
    controller: Controller,
    _port: HeldPort,
}

impl ControlPlane {
    /// Starts a controller whose mesh is that of the API server, with `declared`, and tells the API server
    /// where its webhooks are.
    pub(super) async fn start(cluster: &Cluster, declared: &str) -> Self {
        cluster.apply(declared).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        let port = port();
        cluster.apply(&webhooks(port.address)).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        let listen = format!("--webhook-listen={}", port.address);
        Self { controller: Controller::with_alone(listen, cluster), _port: port }
    }

    /// Waits until the API server trusts the webhooks: until it converts an object.
    pub(super) async fn wait_until_trusted(&self, cluster: &Cluster) {
        let split = "{apiVersion: split.smi-spec.io/v1alpha2, kind: TrafficSplit, \
                     metadata: {name: first, namespace: shop}, \
                     spec: {service: first, backends: [{service: v1, weight: 1}]}}";
        let tried = || async {
            let applied = cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], split).await;
            let applied = applied.map_err(|error| error.chain())?;
            if applied.success() { Ok(()) } else { Err(applied.stderr) }
        };
        let waited = cluster.wait("the webhooks", Duration::from_mins(1), tried).await;
        waited.unwrap_or_else(|error| panic!("{}\n{}", error.chain(), self.controller.log()));
    }
}

/// A port of an address of this host that is not a loopback one, which Kubernetes takes for no endpoint.
fn port() -> HeldPort {
    // Connecting UDP sends nothing; it chooses the address of the interface with the default route.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("198.51.100.1:9").unwrap();
    HeldPort::of(socket.local_addr().unwrap().ip())
}

/// The Services of the webhooks, which lead to the controller, and the configuration of the validating one.
fn webhooks(address: SocketAddr) -> String {
    let (address, port) = (address.ip(), address.port());
    let service = |name: &str| {
        format!(
            "apiVersion: v1
kind: Service
metadata: {{ name: {name}, namespace: {MESH_NAMESPACE} }}
spec: {{ ports: [{{ port: 443, targetPort: {port} }}] }}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{ name: {name}, namespace: {MESH_NAMESPACE}, labels: {{ kubernetes.io/service-name: {name} }} }}
addressType: IPv4
ports: [{{ port: {port} }}]
endpoints: [{{ addresses: [\"{address}\"], conditions: {{ ready: true }} }}]
---
"
        )
    };
    let (webhook, conversion) = (service("smc-webhook"), service("smc-conversion"));
    format!(
        "apiVersion: v1
kind: Namespace
metadata: {{ name: {MESH_NAMESPACE} }}
---
{webhook}{conversion}apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{ name: smc-validator-smc }}
webhooks:
  - name: validator.mesh.smc.dev
    admissionReviewVersions: [v1]
    sideEffects: None
    failurePolicy: Fail
    matchPolicy: Equivalent
    clientConfig: {{ service: {{ name: smc-webhook, namespace: {MESH_NAMESPACE}, path: /validate }} }}
    rules:
      - apiGroups: [access.smi-spec.io, specs.smi-spec.io, split.smi-spec.io, config.openservicemesh.io,
          policy.openservicemesh.io]
        apiVersions: ['*']
        operations: [CREATE, UPDATE]
        resources: ['*']
"
    )
}
