//! Owns the injector's webhook as tests and benches configure it, for a controller beside the cluster.

use std::net::SocketAddr;

/// As the chart has it, but for the address.
const WEBHOOK: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: { name: smc-injector-smc }
webhooks:
  - name: injector.mesh.smc.dev
    admissionReviewVersions: [v1]
    sideEffects: NoneOnDryRun
    reinvocationPolicy: IfNeeded
    failurePolicy: Fail
    timeoutSeconds: 10
    clientConfig: { url: "https://ADDRESS/mutate" }
    namespaceSelector: { matchLabels: { openservicemesh.io/monitored-by: smc } }
    rules: [{ apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods] }]
"#;

/// The configuration of the injector's webhook at this address, as YAML. It trusts no root yet.
pub fn injector_webhook(address: SocketAddr) -> String {
    WEBHOOK.replace("ADDRESS", &address.to_string())
}
