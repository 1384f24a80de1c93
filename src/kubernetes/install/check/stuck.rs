//! Why a pod does not start, as its kubelet says.
//!
//! Owns which reasons a person has to act on. A container that is being created, or that waits for another
//! one, is left out.

use serde_json::Value;
use smc_raft::has_foreign_disk;
use smc_types::text::truncated;

/// Reasons that pass by themselves.
const PASSING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// How much of the last line of a log is shown, in bytes.
const LAST_WORDS: usize = 500;

/// The containers of `pod` that do not start, of those that `chosen` names, and why; `None` if all do.
pub fn stuck(pod: &Value, chosen: impl Fn(&str) -> bool) -> Option<String> {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = lists.iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten();
    let problem = |container: &Value| {
        let name = container["name"].as_str().filter(|name| chosen(name))?;
        let waiting = &container["state"]["waiting"];
        let reason = waiting["reason"].as_str().filter(|reason| !PASSING.contains(reason))?;
        // Of a container that ends again and again the kubelet says how long it waits, and the container
        // itself why.
        let last_words = container["lastState"]["terminated"]["message"].as_str().and_then(last_line);
        let message = last_words.or_else(|| waiting["message"].as_str().map(str::to_owned));
        let message = message.map(|text| format!(" ({text})")).unwrap_or_default();
        Some(format!("{name}: {reason}{message}"))
    };
    let problems: Vec<_> = containers.filter_map(problem).collect();
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    (!problems.is_empty()).then(|| format!("{name}: {}", problems.join(", ")))
}

/// Whether `pod` ends at each start because it has the disk of another replica, or of a group that was
/// replaced.
pub(super) fn cannot_use_its_disk(pod: &Value) -> bool {
    let containers = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let ended = |container: &Value| {
        let last = ["state", "lastState"].map(|state| container[state]["terminated"]["message"].as_str());
        container["ready"] != true && last.into_iter().flatten().any(has_foreign_disk)
    };
    containers.is_some_and(|containers| containers.iter().any(ended))
}

/// The last line that says anything, without what a terminal would make colours of.
fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let line: String = line.trim().chars().filter(|char| !char.is_control()).collect();
    Some(truncated(&line, LAST_WORDS))
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
        let mut ended = waiting("app", "CrashLoopBackOff");
        ended["state"]["waiting"]["message"] = json!("back-off 10s restarting");
        ended["lastState"]["terminated"]["message"] = json!("starting\nerror: the disk is full\n\n");
        let running = json!({"name": "envoy", "state": {"running": {}}});
        let expected = "web: app: CrashLoopBackOff (error: the disk is full)";
        assert_eq!(stuck(&pod(running, ended), all).as_deref(), Some(expected));
        assert_eq!(stuck(&json!({}), all), None);
    }
}
