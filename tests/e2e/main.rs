//! End-to-end tests: real controller, real Envoys, real interception, in the lab.
//!
//! Each test has its own lab and declares only the mesh it needs. Changes that take effect later
//! are waited for with a time limit ([`mod@eventually`]); invariants are checked on every request.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking; helpers outside of #[test] functions are tests, too"
)]

mod access;
mod access_log;
mod affinity;
mod attackers;
mod closing;
mod continuity;
mod controllers;
mod declared_roots;
mod demo;
mod egress;
mod eventually;
mod external_authorization;
mod ingress;
mod leaving;
mod live;
mod log_records;
mod lost_nodes;
mod machines;
mod mesh;
mod metrics;
mod pod_address;
mod protocols;
mod rate_limits;
mod readiness;
mod rejection;
mod retries;
mod splits;
mod tcp;
mod tls;
mod tracing;
mod traffic;
mod upstream;

use std::time::Duration;

use smc_lab::{FetchResult, Lab, LabHandle, LabOptions, TcpResult, Variant};

use eventually::eventually;
use mesh::Mesh;

/// Time limit for a change to take effect everywhere. One second is usual; the rest is for a
/// machine that runs several labs at once.
const SETTLE: Duration = Duration::from_secs(30);

/// Starts a lab for `mesh` and waits until all pods are ready.
async fn start(mesh: &Mesh) -> Lab {
    start_with(mesh, |_| {}).await
}

/// Starts a lab for `mesh` with other options. With one replica it also waits until every proxy
/// uses the xDS variant of the options; of several replicas none knows all proxies.
async fn start_with(mesh: &Mesh, adjust: impl FnOnce(&mut LabOptions)) -> Lab {
    let directory = tempfile::tempdir().unwrap();
    mesh.write(directory.path());
    let mut options = LabOptions::new(directory.path());
    adjust(&mut options);
    let (variant, replicas) = (options.variant, options.replicas);
    // The lab works on a copy, so the directory may be removed.
    let lab = Lab::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    if replicas == 1 {
        eventually_all_speak(&lab, variant).await;
    }
    lab
}

/// Waits until each proxy of the mesh has exactly one stream, of this variant.
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
            let proxy = proxies.iter().find(|proxy| proxy["workload"] == pod.workload.as_str());
            let streams = proxy.and_then(|proxy| proxy["streams"].as_array()).map_or(&[][..], Vec::as_slice);
            if !matches!(streams, [stream] if stream["variant"] == expected && stream["scope"] == "ads") {
                return Err(format!("{}: {streams:?}", pod.pod));
            }
        }
        Ok(())
    })
    .await;
}

/// Both xDS variants.
const VARIANTS: [Variant; 2] = [Variant::Delta, Variant::Sotw];

/// Sends one GET and returns its [`outcome`].
async fn get(lab: &LabHandle, pod: &str, url: &str) -> String {
    let outcome = outcome(&fetch(lab, pod, &["--url", url]).await);
    // A dead sidecar refuses connections, too.
    if outcome == DENIED && !lab.pod(pod).await.is_ok_and(|pod| pod.ready) {
        return format!("{pod} is not ready");
    }
    outcome
}

/// Sends one request and returns its result.
async fn fetch(lab: &LabHandle, pod: &str, args: &[&str]) -> FetchResult {
    let mut results = lab.fetch(pod, args).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(results.len(), 1, "{args:?}");
    results.remove(0)
}

/// The outcome of a request that the mesh denied without a response.
const DENIED: &str = "denied";

/// Summarizes a result: the status, or [`DENIED`] if the connection was refused or closed. Any
/// other failure (name, route, timeout) is not a decision of the mesh, and is printed in full.
fn outcome(result: &FetchResult) -> String {
    match (result.status, result.failure) {
        (Some(status), None) => status.to_string(),
        (None, Some(failure)) if failure.is_denial() => DENIED.to_owned(),
        _ => format!("{result:?}"),
    }
}

/// Summarizes a TCP result: `answered`, or [`DENIED`] if the connection was refused or closed
/// before the server sent anything.
fn tcp_outcome(result: &TcpResult) -> String {
    match result {
        TcpResult { failure: None, reply: Some(_), .. } => "answered".to_owned(),
        TcpResult { failure: Some(failure), greeting: None, reply: None, .. } if failure.is_denial() => {
            DENIED.to_owned()
        }
        _ => format!("{result:?}"),
    }
}

/// Sends `hello` to a TCP server and returns the outcome.
async fn hello(lab: &LabHandle, pod: &str, address: &str) -> String {
    let result = lab.tcp(pod, &[address, "--send", "hello"]).await;
    tcp_outcome(&result.unwrap_or_else(|error| panic!("{}", error.chain())))
}
