//! Owns the reading of metrics: the controller's, and Envoy's counters.

use serde_json::Value;
use smc_lab::LabHandle;

/// Returns the controller's metrics.
pub(crate) async fn metrics(lab: &LabHandle) -> String {
    let fetch = ["smc-lab", "fetch", "--url", "http://127.0.0.1:9091/metrics"];
    let results: Value = serde_json::from_str(&lab.exec_on_node(&fetch).await.unwrap().stdout).unwrap();
    results[0]["body"].as_str().unwrap_or_default().to_owned()
}

/// Sums a metric's samples over all label values.
pub(crate) fn sum(metrics: &str, name: &str) -> u64 {
    let samples = metrics.lines().filter(|line| line.starts_with(name));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Reads one of Envoy's counters.
pub(crate) async fn counter(lab: &LabHandle, pod: &str, name: &str) -> u64 {
    let regex = name.replace('.', "\\.").replace('|', "\\|");
    let text = lab.envoy_admin(pod, &format!("/stats?filter=^{regex}$")).await.unwrap().body;
    let value = text.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text:?}"))
}

/// Returns how many connections a pod's proxy has opened to a cluster, and how many of them have
/// ended.
pub(crate) async fn connections(lab: &LabHandle, pod: &str, cluster: &str) -> (u64, u64) {
    let count = async |what: &str| counter(lab, pod, &format!("cluster.{cluster}.upstream_cx_{what}")).await;
    (count("total").await, count("destroy").await)
}
