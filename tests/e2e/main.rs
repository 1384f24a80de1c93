//! End-to-end tests: real controller, real Envoys, real interception, in the lab.
//!
//! Each test has a lab of its own and declares just the mesh it needs. What takes effect some time after it was
//! declared is waited for with a bound ([`eventually`]); what must hold all the time is checked on every request.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking; helpers outside of #[test] functions are tests, too"
)]

mod access;
mod attackers;
mod continuity;
mod demo;
mod egress;
mod live;
mod mesh;
mod protocols;
mod rejection;
mod splits;
mod tcp;

use std::time::Duration;

use serde_json::Value;
use smc_tests::lab::{FetchResult, Lab, LabHandle, LabOptions, TcpResult, Variant};
use tokio::time::Instant;

use mesh::Mesh;

/// How long a declared change may take until it holds everywhere. A second is usual; the rest is for a
/// machine that runs several labs at once.
const SETTLE: Duration = Duration::from_secs(30);

/// A lab for `mesh`, all pods ready.
async fn start(mesh: &Mesh) -> Lab {
    start_with(mesh, |_| {}).await
}

/// A lab for `mesh` with other options. Every proxy in it speaks the variant that the options name; of several replicas
/// none knows all proxies, so there that is not looked at.
async fn start_with(mesh: &Mesh, adjust: impl FnOnce(&mut LabOptions)) -> Lab {
    let directory = tempfile::tempdir().unwrap();
    mesh.write(directory.path());
    let mut options = LabOptions::new(directory.path());
    adjust(&mut options);
    let (variant, replicas) = (options.variant, options.replicas);
    // The lab works on a copy of its own, so the directory may go.
    let lab = Lab::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    if replicas == 1 {
        eventually_all_speak(&lab, variant).await;
    }
    lab
}

/// Waits until each proxy of the mesh has one stream, of this variant.
async fn eventually_all_speak(lab: &LabHandle, variant: Variant) {
    let expected = match variant {
        Variant::Delta => "delta",
        Variant::Sotw => "sotw",
    };
    eventually(&format!("all proxies speak {expected}"), async || {
        let pods = lab.pods().await.map_err(|error| error.chain())?;
        let listed = lab.smc_json(&["proxy", "list"]).await.map_err(|error| error.chain())?;
        let proxies = listed["proxies"].as_array().cloned().unwrap_or_default();
        for pod in pods.iter().filter(|pod| pod.in_mesh) {
            let proxy = proxies.iter().find(|proxy| proxy["workload"] == pod.pod.as_str());
            let streams = proxy.and_then(|proxy| proxy["streams"].as_array()).map_or(&[][..], Vec::as_slice);
            if !matches!(streams, [stream] if stream["variant"] == expected && stream["scope"] == "ads") {
                return Err(format!("{}: {streams:?}", pod.pod));
            }
        }
        Ok(())
    })
    .await;
}

/// Both ways to speak xDS.
const VARIANTS: [Variant; 2] = [Variant::Delta, Variant::Sotw];

/// Waits until `condition` yields `Ok`; panics with its last `Err` after [`SETTLE`].
async fn eventually<F>(what: &str, condition: impl FnMut() -> F)
where
    F: Future<Output = Result<(), String>>,
{
    eventually_by(Instant::now() + SETTLE, what, condition).await;
}

/// Waits until `condition` yields `Ok`; panics with its last `Err` after `deadline`.
async fn eventually_by<F>(deadline: Instant, what: &str, mut condition: impl FnMut() -> F)
where
    F: Future<Output = Result<(), String>>,
{
    let started = Instant::now();
    loop {
        match condition().await {
            Ok(()) => return,
            Err(last) if Instant::now() >= deadline => {
                panic!("{what}: not within {:?}; last: {last}", started.elapsed())
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The outcome of one GET, in short, see [`outcome`].
async fn get(lab: &LabHandle, pod: &str, url: &str) -> String {
    let outcome = outcome(&fetch(lab, pod, &["--url", url]).await);
    // A sidecar that is dead refuses, too.
    if outcome == DENIED && !lab.pod(pod).await.is_ok_and(|pod| pod.ready) {
        return format!("{pod} is not ready");
    }
    outcome
}

/// The only result of one request.
async fn fetch(lab: &LabHandle, pod: &str, args: &[&str]) -> FetchResult {
    let mut results = lab.fetch(pod, args).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(results.len(), 1, "{args:?}");
    results.remove(0)
}

/// The outcome of what the mesh turned away without an answer.
const DENIED: &str = "denied";

/// A result, in short: the status, or [`DENIED`] if the connection was refused or closed. Whatever else can go wrong
/// (no such name, no way there, no answer in time) is no verdict of the mesh's, and told at length.
fn outcome(result: &FetchResult) -> String {
    match (result.status, result.failure) {
        (Some(status), None) => status.to_string(),
        (None, Some(failure)) if failure.is_denial() => DENIED.to_owned(),
        _ => format!("{result:?}"),
    }
}

/// The same for a TCP conversation: `answered`, or [`DENIED`] if the connection was refused or closed and the server
/// had said nothing.
fn tcp_outcome(result: &TcpResult) -> String {
    match result {
        TcpResult { failure: None, reply: Some(_), .. } => "answered".to_owned(),
        TcpResult { failure: Some(failure), greeting: None, reply: None, .. } if failure.is_denial() => {
            DENIED.to_owned()
        }
        _ => format!("{result:?}"),
    }
}

/// What comes of saying `hello` to a server that waits for it.
async fn hello(lab: &LabHandle, pod: &str, address: &str) -> String {
    let result = lab.tcp(pod, &[address, "--send", "hello"]).await;
    tcp_outcome(&result.unwrap_or_else(|error| panic!("{}", error.chain())))
}

/// The controller's metrics.
async fn metrics(lab: &LabHandle) -> String {
    let fetch = ["smc-lab", "fetch", "--url", "http://127.0.0.1:9091/metrics"];
    let results: Value = serde_json::from_str(&lab.exec_on_node(&fetch).await.unwrap().stdout).unwrap();
    results[0]["body"].as_str().unwrap_or_default().to_owned()
}

/// The sum of a metric's samples, over all its labels.
fn sum(metrics: &str, name: &str) -> u64 {
    let samples = metrics.lines().filter(|line| line.starts_with(name));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// One of Envoy's counters.
async fn counter(lab: &LabHandle, pod: &str, name: &str) -> u64 {
    let regex = name.replace('.', "\\.").replace('|', "\\|");
    let text = lab.envoy_admin(pod, &format!("/stats?filter=^{regex}$")).await.unwrap().body;
    let value = text.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text:?}"))
}

/// How many connections a pod's proxy has opened to a cluster, and how many of them have ended.
async fn connections(lab: &LabHandle, pod: &str, cluster: &str) -> (u64, u64) {
    let count = async |what: &str| counter(lab, pod, &format!("cluster.{cluster}.upstream_cx_{what}")).await;
    (count("total").await, count("destroy").await)
}

/// Waits until a GET has this outcome.
async fn eventually_get(lab: &LabHandle, pod: &str, url: &str, expected: &str) {
    eventually(&format!("{pod} gets {url}: {expected}"), async || {
        let outcome = get(lab, pod, url).await;
        if outcome == expected { Ok(()) } else { Err(outcome) }
    })
    .await;
}
