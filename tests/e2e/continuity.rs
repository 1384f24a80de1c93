//! Traffic goes on: over restarts of the controller, without it, and while certificates rotate.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::mesh::{Mesh, allow, any_route, tcp_route};
use crate::{
    SETTLE, VARIANTS, connections, counter, eventually, eventually_by, eventually_get, get, metrics,
    start_with, sum, tcp_outcome,
};
use nix::sys::signal::Signal;
use smc_tests::lab::{Calls, FetchResult, Lab, LabHandle, Talk, TcpResult, Variant};
use tokio::time::{Instant, sleep_until};

fn mesh() -> Mesh {
    Mesh::web()
        .with("any.yaml", &any_route())
        .with("lines.yaml", &tcp_route("lines", &[7000]))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("alice-tcp.yaml", &allow("alice-tcp", "alice", &["TCPRoute/lines"]))
}

/// The pods of the mesh.
const PODS: [&str; 4] = ["clients/alice", "clients/bob", "servers/web-v1", "servers/web-v2"];

/// What alice's sidecar connects to for her requests and for her conversation.
const CLUSTERS: [&str; 2] = ["servers/web|80", "servers/web|7000"];

/// Alice's traffic: a request every 10 ms over one connection, and a conversation.
struct Traffic {
    calls: Calls,
    talk: Talk,
    /// The connections from her sidecar to the servers' when all of that went well.
    connections: [(u64, u64); 2],
}

impl Traffic {
    async fn start(lab: &LabHandle) -> Self {
        let args =
            ["--url", "http://web.servers/", "--keep-alive", "--count", "100000", "--interval", "10ms"];
        let mut calls = lab.call("clients/alice", &args);
        // Both servers take turns, so her sidecar is connected to both now.
        calls.more(10, SETTLE).await.unwrap();
        let mut talk = lab.talk("clients/alice", "web.servers:7000");
        assert_eq!(tcp_outcome(&talk.say("hello").await.unwrap()), "answered");
        Self { calls, talk, connections: Self::connections(lab).await }
    }

    async fn connections(lab: &LabHandle) -> [(u64, u64); 2] {
        let [http, tcp] = CLUSTERS.map(|cluster| connections(lab, "clients/alice", cluster));
        [http.await, tcp.await]
    }

    /// Some more requests, and that everything since the start was carried by the connections of then: alice's to her
    /// sidecar, and her sidecar's to the servers'.
    async fn assert_undisturbed(mut self, lab: &LabHandle) {
        self.calls.more(50, SETTLE).await.unwrap();
        assert_eq!(tcp_outcome(&self.talk.say("hello again").await.unwrap()), "answered");
        assert_eq!(Self::connections(lab).await, self.connections, "{CLUSTERS:?} connected again");
        let results = self.calls.stop();
        let failed: Vec<_> = results.iter().filter(|result| result.status != Some(200)).take(3).collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert!(results.iter().all(|result| result.connection == 1), "alice had to connect again");
    }
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
    let text = metrics(lab).await;
    assert!(sum(&text, "smc_xds_pushes_total") > 0, "nothing was answered:\n{text}");
    assert!(text.contains("smc_xds_pushed_resources"), "the counter is not there:\n{text}");
    sum(&text, "smc_xds_pushed_resources_total")
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_flows_while_the_controller_is_down_and_a_restart_changes_nothing_over_both_xds_variants() {
    for variant in VARIANTS {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            outlives_the_controller(variant, signal).await;
        }
    }
}

async fn outlives_the_controller(variant: Variant, signal: Signal) {
    let lab = start_with(&mesh(), |options| options.variant = variant).await;
    eventually_both_answer(&lab).await;
    for pod in PODS {
        eventually_settled(&lab, pod).await;
    }
    let mut traffic = Traffic::start(&lab).await;
    let changes = async || {
        let mut changes = Vec::new();
        for pod in PODS {
            for name in ["cluster_manager.cluster_modified", "listener_manager.listener_modified"] {
                changes.push(counter(&lab, pod, name).await);
            }
        }
        changes
    };
    let before = changes().await;
    lab.stop_controller(signal).await.unwrap();
    traffic.calls.more(100, SETTLE).await.unwrap();
    lab.start_controller().await.unwrap();
    for pod in PODS {
        eventually_settled(&lab, pod).await;
    }
    traffic.assert_undisturbed(&lab).await;
    if variant == Variant::Delta {
        // State-of-the-World cannot say what it holds, so there the restart sends all again: to no effect.
        assert_eq!(resources_sent(&lab).await, 0, "{variant:?} after {signal}");
    }
    assert_eq!(changes().await, before, "{variant:?} after {signal}");
    for name in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
        assert_eq!(counter(&lab, "clients/alice", name).await, 0, "{variant:?} after {signal}");
    }

    // And it still follows changes.
    lab.remove("alice.yaml").await.unwrap();
    eventually_get(&lab, "clients/alice", "http://web.servers/", "403").await;
    lab.stop().await.unwrap();
}

