//! The Secret of the key-encryption key is missing, empty, or another one: a controller that starts then
//! refuses, and says how to go on. The others serve.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, MESH_NAMESPACE};

use crate::mesh::{self, SETTLE, smc};
use crate::shared;

const SECRET: &str = "smc-kek";
/// The controller that is started without its key.
const POD: &str = "smc-controller-2";

async fn kubectl(cluster: &Cluster, args: &[&str]) -> String {
    let output = cluster.kubectl(&[args, &["-n", MESH_NAMESPACE]].concat()).await.unwrap();
    assert!(output.success(), "{args:?}: {}", output.stderr);
    output.stdout
}

/// Replaces the Secret, and the pod. The kubelet begins again between them: it keeps its copy of an
/// immutable Secret as long as a pod of its node mounts it.
async fn start_with(cluster: &Cluster, secret: Option<&Value>) {
    kubectl(cluster, &["delete", "secret", SECRET, "--ignore-not-found"]).await;
    if let Some(secret) = secret {
        cluster.apply(&secret.to_string()).await.unwrap();
    }
    cluster.signal("kubelet", Signal::SIGKILL).await.unwrap();
    cluster.wait_ended("kubelet").await.unwrap();
    cluster.start_again("kubelet").await.unwrap();
    kubectl(cluster, &["delete", "pod", POD]).await;
}

#[tokio::test]
async fn a_controller_without_its_key_refuses_with_the_way_out() {
    let Some(cluster) = shared::alone().await else { return };
    mesh::install(&cluster).await;
    let cluster: &Cluster = &cluster;
    let secret = kubectl(cluster, &["get", "secret", SECRET, "-o", "json"]).await;
    let mut kept: Value = serde_json::from_str(&secret).unwrap();
    kept["metadata"] = json!({ "name": SECRET, "namespace": MESH_NAMESPACE });
    let another = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==";
    for (sentence, key, container, words) in [
        ("the Secret is missing", None, "kek", "restore the Secret from a backup"),
        (
            "the key is empty",
            Some(""),
            "controller",
            "is not a file that holds 32 bytes or 64 hexadecimal digits",
        ),
        ("the key is another one", Some(another), "controller", "restore the former one"),
    ] {
        let changed = key.map(|key| {
            let mut changed = kept.clone();
            changed["data"]["kek"] = key.into();
            changed
        });
        start_with(cluster, changed.as_ref()).await;
        let says = || async {
            let mut said = String::new();
            for which in [&[][..], &["--previous"]] {
                let logs = [&["logs", "-n", MESH_NAMESPACE, POD, "-c", container], which].concat();
                said += &cluster.kubectl(&logs).await.map_err(|error| error.chain())?.stdout;
            }
            if said.contains(words) { Ok(()) } else { Err(said) }
        };
        cluster.wait(sentence, SETTLE, says).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        let is_ready = ["get", "pod", POD, "-o", "jsonpath={.status.containerStatuses[*].ready}"];
        assert_ne!(kubectl(cluster, &is_ready).await, "true", "{sentence}");
        smc(cluster, 0, &["cluster", "status"]).await.expect(sentence);

        start_with(cluster, Some(&kept)).await;
        mesh::wait_rolled_out(cluster).await;
    }
}
