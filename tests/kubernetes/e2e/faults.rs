//! What breaks while traffic goes on: controllers, the API server, the membership of the mesh.

use std::time::Duration;

use nix::sys::signal::Signal;
use smc_test_kubernetes::{Cluster, Image, MESH_NAMESPACE, beside};

use crate::mesh::{self, REPLICAS, SETTLE, smc};
use crate::shared;
use crate::sidecars::Sidecars;
use crate::traffic::{Steady, expect};

const MANIFESTS: &str = include_str!("faults.yaml");
const WEB: &str = "http://web.faults/";
/// The TrafficTarget of the manifests, for a change.
const GRANT: &str = "traffictarget/caller-to-web";
/// How long the API server is away. Longer than a watch takes to notice, and than a retry.
const AWAY: Duration = Duration::from_secs(15);
/// How long it hangs. Longer than the silence after which SMC gives up a watch.
const HUNG: Duration = Duration::from_secs(40);
/// How long Kubernetes may take to notice that a node is silent, and to say so in endpoints: its grace is
/// 50 s (`--node-monitor-grace-period`), and a machine with tests on all its cores has once taken 40 s more.
const NODE_LOST: Duration = Duration::from_mins(3);
/// Requests that a step has at least, of twenty in a second.
const LEAST: usize = 50;

/// Runs kubectl, which must succeed.
async fn kubectl(cluster: &Cluster, args: &[&str]) -> String {
    let output = cluster.kubectl(args).await.unwrap();
    assert!(output.success(), "kubectl {}: {}", args.join(" "), output.stderr);
    output.stdout
}

/// One test, since each part needs the cluster alone, and the state that the one before repaired.
#[tokio::test]
async fn traffic_goes_on_while_the_control_plane_fails() {
    let Some(cluster) = shared::alone().await else { return };
    mesh::install(&cluster).await;
    let cluster: &Cluster = &cluster;
    cluster.apply(MANIFESTS).await.unwrap();
    kubectl(cluster, &["rollout", "status", "-n", "faults", "deployment/web", "--timeout=90s"]).await;
    for pod in ["pod/caller", "pod/stranger"] {
        mesh::wait_ready(cluster, "faults", &[pod]).await;
    }
    expect(cluster, "faults/caller", WEB, Some(200)).await;
    let mut steady = Steady::of(cluster, "faults/caller").await;

    let mut sidecars = Sidecars::watch(cluster, "faults").await;
    sidecars.assert_undisturbed(cluster, REPLICAS, "before anything happens").await;
    steady.start();
    replicas_are_deleted_one_by_one(cluster, &mut sidecars).await;
    steady.assert_no_failure(LEAST, "replicas deleted one by one");
    the_image_is_updated(cluster).await;
    sidecars.assert_undisturbed(cluster, REPLICAS, "a rolling update of the image").await;
    steady.assert_no_failure(LEAST, "a rolling update of the image");
    for replicas in [4, REPLICAS] {
        scale(cluster, replicas).await;
        sidecars.assert_undisturbed(cluster, replicas, &format!("scaled to {replicas}")).await;
    }
    steady.assert_no_failure(LEAST, "controllers from 3 to 4 and 3");
    the_api_server_is_killed(cluster, &mut steady).await;
    the_api_server_hangs(cluster, &mut steady).await;
    the_node_is_not_heard_of(cluster, &mut steady).await;
    scale(cluster, 5).await;
    scale(cluster, REPLICAS).await;
    scale(cluster, 1).await;
    scale(cluster, REPLICAS).await;
    steady.assert_no_failure(LEAST, "controllers from 3 to 5, 3, 1 and 3");
    a_replica_is_lost_while_it_is_scaled_away(cluster).await;
    steady.assert_no_failure(LEAST, "a controller that comes back with the disk of a former member");
    the_namespace_leaves_the_mesh(cluster).await;
}

