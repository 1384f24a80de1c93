//! Owns the waits of the tests: each polls a condition until it holds or a time limit passes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use smc_lab::{FetchResult, LabHandle};
use smc_testkit::eventually::{self, Patience};
use tokio::time::Instant;

use crate::{SETTLE, get};

/// The pause between checks, each of which runs a process.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until `condition` returns `Ok`; panics with its last `Err` after [`SETTLE`].
pub(crate) async fn eventually(what: &str, condition: impl AsyncFnMut() -> Result<(), String>) {
    eventually::eventually(Patience { limit: SETTLE, pause: PAUSE }, what, condition).await;
}

/// Waits until `condition` returns `Ok`; panics with its last `Err` after `deadline`.
pub(crate) async fn eventually_by(
    deadline: Instant,
    what: &str,
    condition: impl AsyncFnMut() -> Result<(), String>,
) {
    let limit = deadline.saturating_duration_since(Instant::now());
    eventually::eventually(Patience { limit, pause: PAUSE }, what, condition).await;
}

/// Waits until a GET has this outcome.
pub(crate) async fn eventually_get(lab: &LabHandle, pod: &str, url: &str, expected: &str) {
    eventually(&format!("{pod} gets {url}: {expected}"), async || {
        let outcome = get(lab, pod, url).await;
        if outcome == expected { Ok(()) } else { Err(outcome) }
    })
    .await;
}

/// Waits until exactly these pods answer alice's requests to the service `web`: endpoints arrive and
/// leave one by one.
pub(crate) async fn eventually_answering(lab: &LabHandle, pods: &[&str]) {
    eventually(&format!("{pods:?} answer"), async || {
        let args = ["--url", "http://web.servers/", "--count", "60"];
        let results = lab.fetch("clients/alice", &args).await.map_err(|error| error.chain())?;
        let answering: BTreeSet<_> = results.iter().filter_map(FetchResult::pod).collect();
        if answering.iter().eq(pods) { Ok(()) } else { Err(format!("{answering:?}")) }
    })
    .await;
}

/// Waits until a proxy is connected to one of these replicas and has acknowledged everything sent to
/// it.
pub(crate) async fn eventually_acknowledged(lab: &LabHandle, replicas: &[u16], pod: &str) {
    eventually(&format!("{pod} is connected and has acknowledged everything"), async || {
        let mut last = String::new();
        for &replica in replicas {
            let args = ["proxy", "config", pod, "-o", "json"];
            let output = lab.smc_of(replica, &args).await.map_err(|error| error.chain())?;
            let status: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
            if has_acknowledged_everything(&status) {
                return Ok(());
            }
            last = format!("{output:?}");
        }
        Err(last)
    })
    .await;
}

/// Returns true if the first stream of `smc proxy config` has listeners, and all its resources are
/// acknowledged.
fn has_acknowledged_everything(status: &Value) -> bool {
    let types = status.pointer("/streams/0/types").and_then(Value::as_array);
    let mut resources = types.into_iter().flatten().filter_map(|one| one["resources"].as_array()).flatten();
    types.is_some_and(|types| types.iter().any(|one| one["type"] == "lds"))
        && resources.all(|one| one["sent"] == one["acked"])
}
