//! Tests that replicas are restarted in turn, drained and killed under traffic, and no sidecar loses
//! anything.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use smc_lab::LabHandle;
use tokio::time::Instant;

use crate::continuity::{PODS, Traffic, mesh};
use crate::eventually::{eventually_answering, eventually_by, eventually_get};
use crate::mesh::allow;
use crate::metrics::counter;
use crate::start_with;

const REPLICAS: u16 = 3;

/// How long the shards may take to settle: a killed replica is down after some seconds, a sidecar that
/// could not reach its owner comes back to it after ten at the earliest, and the machine may be busy.
const SHARDS_SETTLE: Duration = Duration::from_mins(1);

/// The answer of one replica about the shards.
async fn shards(lab: &LabHandle, asked: u16) -> Result<Value, String> {
    let output = lab.smc_of(asked, &["cluster", "shards", "-o", "json"]).await;
    let output = output.map_err(|error| error.chain())?;
    serde_json::from_str(&output.stdout).map_err(|error| format!("{error}: {output:?}"))
}

/// Waits until these replicas are ready and serve the proxies that they own, and every proxy is served.
async fn eventually_settled(lab: &LabHandle, asked: u16, ready: &[u16]) {
    eventually_by(Instant::now() + SHARDS_SETTLE, &format!("{ready:?} serve their shards"), async || {
        let report = shards(lab, asked).await?;
        let all = report["shards"].as_array().cloned().unwrap_or_default();
        let is_ready = |shard: &Value| {
            shard["phase"] == "ready" && shard["to_move"] == 0 && shard["connected"] == shard["owned"]
        };
        let settled: Vec<_> = all.iter().filter(|shard| is_ready(shard)).collect();
        let replicas = settled.iter().map(|shard| shard["replica"].as_u64().unwrap_or_default());
        let served: u64 = settled.iter().map(|shard| shard["connected"].as_u64().unwrap_or_default()).sum();
        let wanted = ready.iter().map(|replica| u64::from(*replica));
        if replicas.eq(wanted) && served == PODS.len() as u64 { Ok(()) } else { Err(report.to_string()) }
    })
    .await;
}

/// What each sidecar has counted of new or changed clusters and listeners.
async fn changes(lab: &LabHandle) -> Vec<u64> {
    let mut changes = Vec::new();
    for pod in PODS {
        for name in [
            "cluster_manager.cluster_added",
            "cluster_manager.cluster_modified",
            "listener_manager.listener_added",
            "listener_manager.listener_modified",
        ] {
            changes.push(counter(lab, pod, name).await);
        }
    }
    changes
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_upgraded_drained_and_killed_and_no_request_fails() {
    let lab = start_with(&mesh(), |options| options.replicas = REPLICAS).await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    eventually_settled(&lab, 0, &[0, 1, 2]).await;
    let traffic = Traffic::start(&lab).await;
    let before = changes(&lab).await;

    lab.stop_replica(0, Signal::SIGTERM).await.unwrap();
    eventually_settled(&lab, 1, &[1, 2]).await;
    lab.start_replica(0).await.unwrap();
    eventually_settled(&lab, 1, &[0, 1, 2]).await;
    assert_eq!(changes(&lab).await, before, "a move changes nothing");

    // A change in the middle reaches all, while a replica is gone.
    lab.stop_replica(1, Signal::SIGTERM).await.unwrap();
    eventually_get(&lab, "clients/bob", "http://web.servers/", crate::DENIED).await;
    lab.apply("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/any"])).await.unwrap();
    eventually_get(&lab, "clients/bob", "http://web.servers/", "200").await;
    eventually_settled(&lab, 0, &[0, 2]).await;
    let changed = changes(&lab).await;
    lab.start_replica(1).await.unwrap();
    eventually_settled(&lab, 0, &[0, 1, 2]).await;

    lab.stop_replica(2, Signal::SIGTERM).await.unwrap();
    eventually_settled(&lab, 0, &[0, 1]).await;
    lab.start_replica(2).await.unwrap();
    eventually_settled(&lab, 0, &[0, 1, 2]).await;

    // A live replica is drained, and comes back.
    let drained = lab.smc_of(1, &["cluster", "drain", "--wait"]).await.unwrap();
    assert_eq!(drained.status, 0, "{drained:?}");
    eventually_settled(&lab, 0, &[0, 2]).await;
    let shown = shards(&lab, 1).await.unwrap();
    assert_eq!(
        (&shown["shards"][1]["phase"], &shown["shards"][1]["connected"]),
        (&"draining".into(), &0.into())
    );
    assert_eq!(lab.smc_of(1, &["cluster", "drain", "--cancel"]).await.unwrap().status, 0);
    eventually_settled(&lab, 0, &[0, 1, 2]).await;

    lab.stop_replica(1, Signal::SIGKILL).await.unwrap();
    eventually_settled(&lab, 0, &[0, 2]).await;
    lab.start_replica(1).await.unwrap();
    eventually_settled(&lab, 0, &[0, 1, 2]).await;

    assert_eq!(changes(&lab).await, changed, "neither a move nor a crash changes anything");
    for pod in PODS {
        for name in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
            assert_eq!(counter(&lab, pod, name).await, 0, "{pod}");
        }
    }
    traffic.assert_undisturbed(&lab).await;
    lab.stop().await.unwrap();
}
