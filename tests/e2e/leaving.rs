//! Tests that a pod that goes, or whose application refuses connections, costs no request, and that
//! no request is sent twice that could have been processed.

use std::time::Duration;

use smc_lab::{Calls, FetchResult, LabHandle, Variant};
use smc_testkit::setting::setting;
use tokio::time::Instant;

use crate::eventually::{eventually, eventually_answering};
use crate::mesh::{Mesh, allow, any_route, pod};
use crate::{SETTLE, VARIANTS, fetch, start, start_with};

/// Pods that are deleted under load, unless `SMC_DELETIONS` says how many: half of them with each
/// xDS variant.
const DELETIONS: u32 = 10;

/// What reaches the servers, as each protocol.
const CLIENTS: [&[&str]; 3] = [
    &["--url", "http://web.servers/"],
    &["--url", "http://web.servers/", "--http2"],
    &["--url", "http://web.servers:90/echo.Echo/Say", "--grpc", "--body", "hello"],
];

fn mesh() -> Mesh {
    Mesh::web()
        .with("any.yaml", &any_route())
        .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
}

/// Returns true if the server answered the request: for gRPC also by the status in the trailers.
fn succeeded(result: &FetchResult) -> bool {
    let grpc = result.trailers.get("grpc-status").or(result.headers.get("grpc-status"));
    result.status == Some(200) && result.failure.is_none() && grpc.is_none_or(|status| status == "0")
}

/// Alice's requests, every 5 ms in each protocol.
fn load(lab: &LabHandle) -> Vec<Calls> {
    let endless = ["--keep-alive", "--count", "1000000", "--interval", "5ms"];
    CLIENTS.iter().map(|client| lab.call("clients/alice", &[client, &endless[..]].concat())).collect()
}

async fn more(calls: &mut [Calls], count: usize) {
    for calls in calls {
        calls.more(count, SETTLE).await.unwrap();
    }
}

fn assert_none_failed(calls: Vec<Calls>, what: &str) {
    let mut summary = Vec::new();
    for (client, calls) in CLIENTS.iter().zip(calls) {
        let results = calls.stop();
        let failed: Vec<_> = results.iter().filter(|result| !succeeded(result)).collect();
        if let Some(first) = failed.first() {
            summary.push(format!("{} of {} as {client:?}: {first:?}", failed.len(), results.len()));
        }
    }
    assert!(summary.is_empty(), "{what}: requests failed: {summary:#?}");
}

