//! Owns the reading of a MeshWorkload as something that the lab runs: a machine is a network namespace like a
//! Pod's, and its application an annotation. Pure.

use serde_json::{Value, json};
use smc_decode::core::{INJECTION_ANNOTATION, PROXY_UUID_LABEL};

/// The annotation with the command of the machine's application, as a YAML list.
pub(super) const COMMAND_ANNOTATION: &str = "lab.mesh.smc.dev/command";

/// Returns the Pod that the lab runs for a MeshWorkload, or the reason why it runs none. It asks for a
/// sidecar, as every machine does, and has no labels that a service could select. It is ready when its
/// first port accepts connections.
pub(super) fn pod(object: &Value) -> Result<Value, String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").ok_or("it has no name")?;
    let annotations = object.pointer("/metadata/annotations");
    let command = annotations.and_then(|all| all.get(COMMAND_ANNOTATION)).and_then(Value::as_str);
    let command = command.ok_or_else(|| {
        format!("{name} has no annotation {COMMAND_ANNOTATION}, so the lab does not run the machine")
    })?;
    let command: Vec<String> = serde_saphyr::from_str(command)
        .map_err(|error| format!("{name}: {COMMAND_ANNOTATION} is not a list of words: {error}"))?;
    let mut container = json!({"name": "app", "command": command});
    if let Some(port) = object.pointer("/spec/ports/0/number") {
        container["readinessProbe"] = json!({"tcpSocket": {"port": port}});
    }
    let mut metadata = json!({
        "name": name,
        "namespace": text("/metadata/namespace").unwrap_or("default"),
        "annotations": {INJECTION_ANNOTATION: "enabled"},
    });
    if let Some(uuid) = object.pointer("/metadata/labels").and_then(|labels| labels.get(PROXY_UUID_LABEL)) {
        metadata["labels"] = json!({PROXY_UUID_LABEL: uuid});
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "serviceAccountName": text("/spec/serviceAccountName"),
            "containers": [container],
        },
    }))
}

/// The services that it names.
pub(super) fn services(object: &Value) -> Vec<String> {
    let services = object.pointer("/spec/services").and_then(Value::as_array);
    services.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_a_command_is_run_as_a_pod_that_nothing_selects() {
        let object = json!({
            "kind": "MeshWorkload",
            "metadata": {
                "name": "old", "namespace": "shop", "labels": {"app": "web"},
                "annotations": {COMMAND_ANNOTATION: "[smc-lab, echo, --http, '8080']"},
            },
            "spec": {"serviceAccountName": "old", "services": ["web"], "ports": [{"name": "a", "number": 8080}]},
        });
        let pod = pod(&object).unwrap();
        assert_eq!(pod["metadata"]["labels"], Value::Null);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["command"], json!(["smc-lab", "echo", "--http", "8080"]));
        assert_eq!(container["readinessProbe"]["tcpSocket"]["port"], 8080);
        assert_eq!(services(&object), ["web"]);
        let mut without = object.clone();
        without["metadata"]["annotations"] = json!({});
        assert!(super::pod(&without).unwrap_err().contains(COMMAND_ANNOTATION));
    }
}
