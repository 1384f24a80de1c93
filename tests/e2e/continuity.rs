//! Traffic goes on: over restarts of the controller, without it, and while certificates rotate.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::mesh::{Mesh, allow, any_route};
use crate::{SETTLE, VARIANTS, eventually, eventually_get, start_with};
use nix::sys::signal::Signal;
use smc_tests::lab::{FetchResult, Lab, LabHandle, Variant};
use tokio::task::JoinHandle;

fn mesh() -> Mesh {
    Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
}

/// The pods of the mesh.
const PODS: [&str; 4] = ["clients/alice", "clients/bob", "servers/web-v1", "servers/web-v2"];

/// Alice calls over one connection every 10 ms for about so long.
fn call(lab: &Lab, duration: Duration) -> JoinHandle<Vec<FetchResult>> {
    let handle: LabHandle = (*lab).clone();
    let count = (duration.as_millis() / 10).to_string();
    tokio::spawn(async move {
        let args = ["--url", "http://web.servers/", "--keep-alive", "--count", &count, "--interval", "10ms"];
        handle.fetch("clients/alice", &args).await.unwrap()
    })
}

async fn all_answered_over_one_connection(calls: JoinHandle<Vec<FetchResult>>) {
    let results = calls.await.unwrap();
    let failed: Vec<_> = results.iter().filter(|result| result.status != Some(200)).take(3).collect();
    assert!(failed.is_empty(), "{failed:?}");
    let connections: BTreeSet<u64> = results.iter().map(|result| result.connection).collect();
    assert_eq!(connections.len(), 1, "the connection was dropped");
}

/// One of Envoy's counters.
async fn counter(lab: &LabHandle, pod: &str, name: &str) -> u64 {
    let text =
        lab.envoy_admin(pod, &format!("/stats?filter=^{}$", name.replace('.', "\\."))).await.unwrap().body;
    let value = text.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text:?}"))
}

