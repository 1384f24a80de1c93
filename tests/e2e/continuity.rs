//! Tests that traffic continues during restarts and outages of the controller, and during the
//! rotation of certificates.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::eventually::{eventually_acknowledged, eventually_answering, eventually_by, eventually_get};
use crate::mesh::{Mesh, allow, any_route, tcp_route};
use crate::metrics::{connections, counter, metrics, sum};
use crate::{SETTLE, VARIANTS, get, start_with, tcp_outcome};
use nix::sys::signal::Signal;
use serde_json::Value;
use smc_lab::{Calls, FetchResult, Lab, LabHandle, TcpConnection, TcpResult, Variant};
use tokio::time::{Instant, sleep_until};

pub(crate) fn mesh() -> Mesh {
    Mesh::web()
        .with("any.yaml", &any_route())
        .with("lines.yaml", &tcp_route("lines", &[7000]))
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
        .with("alice-tcp.yaml", &allow("alice-tcp", "alice", &["TCPRoute/lines"]))
}

/// The pods in the mesh.
pub(crate) const PODS: [&str; 4] = ["clients/alice", "clients/bob", "servers/web-v1", "servers/web-v2"];

/// Clusters of alice's sidecar for her requests and her TCP connection.
const CLUSTERS: [&str; 2] = ["servers/web|80", "servers/web|7000"];

/// Alice's traffic: a request every 10 ms over one connection, and an open TCP connection.
pub(crate) struct Traffic {
    calls: Calls,
    tcp: TcpConnection,
    /// Upstream connections of her sidecar at the start.
    connections: [(u64, u64); 2],
}

impl Traffic {
    pub(crate) async fn start(lab: &LabHandle) -> Self {
        let args =
            ["--url", "http://web.servers/", "--keep-alive", "--count", "100000", "--interval", "10ms"];
        let mut calls = lab.call("clients/alice", &args);
        // Requests alternate between the servers, so her sidecar is connected to both now.
        calls.more(10, SETTLE).await.unwrap();
        let mut tcp = lab.connect_tcp("clients/alice", "web.servers:7000");
        assert_eq!(tcp_outcome(&tcp.send_line("hello").await.unwrap()), "answered");
        Self { calls, tcp, connections: Self::connections(lab).await }
    }

    async fn connections(lab: &LabHandle) -> [(u64, u64); 2] {
        let [http, tcp] = CLUSTERS.map(|cluster| connections(lab, "clients/alice", cluster));
        [http.await, tcp.await]
    }

    /// Waits for more requests, then checks that all traffic since the start used the initial
    /// connections: alice's to her sidecar, and her sidecar's to the servers'. Returns the results of
    /// the requests.
    pub(crate) async fn assert_undisturbed(mut self, lab: &LabHandle) -> Vec<FetchResult> {
        self.calls.more(50, SETTLE).await.unwrap();
        assert_eq!(tcp_outcome(&self.tcp.send_line("hello again").await.unwrap()), "answered");
        assert_eq!(Self::connections(lab).await, self.connections, "{CLUSTERS:?} connected again");
        let results = self.calls.stop();
        let failed: Vec<_> = results.iter().filter(|result| result.status != Some(200)).take(3).collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert!(results.iter().all(|result| result.connection == 1), "alice had to connect again");
        results
    }
}

/// Returns the number of resources the controller sent since it started. Checks that it sent
/// responses at all: even a resumed stream gets one, without resources.
async fn resources_sent(lab: &LabHandle) -> u64 {
    let text = metrics(lab).await;
    assert!(sum(&text, "smc_xds_pushes_total") > 0, "nothing was answered:\n{text}");
    assert!(text.contains("smc_xds_pushed_resources"), "the counter is not there:\n{text}");
    sum(&text, "smc_xds_pushed_resources_total")
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_flows_without_the_controller_and_a_restart_changes_nothing() {
    for variant in VARIANTS {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            outlives_the_controller(variant, signal).await;
        }
    }
}

