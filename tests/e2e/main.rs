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
mod headless;
mod live;
mod mesh;
mod protocols;
mod rejection;
mod splits;

use std::time::Duration;

use smc_tests::lab::{FetchResult, Lab, LabHandle, LabOptions, Variant};
use tokio::time::Instant;

use mesh::Mesh;

/// How long a declared change may take until it holds everywhere. A second is usual; the rest is for a
/// machine that runs several labs at once.
const SETTLE: Duration = Duration::from_secs(30);

/// A lab for `mesh`, all pods ready.
async fn start(mesh: &Mesh) -> Lab {
    start_with(mesh, |_| {}).await
}

/// A lab for `mesh` with other options.
async fn start_with(mesh: &Mesh, adjust: impl FnOnce(&mut LabOptions)) -> Lab {
    let directory = tempfile::tempdir().unwrap();
    mesh.write(directory.path());
    let mut options = LabOptions::new(directory.path());
    adjust(&mut options);
    // The lab works on a copy of its own, so the directory may go.
    Lab::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// Both ways to speak xDS.
const VARIANTS: [Variant; 2] = [Variant::Delta, Variant::Sotw];

/// Waits until `condition` yields `Ok`; panics with its last `Err` after [`SETTLE`].
async fn eventually<F>(what: &str, mut condition: impl FnMut() -> F)
where
    F: Future<Output = Result<(), String>>,
{
    let deadline = Instant::now() + SETTLE;
    loop {
        match condition().await {
            Ok(()) => return,
            Err(last) if Instant::now() >= deadline => panic!("{what}: not within {SETTLE:?}; last: {last}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The outcome of one GET, in short: the status, or `denied` when the mesh closed the connection.
async fn get(lab: &LabHandle, pod: &str, url: &str) -> String {
    outcome(&fetch(lab, pod, &["--url", url]).await)
}

/// The only result of one request.
async fn fetch(lab: &LabHandle, pod: &str, args: &[&str]) -> FetchResult {
    let mut results = lab.fetch(pod, args).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(results.len(), 1, "{args:?}");
    results.remove(0)
}

/// A result, in short: the status, or `denied` when there was no answer.
fn outcome(result: &FetchResult) -> String {
    result.status.map_or_else(|| "denied".to_owned(), |status| status.to_string())
}

/// Waits until a GET has this outcome.
async fn eventually_get(lab: &LabHandle, pod: &str, url: &str, expected: &str) {
    eventually(&format!("{pod} gets {url}: {expected}"), async || {
        let outcome = get(lab, pod, url).await;
        if outcome == expected { Ok(()) } else { Err(outcome) }
    })
    .await;
}