/// Waits until a proxy is connected and has acknowledged all that it was sent.
async fn eventually_settled(lab: &LabHandle, pod: &str) {
    eventually(&format!("{pod} is connected and acknowledged everything"), async || {
        let status = lab.smc_json(&["proxy", "config", pod]).await.map_err(|error| error.chain())?;
        let types = status.pointer("/streams/0/types").and_then(|types| types.as_array()).cloned();
        let types = types.ok_or_else(|| status.to_string())?;
        let listeners = types.iter().any(|one| one["type"] == "lds");
        let mut resources = types.iter().filter_map(|one| one["resources"].as_array()).flatten();
        if listeners && resources.all(|one| one["sent"] == one["acked"]) {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
}

/// Waits until both versions answer, so that no endpoint is still on its way.
async fn eventually_both_answer(lab: &LabHandle) {
    eventually("both versions answer", async || {
        let args = ["--url", "http://web.servers/", "--count", "20"];
        let results = lab.fetch("clients/alice", &args).await.map_err(|error| error.chain())?;
        let pods: BTreeSet<_> = results.iter().filter_map(FetchResult::pod).collect();
        if pods.len() == 2 { Ok(()) } else { Err(format!("{pods:?}")) }
    })
    .await;
}

/// How many resources the controller sent since it started. It counts responses, too, of which there must be some:
/// even a resumed stream is answered once, with nothing in it.
async fn resources_sent(lab: &LabHandle) -> u64 {
    let metrics = lab
        .exec_on_node(&["smc-lab", "fetch", "--url", "http://127.0.0.1:9091/metrics"])
        .await
        .unwrap()
        .stdout;
    let results: serde_json::Value = serde_json::from_str(&metrics).unwrap();
    let text = results[0]["body"].as_str().unwrap_or_default().to_owned();
    let sum = |name: &str| -> u64 {
        let samples = text.lines().filter(|line| line.starts_with(name));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    assert!(sum("smc_xds_pushes_total") > 0, "nothing was answered:\n{text}");
    assert!(text.contains("smc_xds_pushed_resources"), "the counter is not there:\n{text}");
    sum("smc_xds_pushed_resources_total")
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_flows_while_the_controller_is_down_and_a_restart_resends_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let lab = start_with(&mesh(), |_| {}).await;
        eventually_both_answer(&lab).await;
        for pod in PODS {
            eventually_settled(&lab, pod).await;
        }
        let calls = call(&lab, Duration::from_secs(8));
        lab.stop_controller(signal).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        lab.start_controller().await.unwrap();
        for pod in PODS {
            eventually_settled(&lab, pod).await;
        }
        all_answered_over_one_connection(calls).await;
        assert_eq!(resources_sent(&lab).await, 0, "after {signal}");
        assert_eq!(counter(&lab, "clients/alice", "cluster_manager.cds.update_rejected").await, 0);
        assert_eq!(counter(&lab, "clients/alice", "listener_manager.lds.update_rejected").await, 0);

        // And it still follows changes.
        lab.remove("alice.yaml").await.unwrap();
        eventually_get(&lab, "clients/alice", "http://web.servers/", "denied").await;
        lab.stop().await.unwrap();
    }
}

/// The serial numbers of the certificates an Envoy holds.
async fn serials(lab: &LabHandle, pod: &str) -> BTreeSet<String> {
    let body = lab.envoy_admin(pod, "/certs").await.unwrap().body;
    let certs: serde_json::Value = serde_json::from_str(&body).unwrap();
    let mut serials = BTreeSet::new();
    for certificate in certs["certificates"].as_array().into_iter().flatten() {
        for leaf in certificate["cert_chain"].as_array().into_iter().flatten() {
            let names = leaf["subject_alt_names"].to_string();
            if names.contains("spiffe://") {
                serials.insert(leaf["serial_number"].as_str().unwrap_or_default().to_owned());
            }
        }
    }
    serials
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_without_a_dropped_connection_over_both_xds_variants() {
    for variant in VARIANTS {
        rotates(variant).await;
    }
}

async fn rotates(variant: Variant) {
    let lab = start_with(&mesh(), |options| {
        options.variant = variant;
        options.controller_args = vec!["--service-cert-lifetime".to_owned(), "1m".to_owned()];
    })
    .await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let (client, server) = (serials(&lab, "clients/alice").await, serials(&lab, "servers/web-v1").await);
    assert!(!client.is_empty() && !server.is_empty());
    // The old certificates end within the time of these calls.
    let calls = call(&lab, Duration::from_secs(70));
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1) + SETTLE;
    loop {
        let (new_client, new_server) =
            (serials(&lab, "clients/alice").await, serials(&lab, "servers/web-v1").await);
        if new_client.is_disjoint(&client) && new_server.is_disjoint(&server) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{variant:?}: certificates were not rotated");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // New connections use the new certificates.
    assert_eq!(crate::get(&lab, "clients/alice", "http://web.servers/").await, "200");
    all_answered_over_one_connection(calls).await;
    lab.stop().await.unwrap();
}

/// Waits until what `smc ca status` says of the authority fits.
async fn authority_until(lab: &LabHandle, what: &str, fits: impl Fn(&serde_json::Value) -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    loop {
        let status = lab.smc_json(&["ca", "status"]).await.unwrap();
        if fits(&status) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: {status}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The CA with this serial, as `smc ca status` shows it.
fn authority<'a>(status: &'a serde_json::Value, serial: &str) -> Option<&'a serde_json::Value> {
    status["authorities"].as_array()?.iter().find(|one| one["serial"] == serial)
}

/// Whether all identities have their certificates from under this CA, and none of before is alive.
fn signs_for_all(status: &serde_json::Value, serial: &str) -> bool {
    let all = status["service_certificates"].as_array().map_or(0, Vec::len);
    authority(status, serial).is_some_and(|one| one["service_certificates"] == all)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_issuing_ca_and_the_root_rotate_without_a_failed_request_or_a_dropped_connection() {
    for variant in VARIANTS {
        authority_rotates(variant).await;
    }
}

async fn authority_rotates(variant: Variant) {
    let mesh = mesh().with("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/any"]));
    let lab = start_with(&mesh, |options| {
        options.variant = variant;
        options.controller_args = vec!["--service-cert-lifetime".to_owned(), "20s".to_owned()];
    })
    .await;
    eventually_get(&lab, "clients/alice", "http://web.servers/", "200").await;
    let calls = call(&lab, Duration::from_secs(75));

    let rotated = lab.smc_json(&["ca", "rotate"]).await.unwrap();
    let issuing = rotated["serial"].as_str().unwrap().to_owned();
    authority_until(&lab, "the new issuing CA signs", |status| {
        let one = authority(status, &issuing);
        one.is_some_and(|one| one["state"] == "signing") && signs_for_all(status, &issuing)
    })
    .await;

    let rotated = lab.smc_json(&["ca", "rotate", "--root"]).await.unwrap();
    let root = rotated["serial"].as_str().unwrap().to_owned();
    let again = lab.smc(&["ca", "rotate", "--root"]).await.unwrap();
    assert!(again.status != 0, "one root is rotated at a time: {again:?}");
    let shown = lab.smc(&["ca", "status"]).await.unwrap().stdout;
    assert!(
        shown.contains("root (next)") && shown.contains(&format!("the root {root} is trusted")),
        "{shown}"
    );
    authority_until(&lab, "the proxies acknowledge the new root", |status| {
        let rotation = &status["root_rotation"];
        rotation["signing"] == true || rotation["acknowledged"] == serde_json::json!([0])
    })
    .await;
    authority_until(&lab, "the new root signs", |status| {
        authority(status, &root).is_some_and(|one| one["state"] == "signing") && signs_for_all(status, &root)
    })
    .await;
    let shown = lab.smc(&["ca", "status"]).await.unwrap().stdout;
    assert!(
        shown.contains("(for controllers)") && shown.contains(&format!("the root {root} signs")),
        "{shown}"
    );
    // A handshake between sidecars that had none before: each shows a certificate that the new root vouches for.
    assert_eq!(crate::get(&lab, "clients/bob", "http://web.servers/").await, "200");
    // And these Envoys were started when there was only the old one.
    lab.restart_controller(Signal::SIGTERM).await.unwrap();
    for pod in PODS {
        eventually_settled(&lab, pod).await;
    }
    all_answered_over_one_connection(calls).await;
    for pod in PODS {
        for manager in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
            assert_eq!(counter(&lab, pod, manager).await, 0, "{pod}");
        }
    }
    lab.stop().await.unwrap();
}