async fn outlives_the_controller(variant: Variant, signal: Signal) {
    let lab = start_with(&mesh(), |options| options.variant = variant).await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    eventually_all_connected(&lab, &[0]).await;
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
    eventually_all_connected(&lab, &[0]).await;
    traffic.assert_undisturbed(&lab).await;
    if variant == Variant::Delta {
        // A State-of-the-World client cannot say what it holds, so there the controller sends
        // everything again, without effect.
        assert_eq!(resources_sent(&lab).await, 0, "{variant:?} after {signal}");
    }
    assert_eq!(changes().await, before, "{variant:?} after {signal}");
    for name in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
        assert_eq!(counter(&lab, "clients/alice", name).await, 0, "{variant:?} after {signal}");
    }

    // The proxies still follow changes.
    lab.remove("alice.yaml").await.unwrap();
    eventually_get(&lab, "clients/alice", "http://web.servers/", "403").await;
    lab.stop().await.unwrap();
}

/// The serial numbers of the service certificates in an Envoy.
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

/// The serial number of the certificate that web-v1's sidecar presents to a new client.
async fn shown_by_the_server(lab: &Lab) -> String {
    let target = format!("{}:8080", lab.pod_ip("servers/web-v1").await.unwrap());
    let output = lab.exec_on_node(&["smc-lab", "tls", &target]).await.unwrap();
    let result: TcpResult = serde_json::from_str(&output.stdout).unwrap();
    result.server_serial.unwrap_or_else(|| panic!("{output:?}"))
}

