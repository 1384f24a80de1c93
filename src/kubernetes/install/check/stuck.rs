//! Why a pod does not start, as its kubelet says.
//!
//! Owns which reasons a person has to act on. A container that is being created, or that waits for another
//! one, is left out.

use serde_json::Value;

/// Reasons that pass by themselves.
const PASSING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The containers of `pod` that do not start, of those that `chosen` names, and why; `None` if all do.
pub fn stuck(pod: &Value, chosen: impl Fn(&str) -> bool) -> Option<String> {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = lists.iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten();
    let problem = |container: &Value| {
        let name = container["name"].as_str().filter(|name| chosen(name))?;
        let waiting = &container["state"]["waiting"];
        let reason = waiting["reason"].as_str().filter(|reason| !PASSING.contains(reason))?;
        let message = waiting["message"].as_str().map(|text| format!(" ({text})")).unwrap_or_default();
        Some(format!("{name}: {reason}{message}"))
    };
    let problems: Vec<_> = containers.filter_map(problem).collect();
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    (!problems.is_empty()).then(|| format!("{name}: {}", problems.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_that_does_not_start_is_named_with_its_reason() {
        let waiting =
            |name: &str, reason: &str| json!({"name": name, "state": {"waiting": {"reason": reason}}});
        let pod = |init: Value, containers: Value| {
            json!({"metadata": {"name": "web"},
                "status": {"initContainerStatuses": [init], "containerStatuses": [containers]}})
        };
        let running = json!({"name": "app", "state": {"running": {}}});
        let all = |_: &str| true;
        assert_eq!(stuck(&pod(waiting("envoy", "PodInitializing"), running.clone()), all), None);
        let pulled = pod(waiting("envoy", "ImagePullBackOff"), waiting("app", "PodInitializing"));
        assert_eq!(stuck(&pulled, all).as_deref(), Some("web: envoy: ImagePullBackOff"));
        assert_eq!(stuck(&pulled, |name| name == "app"), None);
        let mut said = waiting("app", "ErrImagePull");
        said["state"]["waiting"]["message"] = json!("no such host");
        assert_eq!(stuck(&pod(running, said), all).as_deref(), Some("web: app: ErrImagePull (no such host)"));
        assert_eq!(stuck(&json!({}), all), None);
    }
}
