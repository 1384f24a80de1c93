//! Owns the watch over the sidecars of a namespace, while the controllers come and go: how long each is
//! without a stream, and what it is sent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use smc_kubernetes::Cluster;
use smc_testkit::envoy_log::{percentiles, streams};

use crate::mesh::{SETTLE, smc};
use crate::stage::log;

/// The longest that the 99th percentile of sidecars may be without a stream, in milliseconds. One that
/// still has the former address of a replica waits a second for a connection that never comes:
/// `docs/known-gaps.md`.
const GAP: u64 = 3000;

/// The sidecars of the pods of a namespace.
pub(crate) struct Sidecars {
    /// By pod: the file with the log of its Envoy, and how many lines of it were read.
    logs: BTreeMap<String, (PathBuf, usize)>,
}

impl Sidecars {
    /// Makes the sidecars log their streams, and watches them from now on.
    pub(crate) async fn watch(cluster: &Cluster, namespace: &str) -> Self {
        let get = ["get", "pods", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}"];
        let names = cluster.kubectl(&get).await.unwrap().stdout;
        let mut logs = BTreeMap::new();
        for name in names.split_whitespace() {
            let pod = format!("{namespace}/{name}");
            admin(cluster, &pod, "POST", "/logging?config=debug").await;
            let file = log(cluster, &pod, "envoy").await;
            logs.insert(pod, (file, 0));
        }
        let mut sidecars = Self { logs };
        sidecars.read();
        sidecars
    }

    /// Waits until every proxy of the mesh is served by its owner, then asserts that no sidecar was sent
    /// anything since the last time, rejected anything, or was without a stream for long.
    pub(crate) async fn assert_undisturbed(&mut self, cluster: &Cluster, replicas: u16, during: &str) {
        let settled =
            cluster.wait(&format!("{during}: shards"), SETTLE * 2, || settled(cluster, replicas)).await;
        settled.unwrap_or_else(|error| panic!("{}", error.chain()));
        let mut gaps = Vec::new();
        for (pod, read) in self.read() {
            let streams = streams(read.iter().map(|(at, message)| (*at, message.as_str())));
            assert_eq!(streams.resources, 0, "{during}: {pod} was sent what it had");
            assert!(!streams.is_waiting, "{during}: {pod} has no stream");
            gaps.extend(streams.gaps);
            let rejected = admin(cluster, &pod, "GET", "/stats?filter=update_rejected$").await;
            assert!(rejected.lines().all(|line| line.ends_with(": 0")), "{during}: {pod}: {rejected}");
        }
        let [median, most, longest] = percentiles(&gaps);
        eprintln!("{during}: {} gaps, p50 {median} ms, p99 {most} ms, longest {longest} ms", gaps.len());
        assert!(most <= GAP, "{during}: {gaps:?}");
    }

    /// What each Envoy logged since the last time, with the times at which the node received it.
    fn read(&mut self) -> BTreeMap<String, Vec<(u64, String)>> {
        let new = self.logs.iter_mut().map(|(pod, (file, lines))| {
            let text = std::fs::read_to_string(file).unwrap();
            let read: Vec<_> = text.lines().skip(*lines).collect();
            *lines += read.len();
            (pod.clone(), read.into_iter().filter_map(message).collect())
        });
        new.collect()
    }
}

/// The time and the message of a line of a container: before it are a time, a stream, and a letter.
fn message(line: &str) -> Option<(u64, String)> {
    let mut parts = line.splitn(4, ' ');
    let at: Timestamp = parts.next()?.parse().ok()?;
    Some((u64::try_from(at.as_millisecond()).ok()?, parts.nth(2)?.to_owned()))
}

/// Asks the admin interface of a pod's Envoy, from inside the pod.
async fn admin(cluster: &Cluster, pod: &str, method: &str, path: &str) -> String {
    let (namespace, name) = pod.split_once('/').unwrap();
    let url = format!("http://127.0.0.1:15000{path}");
    let exec = ["exec", "-n", namespace, name, "--", "smc-lab", "fetch", "--method", method, "--url", &url];
    let output = cluster.kubectl(&exec).await.unwrap();
    let results: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{pod}: {output:?}"));
    assert_eq!(results[0]["status"], 200, "{pod}: {results}");
    results[0]["body"].as_str().unwrap_or_default().to_owned()
}

/// Whether so many replicas are ready, and each serves the proxies that it owns.
async fn settled(cluster: &Cluster, replicas: u16) -> Result<(), String> {
    let report = smc(cluster, 0, &["cluster", "shards", "-o", "json"]).await?;
    let report: Value = serde_json::from_str(&report).map_err(|error| error.to_string())?;
    let shards = report["shards"].as_array().cloned().unwrap_or_default();
    let is_settled = |shard: &Value| {
        shard["phase"] == "ready" && shard["to_move"] == 0 && shard["connected"] == shard["owned"]
    };
    let all = shards.len() == usize::from(replicas) && shards.iter().all(is_settled);
    if all { Ok(()) } else { Err(report.to_string()) }
}