/// A change of policy takes effect in the sidecars of running pods.
async fn policy_changes_arrive(cluster: &Cluster, steady: &mut Steady) {
    kubectl(cluster, &["delete", "-n", "faults", GRANT]).await;
    expect(cluster, "faults/caller", WEB, None).await;
    cluster.apply(MANIFESTS).await.unwrap();
    expect(cluster, "faults/caller", WEB, Some(200)).await;
    expect(cluster, "faults/stranger", WEB, None).await;
    steady.start();
}

async fn replicas_are_deleted_one_by_one(cluster: &Cluster, sidecars: &mut Sidecars) {
    for replica in 0..REPLICAS {
        let pod = format!("smc-controller-{replica}");
        kubectl(cluster, &["delete", "pod", "-n", MESH_NAMESPACE, &pod]).await;
        mesh::wait_rolled_out(cluster).await;
        sidecars.assert_undisturbed(cluster, REPLICAS, &format!("{pod} deleted")).await;
    }
}

async fn the_image_is_updated(cluster: &Cluster) {
    cluster.import(Image::smc("smc:next", &beside("smc").unwrap())).await.unwrap();
    let set = ["set", "image", "-n", MESH_NAMESPACE, "statefulset/smc-controller", "*=smc:next"];
    kubectl(cluster, &set).await;
    mesh::wait_rolled_out(cluster).await;
    let get = ["get", "pods", "-n", MESH_NAMESPACE, "-o", "jsonpath={.items[*].spec.containers[*].image}"];
    assert_eq!(kubectl(cluster, &get).await, ["smc:next"; REPLICAS as usize].join(" "));
}

/// Without an API server a controller is killed as well, and comes back from its disk.
async fn the_api_server_is_killed(cluster: &Cluster, steady: &mut Steady) {
    cluster.signal("kube-apiserver", Signal::SIGKILL).await.unwrap();
    cluster.wait_ended("kube-apiserver").await.unwrap();
    let command = "smc controller .*--pod-name=smc-controller-1";
    let killed = cluster.on_node(&["pkill", "-KILL", "-f", command]).await.unwrap();
    assert!(killed.success(), "{killed:?}");
    tokio::time::sleep(AWAY).await;
    steady.assert_no_failure(LEAST, "no API server");
    cluster.start_again("kube-apiserver").await.unwrap();
    mesh::wait_rolled_out(cluster).await;
    steady.assert_no_failure(1, "the API server comes back");
    policy_changes_arrive(cluster, steady).await;
}

async fn the_api_server_hangs(cluster: &Cluster, steady: &mut Steady) {
    cluster.signal("kube-apiserver", Signal::SIGSTOP).await.unwrap();
    tokio::time::sleep(HUNG).await;
    steady.assert_no_failure(LEAST, "an API server that hangs");
    cluster.signal("kube-apiserver", Signal::SIGCONT).await.unwrap();
    cluster
        .wait("the API server to answer", SETTLE, || async {
            let answer =
                cluster.kubectl(&["get", "--raw", "/readyz"]).await.map_err(|error| error.chain())?;
            if answer.success() { Ok(()) } else { Err(answer.stderr) }
        })
        .await
        .unwrap();
    mesh::wait_rolled_out(cluster).await;
    policy_changes_arrive(cluster, steady).await;
}

/// The kubelet falls silent. The node controller then takes all pods of the node for not ready, while they
/// serve as before: what happens to every pod of a cluster whose API server was away for a minute.
async fn the_node_is_not_heard_of(cluster: &Cluster, steady: &mut Steady) {
    cluster.signal("kubelet", Signal::SIGSTOP).await.unwrap();
    wait_endpoints(cluster, "false false").await;
    tokio::time::sleep(AWAY).await;
    steady.assert_no_failure(LEAST, "a node that is not heard of");
    cluster.signal("kubelet", Signal::SIGCONT).await.unwrap();
    wait_endpoints(cluster, "true true").await;
    mesh::wait_rolled_out(cluster).await;
    steady.assert_no_failure(1, "a node that is heard of again");
    policy_changes_arrive(cluster, steady).await;
}

