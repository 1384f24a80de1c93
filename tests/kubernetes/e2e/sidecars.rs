//! Owns the watch over the sidecars of a namespace, while the controllers come and go: how long each is
//! without a stream, and what it is sent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use smc_test_kubernetes::Cluster;
use smc_testkit::envoy_log::{percentiles, streams};
use smc_testkit::shards::ShardsReport;

use crate::mesh::{SETTLE, smc};
use crate::stage::{complete_lines, log, received};
use crate::traffic::lab;

/// The longest that the 99th percentile of sidecars may be without a stream, in milliseconds: less than an
/// attempt at an address that does not answer. It is some tens of milliseconds.
const GAP: u64 = 1000;

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
            let sent = || -> Vec<&(u64, String)> {
                read.iter().filter(|(_, message)| message.contains("Delta")).collect()
            };
            assert_eq!(streams.resources, 0, "{during}: {pod} was sent what it had: {:#?}", sent());
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
            let all = complete_lines(file);
            let new = all.get(*lines..).unwrap_or_default();
            *lines = all.len();
            (pod.clone(), new.iter().filter_map(|line| message(line)).collect())
        });
        new.collect()
    }
}

/// The time and the message of a line of a container.
fn message(line: &str) -> Option<(u64, String)> {
    let (at, message) = received(line);
    let at: Timestamp = at.parse().ok()?;
    Some((u64::try_from(at.as_millisecond()).ok()?, message.to_owned()))
}

/// Asks the admin interface of a pod's Envoy, from inside the pod.
async fn admin(cluster: &Cluster, pod: &str, method: &str, path: &str) -> String {
    let url = format!("http://127.0.0.1:15000{path}");
    let answers = lab(cluster, pod, &[], &["fetch", "--method", method, "--url", &url]).await.unwrap();
    assert_eq!(answers[0].status(), Some(200), "{pod}: {answers:?}");
    answers[0].0["body"].as_str().unwrap_or_default().to_owned()
}

/// Whether so many replicas are ready, and each serves the proxies that it owns.
async fn settled(cluster: &Cluster, replicas: u16) -> Result<(), String> {
    let report = smc(cluster, 0, &["cluster", "shards", "-o", "json"]).await?;
    let shards: ShardsReport = serde_json::from_str(&report).map_err(|error| error.to_string())?;
    if shards.is_settled(usize::from(replicas)) { Ok(()) } else { Err(report) }
}