/// The serial numbers of the service certificates an Envoy holds.
async fn serials(lab: &LabHandle, pod: &str) -> BTreeSet<String> {
    let body = lab.envoy_admin(pod, "/certs").await.unwrap().body;
    let certs: serde_json::Value = serde_json::from_str(&body).unwrap();
    let mut serials = BTreeSet::new();
    for certificate in certs["certificates"].as_array().into_iter().flatten() {
        for leaf in certificate["cert_chain"].as_array().into_iter().flatten() {
            let names = leaf["subject_alt_names"].to_string();
            if names.contains("spiffe://") {
                let serial = leaf["serial_number"].as_str().unwrap_or_default();
                serials.insert(serial.trim_start_matches('0').to_owned());
            }
        }
    }
    serials
}

/// The serial number of the certificate that web-v1's sidecar shows to a new client.
async fn shown_by_the_server(lab: &Lab) -> String {
    let target = format!("{}:8080", lab.pod_ip("servers/web-v1").await.unwrap());
    let output = lab.exec_on_node(&["smc-lab", "tls", &target]).await.unwrap();
    let result: TcpResult = serde_json::from_str(&output.stdout).unwrap();
    result.server_serial.unwrap_or_else(|| panic!("{output:?}"))
}

/// The fingerprints of the certificates that alice's sidecar has shown to the sidecars that answer at `url`.
async fn shown_by_the_client(lab: &LabHandle, url: &str) -> BTreeSet<String> {
    let results = lab.fetch("clients/alice", &["--url", url, "--count", "10"]).await.unwrap();
    let hash = |result: &FetchResult| {
        let caller =
            result.body["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default().to_owned();
        let hash = caller.split(';').find_map(|field| field.strip_prefix("Hash="));
        hash.unwrap_or_else(|| panic!("{result:?}")).to_owned()
    };
    results.iter().map(hash).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_without_a_dropped_connection_over_both_xds_variants() {
    let [delta, sotw] = VARIANTS.map(rotates);
    tokio::join!(delta, sotw);
}

async fn rotates(variant: Variant) {
    let lab = start_with(&mesh(), |options| {
        options.variant = variant;
        options.controller_args = vec!["--service-cert-lifetime".to_owned(), "1m".to_owned()];
    })
    .await;
    eventually_both_answer(&lab).await;
    let url = "http://web.servers/";
    let traffic = Traffic::start(&lab).await;
    let (client, server) = (serials(&lab, "clients/alice").await, serials(&lab, "servers/web-v1").await);
    assert!(!client.is_empty() && !server.is_empty());
    // A minute, and a tenth of it at most by jitter: then the certificates of now have ended.
    let ended = Instant::now() + Duration::from_secs(68);
    eventually_by(ended + SETTLE, &format!("{variant:?}: the certificates are rotated"), async || {
        let now = (serials(&lab, "clients/alice").await, serials(&lab, "servers/web-v1").await);
        if now.0.is_disjoint(&client) && now.1.is_disjoint(&server) {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    })
    .await;
    sleep_until(ended).await;
    traffic.assert_undisturbed(&lab).await;

    // New connections show the new certificates, on both sides; those to `web` are the old ones.
    let (new_client, new_server) =
        (shown_by_the_client(&lab, "http://web-v1.servers/").await, shown_by_the_server(&lab).await);
    assert!(shown_by_the_client(&lab, url).await.is_disjoint(&new_client), "{variant:?}: {new_client:?}");
    assert!(!server.contains(&new_server), "{variant:?}: {new_server} is an old one: {server:?}");
    assert_eq!(get(&lab, "clients/alice", "http://web-v2.servers/").await, "200");
    lab.stop().await.unwrap();
}
