//! Pods with their sidecars as they live: workloads of each kind, probes, exclusions, and what they
//! reach.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use smc_test_kubernetes::Cluster;

use crate::mesh::{self, SETTLE};
use crate::shared;
use crate::traffic::{expect, fetch};

const MANIFESTS: &str = include_str!("living.yaml");

/// Longer than some periods of the probes of one second.
const PROBED: Duration = Duration::from_secs(8);

async fn pod(cluster: &Cluster, name: &str) -> Value {
    let get = ["get", "pod", "-n", "living", name, "-o", "json"];
    let output = cluster.kubectl(&get).await.unwrap();
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

async fn address(cluster: &Cluster, name: &str) -> String {
    pod(cluster, name).await["status"]["podIP"].as_str().unwrap().to_owned()
}

/// The restarts of all containers of a pod, sidecars included.
async fn restarts(cluster: &Cluster, name: &str) -> u64 {
    let status = &pod(cluster, name).await["status"];
    let kinds = ["containerStatuses", "initContainerStatuses"];
    let all = kinds.iter().filter_map(|kind| status[*kind].as_array()).flatten();
    all.filter_map(|container| container["restartCount"].as_u64()).sum()
}

/// A request that the sidecar does not let out: no answer of the server.
async fn expect_denied(cluster: &Cluster, from: &str, url: &str) {
    let fetched = fetch(cluster, from, url).await.unwrap();
    assert!(fetched.is_denied(), "{from} to {url}: {fetched:?}");
}

/// One test, because its parts share pods that take a minute to be ready.
#[tokio::test]
async fn pods_of_every_kind_live_with_their_sidecars() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    cluster.apply(MANIFESTS).await.unwrap();
    for name in ["web-0", "web-1", "client", "on-host", "excluded", "probed"] {
        mesh::wait_ready(&cluster, "living", &[&format!("pod/{name}")]).await;
    }
    mesh::wait_ready(&cluster, "outside", &["pod/plain"]).await;
    both_replicas_answer_and_see_the_caller(&cluster).await;
    expect(&cluster, "living/client", "http://web-metrics.living:9090/metrics", Some(200)).await;
    probes_of_all_kinds_arrive(&cluster).await;
    exclusions_pass_the_sidecar_by(&cluster).await;
    a_pod_on_the_host_has_no_sidecar(&cluster).await;
    a_job_ends_and_init_containers_have_the_network(&cluster).await;
}

async fn both_replicas_answer_and_see_the_caller(cluster: &Cluster) {
    expect(cluster, "living/client", "http://web.living/hello", Some(200)).await;
    let mut pods = BTreeSet::new();
    for _ in 0..40 {
        let fetched = fetch(cluster, "living/client", "http://web.living/hello").await.unwrap();
        assert!(fetched.caller().contains("spiffe://cluster.local/ns/living/sa/client"), "{fetched:?}");
        pods.insert(fetched.pod().to_owned());
        if pods.len() == 2 {
            return;
        }
    }
    panic!("only {pods:?} answered");
}

async fn probes_of_all_kinds_arrive(cluster: &Cluster) {
    tokio::time::sleep(PROBED).await;
    assert_eq!(restarts(cluster, "probed").await, 0, "{:#}", pod(cluster, "probed").await["status"]);
    mesh::wait_ready(cluster, "living", &["pod/probed"]).await;
    cluster
        .wait("the failing probe to restart its container", SETTLE, || async {
            if restarts(cluster, "failing").await > 0 { Ok(()) } else { Err("no restart".to_owned()) }
        })
        .await
        .unwrap();
}

async fn exclusions_pass_the_sidecar_by(cluster: &Cluster) {
    let plain = "http://plain.outside:8088/";
    expect(cluster, "living/excluded", plain, Some(200)).await;
    expect_denied(cluster, "living/client", plain).await;
    let excluded = address(cluster, "excluded").await;
    let direct = fetch(cluster, "outside/plain", &format!("http://{excluded}:8082/")).await.unwrap();
    assert_eq!(direct.status(), Some(200), "{direct:?}");
    expect_denied(cluster, "outside/plain", &format!("http://{excluded}:8083/")).await;
}

async fn a_pod_on_the_host_has_no_sidecar(cluster: &Cluster) {
    let on_host = pod(cluster, "on-host").await;
    assert!(on_host["spec"]["initContainers"].is_null(), "{on_host:#}");
    let web = address(cluster, "web-0").await;
    expect_denied(cluster, "living/on-host", &format!("http://{web}:8080/")).await;
}

async fn a_job_ends_and_init_containers_have_the_network(cluster: &Cluster) {
    let wait = ["wait", "-n", "living", "--for=condition=Complete", "job/once", "--timeout=60s"];
    let waited = cluster.kubectl(&wait).await.unwrap();
    assert!(waited.success(), "{}\n{}", waited.stderr, mesh::state(cluster, "living").await);
    let log = cluster.kubectl(&["logs", "-n", "living", "job/once", "-c", "client"]).await.unwrap();
    assert!(log.stdout.contains("\"status\":200"), "{log:?}");
    mesh::wait_ready(cluster, "living", &["pod/early"]).await;
    let log = cluster.kubectl(&["logs", "-n", "living", "early", "-c", "early"]).await.unwrap();
    assert!(log.stdout.contains("\"status\":200"), "{log:?}");
}