/// The fingerprints of the certificates that alice's sidecar presented to the servers' sidecars on
/// the connections of these requests.
fn shown_by_the_client(results: &[FetchResult]) -> BTreeSet<String> {
    let hash = |result: &FetchResult| {
        let caller =
            result.body["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default().to_owned();
        let hash = caller.split(';').find_map(|field| field.strip_prefix("Hash="));
        hash.unwrap_or_else(|| panic!("{result:?}")).to_owned()
    };
    results.iter().map(hash).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_without_a_dropped_connection() {
    let [delta, sotw] = VARIANTS.map(rotates);
    tokio::join!(delta, sotw);
}

async fn rotates(variant: Variant) {
    let lab = start_with(&mesh(), |options| {
        options.variant = variant;
        options.controller_args = vec!["--service-cert-lifetime".to_owned(), "1m".to_owned()];
    })
    .await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    let traffic = Traffic::start(&lab).await;
    let (client, server) = (serials(&lab, "clients/alice").await, serials(&lab, "servers/web-v1").await);
    assert!(!client.is_empty() && !server.is_empty());
    // A lifetime of one minute plus at most a tenth of jitter: by then the initial certificates
    // have expired.
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
    // Only the traffic's own requests tell what its connections keep. Its end closes the upstream
    // HTTP/1.1 connection of a request that is under way, and a later request opens a new one.
    let old_client = shown_by_the_client(&traffic.assert_undisturbed(&lab).await);

    // New connections use the new certificates on both sides.
    let fetched = lab.fetch("clients/alice", &["--url", "http://web-v1.servers/", "--count", "10"]).await;
    let new_client = shown_by_the_client(&fetched.unwrap());
    let new_server = shown_by_the_server(&lab).await;
    assert!(old_client.is_disjoint(&new_client), "{variant:?}: {old_client:?} and {new_client:?}");
    assert!(!server.contains(&new_server), "{variant:?}: {new_server} is an old one: {server:?}");
    assert_eq!(get(&lab, "clients/alice", "http://web-v2.servers/").await, "200");
    lab.stop().await.unwrap();
}

/// Runs `smc ca ARGS` against a replica and parses its JSON.
pub(crate) async fn ca(lab: &LabHandle, replica: u16, args: &[&str]) -> Result<Value, String> {
    let args: Vec<_> = ["ca"].iter().chain(args).chain(&["-o", "json"]).copied().collect();
    let output = lab.smc_of(replica, &args).await.map_err(|error| error.chain())?;
    if output.status != 0 {
        return Err(output.stderr);
    }
    serde_json::from_str(&output.stdout).map_err(|error| format!("{error}: {output:?}"))
}

/// Waits until `holds` is true for `smc ca status` of a replica.
pub(crate) async fn eventually_authority(
    lab: &LabHandle,
    replica: u16,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) {
    // Certificates from before the rotation expire after 22 seconds, and a new leader may check
    // only after a minute.
    eventually_by(Instant::now() + 4 * SETTLE, what, async || {
        let status = ca(lab, replica, &["status"]).await?;
        if holds(&status) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Returns true if this CA signs, and has issued the certificate of every identity.
pub(crate) fn signs_for_all(status: &Value, serial: &str) -> bool {
    let all = status["service_certificates"].as_array().map_or(0, Vec::len);
    let mut authorities = status["authorities"].as_array().into_iter().flatten();
    let one = authorities.find(|one| one["serial"] == serial);
    one.is_some_and(|one| one["state"] == "signing" && one["service_certificates"] == all)
}

/// Waits until every proxy is connected to one of these replicas and has acknowledged everything sent
/// to it.
async fn eventually_all_connected(lab: &LabHandle, replicas: &[u16]) {
    for pod in PODS {
        eventually_acknowledged(lab, replicas, pod).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn issuing_ca_and_root_rotate_under_traffic_while_the_leader_dies() {
    tokio::join!(authority_rotates(Variant::Sotw, 1), authority_rotates(Variant::Delta, 3));
}

async fn authority_rotates(variant: Variant, replicas: u16) {
    let mesh = mesh().with("bob.yaml", &allow("bob", "bob", &["HTTPRouteGroup/any"]));
    let lab = start_with(&mesh, |options| {
        options.variant = variant;
        options.replicas = replicas;
        options.controller_args = vec!["--service-cert-lifetime".to_owned(), "20s".to_owned()];
    })
    .await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    let traffic = Traffic::start(&lab).await;
    // The replica that runs during the whole test.
    let asked = replicas - 1;

    let rotated = ca(&lab, asked, &["rotate"]).await.unwrap();
    let issuing = rotated["serial"].as_str().unwrap();
    eventually_authority(&lab, asked, "the new issuing CA signs", |status| signs_for_all(status, issuing))
        .await;

    let transferred = lab.smc(&["cluster", "transfer", "0"]).await.unwrap();
    assert_eq!(transferred.status, 0, "{transferred:?}");
    let rotated = ca(&lab, asked, &["rotate", "--root"]).await.unwrap();
    let root = rotated["serial"].as_str().unwrap();
    let again = ca(&lab, asked, &["rotate", "--root"]).await;
    assert!(again.as_ref().is_err_and(|error| error.contains("one root is rotated at a time")), "{again:?}");
    let shown = lab.smc_of(asked, &["ca", "status"]).await.unwrap().stdout;
    assert!(
        shown.contains("root (next)") && shown.contains(&format!("the root {root} is trusted")),
        "{shown}"
    );
    eventually_authority(&lab, asked, "all proxies acknowledge the new root", |status| {
        let acknowledged = status["root_rotation"]["acknowledged"].as_array();
        acknowledged.is_some_and(|all| all.len() == usize::from(replicas))
    })
    .await;
    // The leader dies before it signs with the new root.
    lab.stop_controller(Signal::SIGKILL).await.unwrap();
    if replicas == 1 {
        lab.start_controller().await.unwrap();
    }
    eventually_authority(&lab, asked, "the new root signs", |status| signs_for_all(status, root)).await;
    let shown = lab.smc_of(asked, &["ca", "status"]).await.unwrap().stdout;
    assert!(
        shown.contains("(for controllers)") && shown.contains(&format!("the root {root} signs")),
        "{shown}"
    );
    // A first handshake between two sidecars: both present certificates under the new root.
    assert_eq!(get(&lab, "clients/bob", "http://web.servers/").await, "200");
    // These Envoys started with the old root only. All must reconnect.
    if replicas == 1 {
        lab.stop_controller(Signal::SIGTERM).await.unwrap();
        lab.start_controller().await.unwrap();
        eventually_all_connected(&lab, &[0]).await;
    } else {
        lab.start_controller().await.unwrap();
        lab.stop_replica(1, Signal::SIGTERM).await.unwrap();
        eventually_all_connected(&lab, &[0, 2]).await;
    }
    traffic.assert_undisturbed(&lab).await;
    for pod in PODS {
        for name in ["cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"] {
            assert_eq!(counter(&lab, pod, name).await, 0, "{pod}");
        }
    }
    lab.stop().await.unwrap();
}