/// Waits until the endpoints of `web` have these values of their condition `ready`.
async fn wait_endpoints(cluster: &Cluster, expected: &str) {
    let get = [
        "get",
        "endpointslices",
        "-n",
        "faults",
        "-l",
        "kubernetes.io/service-name=web",
        "-o",
        "jsonpath={.items[*].endpoints[*].conditions.ready}",
    ];
    let are_so = || async {
        let ready = cluster.kubectl(&get).await.map_err(|error| error.chain())?;
        if ready.stdout == expected { Ok(()) } else { Err(format!("{ready:?}")) }
    };
    cluster.wait(&format!("endpoints {expected}"), NODE_LOST, are_so).await.unwrap();
}

/// Scales the controllers, and waits until the group has so many voters.
async fn scale(cluster: &Cluster, replicas: u16) {
    let to = format!("--replicas={replicas}");
    kubectl(cluster, &["scale", "-n", MESH_NAMESPACE, "statefulset/smc-controller", &to]).await;
    mesh::wait_rolled_out(cluster).await;
    let waited = cluster
        .wait(&format!("{replicas} voters"), SETTLE * 2, || async {
            let status = smc(cluster, 0, &["cluster", "status", "-o", "json"]).await?;
            let status: serde_json::Value =
                serde_json::from_str(&status).map_err(|error| error.to_string())?;
            let members = status["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
            let voters = members.iter().filter(|member| member["voter"] == true).count();
            if voters == usize::from(replicas) { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    if let Err(error) = waited {
        panic!("{}\n{}", error.chain(), mesh::state(cluster, MESH_NAMESPACE).await);
    }
}

/// It is removed by the leader, and comes back with its disk when it is asked for again.
async fn a_replica_is_lost_while_it_is_scaled_away(cluster: &Cluster) {
    let last = REPLICAS - 1;
    let command = format!("smc controller .*--pod-name=smc-controller-{last}");
    let signal = async |signal: &str| {
        let sent = cluster.on_node(&["pkill", signal, "-f", &command]).await.unwrap();
        assert!(sent.success(), "{sent:?}");
    };
    // It cannot leave by itself.
    signal("-STOP").await;
    let fewer = format!("--replicas={last}");
    kubectl(cluster, &["scale", "-n", MESH_NAMESPACE, "statefulset/smc-controller", &fewer]).await;
    let pod = format!("smc-controller-{last}");
    let ending = ["get", "pod", "-n", MESH_NAMESPACE, &pod, "-o", "jsonpath={.metadata.deletionTimestamp}"];
    let is_ending = || async {
        let at = cluster.kubectl(&ending).await.map_err(|error| error.chain())?;
        if at.stdout.is_empty() { Err(at.stderr) } else { Ok(()) }
    };
    cluster.wait(&format!("{pod} to end"), SETTLE, is_ending).await.unwrap();
    signal("-KILL").await;
    scale(cluster, last).await;
    scale(cluster, REPLICAS).await;
}

/// A pod that starts after its namespace has left the mesh gets no sidecar.
async fn the_namespace_leaves_the_mesh(cluster: &Cluster) {
    kubectl(cluster, &["label", "namespace", "faults", "openservicemesh.io/monitored-by-"]).await;
    let replaced = ["delete", "pod", "-n", "faults", "stranger"];
    kubectl(cluster, &replaced).await;
    let stranger = MANIFESTS.split("---\n").last().unwrap();
    cluster.apply(stranger).await.unwrap();
    mesh::wait_ready(cluster, "faults", &["pod/stranger"]).await;
    let get = ["get", "pod", "-n", "faults", "stranger", "-o", "jsonpath={.spec.initContainers}"];
    assert_eq!(kubectl(cluster, &get).await, "");
}
