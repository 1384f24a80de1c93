//! The two containers that injection adds.
//!
//! Owns their content. Both pass the restricted Pod Security Standard, except for what interception needs:
//! `smc-init` runs as root with two capabilities, for as long as it takes to write a few rules.

use serde_json::{Value, json};
use smc_types::ports::METRICS_PORT;

use super::exclusions::Exclusions;
use super::names::{BOOTSTRAP_KEY, ENVOY, INIT, MOUNT, VOLUME};
use super::probe_config::{POD_IP, READY_PATH};
use super::probes::{PROBE_PORT, Targets};
use super::settings::Settings;
use crate::interception::PROXY_UID;

/// Envoy's log level, unless MeshConfig sets one.
const LOG_LEVEL: &str = "warning";

/// How many threads of Envoy serve connections. By default one for each processor of the machine, however
/// little the pod is allowed.
const CONCURRENCY: &str = "2";

/// How often, in seconds, the kubelet asks whether the sidecar is ready while the containers wait for it, and
/// how often in vain until it restarts the sidecar. One that no replica answers is not ready: what the
/// containers of its pod would send, and what is sent to them, would be lost. A restart helps an Envoy that
/// hangs, and no other. It comes later than the ten minutes after which the kubelet forgets its back-off: a
/// sidecar must not wait for that once a controller is back.
const START_PERIOD: u32 = 1;
const START_ATTEMPTS: u32 = 900;

/// The argument of Envoy that the probes of the pod come after.
pub(super) const PROBES: &str = "--config-yaml";

/// The init container that sets up interception.
pub(super) fn init(exclusions: &Exclusions, resources: &Value, settings: &Settings) -> Value {
    let security = if settings.sidecar.privileged_init {
        json!({ "privileged": true, "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": false })
    } else {
        json!({
            "allowPrivilegeEscalation": false,
            "privileged": false,
            "readOnlyRootFilesystem": true,
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": false,
            "capabilities": { "add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        })
    };
    json!({
        "name": INIT,
        "image": settings.init_image(),
        "args": exclusions.arguments,
        "resources": resources,
        "securityContext": security,
    })
}

/// The sidecar: an init container that always restarts, which Kubernetes calls a sidecar container. `probes`
/// is its argument for the probes of the pod.
pub(super) fn envoy(targets: &Targets, probes: &str, resources: &Value, settings: &Settings) -> Value {
    let get = json!({ "path": targets.token.path(READY_PATH), "port": PROBE_PORT, "scheme": "HTTP" });
    let log_level = settings.sidecar.log_level.as_deref().unwrap_or(LOG_LEVEL);
    json!({
        "name": ENVOY,
        "restartPolicy": "Always",
        "image": settings.envoy_image(),
        "command": ["envoy"],
        "args": [
            "--config-path", format!("{MOUNT}/{BOOTSTRAP_KEY}"),
            PROBES, probes,
            "--log-level", log_level,
            "--concurrency", CONCURRENCY,
            // A hot restart would need shared memory, and there is never a second Envoy in the pod.
            "--disable-hot-restart",
        ],
        "env": [{ "name": POD_IP, "valueFrom": { "fieldRef": {
            "apiVersion": "v1", "fieldPath": "status.podIP",
        } } }],
        "ports": [{ "name": "smc-metrics", "containerPort": METRICS_PORT, "protocol": "TCP" }],
        "resources": resources,
        "startupProbe": {
            "httpGet": get,
            "periodSeconds": START_PERIOD, "failureThreshold": START_ATTEMPTS, "timeoutSeconds": 1,
        },
        "readinessProbe": {
            "httpGet": get, "periodSeconds": 10, "failureThreshold": 3, "timeoutSeconds": 2,
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "privileged": false,
            "readOnlyRootFilesystem": true,
            "runAsUser": PROXY_UID,
            "runAsGroup": PROXY_UID,
            "runAsNonRoot": true,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumeMounts": [{ "name": VOLUME, "mountPath": MOUNT, "readOnly": true }],
    })
}