/// How many pods each variant's lab deletes.
fn deletions() -> u32 {
    setting("SMC_DELETIONS").unwrap_or(DELETIONS).div_ceil(2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_under_load_costs_no_request() {
    let [delta, sotw] = VARIANTS.map(|variant| deleted(variant, deletions()));
    tokio::join!(delta, sotw);
}

async fn deleted(variant: Variant, deletions: u32) {
    let lab = start_with(&mesh(), |options| options.variant = variant).await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    let mut calls = load(&lab);
    for name in ["web-v2", "web-v1"].into_iter().cycle().take(deletions as usize) {
        more(&mut calls, 20).await;
        let file = format!("pod-{name}.yaml");
        lab.remove(&file).await.unwrap();
        lab.wait_gone(&format!("servers/{name}"), SETTLE).await.unwrap();
        more(&mut calls, 20).await;
        lab.apply(&file, &pod("servers", name, "web")).await.unwrap();
        lab.wait_ready(&format!("servers/{name}"), SETTLE).await.unwrap();
        eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    }
    assert_none_failed(calls, &format!("{deletions} deletions, {variant:?}"));
    lab.stop().await.unwrap();
}

/// Each pod is replaced by another one in turn, as a Deployment does it.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_replacement_of_all_pods_costs_no_request() {
    let lab = start(&mesh()).await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    let mut calls = load(&lab);
    for round in 1..=2 {
        for name in ["web-v1", "web-v2"] {
            let replaced = lab.pod_ip(&format!("servers/{name}")).await.unwrap();
            let yaml = pod("servers", name, "web");
            let another = yaml.replace(
                "      ports:",
                &format!("      env: [{{name: ROUND, value: '{round}'}}]\n      ports:"),
            );
            assert_ne!(yaml, another);
            lab.apply(&format!("pod-{name}.yaml"), &another).await.unwrap();
            eventually(&format!("{name} is replaced"), async || {
                let info = lab.pod(&format!("servers/{name}")).await.map_err(|error| error.chain())?;
                if info.ready && !info.addresses.contains(&replaced) {
                    Ok(())
                } else {
                    Err(format!("{info:?}"))
                }
            })
            .await;
            eventually_answering(&lab, &["web-v1", "web-v2"]).await;
            more(&mut calls, 20).await;
        }
    }
    assert_none_failed(calls, "two rounds");
    lab.stop().await.unwrap();
}

/// Where no other pod is ready, the one that goes is asked until it ends.
#[tokio::test(flavor = "multi_thread")]
async fn the_only_pod_of_a_service_serves_until_it_ends() {
    let lab = start(&mesh()).await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    lab.remove("pod-web-v1.yaml").await.unwrap();
    let results = lab
        .fetch("clients/alice", &["--url", "http://web-v1.servers/", "--count", "50", "--interval", "20ms"]);
    let results = results.await.unwrap();
    assert!(lab.pod("servers/web-v1").await.is_ok(), "it is gone already");
    let failed: Vec<_> = results.iter().filter(|result| !succeeded(result)).collect();
    assert!(failed.is_empty(), "{} of {}, {:?}", failed.len(), results.len(), failed[0]);
    lab.stop().await.unwrap();
}

/// A second pod behind `web` that is ready, and whose application listens on no port of the service.
fn deaf() -> String {
    pod("servers", "web-v2", "web")
        .replace("--http, '8080', --grpc, '9090'", "--http, '8088', --grpc, '9099'")
        .replace("tcpSocket: {port: 8080}", "tcpSocket: {port: 8088}")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_certainly_not_processed_is_sent_to_another_pod() {
    let lab = start(&mesh().with("pod-web-v2.yaml", &deaf())).await;
    eventually_known(&lab).await;
    // First nothing at all answers at the pod's address: the connection to it is refused.
    let address = lab.pod_ip("servers/web-v2").await.unwrap().to_string();
    let rule = format!("FORWARD -d {address} -p tcp --syn -j REJECT --reject-with tcp-reset");
    for (change, refuses) in [("-I", "the address"), ("-D", "the application")] {
        let command = format!("iptables {change} {rule}");
        let changed = lab.exec_on_node(&command.split(' ').collect::<Vec<_>>()).await.unwrap();
        assert_eq!(changed.status, 0, "{changed:?}");
        for client in CLIENTS {
            let results = lab.fetch("clients/alice", &[client, &["--count", "40"]].concat()).await.unwrap();
            let failed: Vec<_> = results.iter().filter(|result| !succeeded(result)).collect();
            let count = format!("{refuses} refuses {client:?}: {} of {}", failed.len(), results.len());
            assert!(failed.is_empty(), "{count}, {:?}", failed[0]);
            let marked = |result: &FetchResult| result.headers.contains_key("x-smc-not-processed");
            assert!(!results.iter().any(marked), "{refuses} {results:?}");
        }
    }
    lab.stop().await.unwrap();
}

/// Waits until alice's sidecar knows both pods, without a request.
async fn eventually_known(lab: &LabHandle) {
    eventually("alice knows both pods", async || {
        let clusters = lab.envoy_admin("clients/alice", "/clusters").await.map_err(|error| error.chain())?;
        let known = |port| {
            let hosts =
                clusters.body.lines().filter(|line| line.starts_with(&format!("servers/web|{port}::10.")));
            hosts.filter(|line| line.contains("::health_flags::")).count()
        };
        let known = [known(80), known(90)];
        if known == [2, 2] { Ok(()) } else { Err(format!("{known:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retries_a_refused_connection_is_the_clients_to_handle() {
    let lab = start_with(&mesh().with("pod-web-v2.yaml", &deaf()), |options| {
        options.controller_args = vec!["--request-retries".to_owned(), "0".to_owned()];
    })
    .await;
    eventually_known(&lab).await;
    let results = lab.fetch("clients/alice", &[CLIENTS[0], &["--count", "20"]].concat()).await.unwrap();
    let failed = results.iter().filter(|result| result.status == Some(503)).count();
    assert_eq!(failed, 10, "round robin over two pods: {results:?}");
    lab.stop().await.unwrap();
}

/// An answer of the application, a connection that it breaks off, and a header that it sets: none of
/// them makes a request come twice.
#[tokio::test(flavor = "multi_thread")]
async fn what_could_have_been_processed_is_sent_once() {
    let lab = start(&mesh()).await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    let served = async || {
        let result = fetch(&lab, "clients/alice", &["--url", "http://web-v1.servers/"]).await;
        result.body["request"].as_u64().unwrap_or_else(|| panic!("{result:?}"))
    };
    // More than is kept for another attempt.
    let body = "x".repeat(100_000);
    for (path, status) in [("/", 200), ("/status/503", 503), ("/abort", 503), ("/not-processed", 503)] {
        let before = served().await;
        let url = format!("http://web-v1.servers{path}");
        let started = Instant::now();
        let result =
            fetch(&lab, "clients/alice", &["--url", &url, "--method", "POST", "--body", &body]).await;
        assert_eq!(result.status, Some(status), "{path}: {result:?}");
        assert!(started.elapsed() < Duration::from_secs(5), "{path}");
        assert_eq!(served().await, before + 2, "{path} came more than once");
    }
    lab.stop().await.unwrap();
}
