//! A machine outside of the mesh's namespaces takes part in the mesh of a real cluster: with a bootstrap of
//! `smc vm bootstrap`, which finds a controller through the API server, and a MeshWorkload in the API.
//!
//! The machine is a pod of a namespace that no injector looks at. What systemd does on a machine, its
//! containers do.

use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, ENVOY_IMAGE, SMC_IMAGE, beside};
use tokio::process::Command;

use crate::mesh::{self, SETTLE};
use crate::shared;
use crate::traffic::expect;

const MANIFESTS: &str = include_str!("machines.yaml");
/// The MeshWorkload.
const WORKLOAD: &str = "bank/ledger-1";
/// The pod that stands for the machine.
const MACHINE: &str = "machine-room/ledger-1";
const LEDGER: &str = "http://ledger.bank/";
const TELLER: &str = "http://teller.bank/";

/// The object that declares the machine.
fn workload(address: &str, drained: bool) -> String {
    json!({
        "apiVersion": "mesh.smc.dev/v1alpha1",
        "kind": "MeshWorkload",
        "metadata": { "name": "ledger-1", "namespace": "bank" },
        "spec": {
            "addresses": [address],
            "serviceAccountName": "ledger",
            "services": ["ledger"],
            "ports": [{ "name": "http", "number": 8080 }],
            "drained": drained,
        },
    })
    .to_string()
}

/// Runs `smc vm` as a person does, with nothing but a kubeconfig.
async fn smc_vm(cluster: &Cluster, args: &[&str]) {
    let mut smc = Command::new(beside("smc").unwrap());
    smc.arg("vm").args(args).arg("--kubeconfig").arg(cluster.kubeconfig());
    let output = smc.output().await.unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// Writes the machine's files, as a person does, and returns them as a Secret, with the flags of `smc init`.
async fn bootstrap(cluster: &Cluster) -> (Value, Vec<String>) {
    let work = tempfile::tempdir().unwrap();
    let directory = work.path().join("ledger-1");
    smc_vm(cluster, &["bootstrap", WORKLOAD, "--output", directory.to_str().unwrap()]).await;
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let environment = read("smc.env");
    let flags = environment.lines().find_map(|line| line.strip_prefix("SMC_INIT_FLAGS=")).unwrap();
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "ledger-1", "namespace": "machine-room" },
        "stringData": { "envoy.json": read("envoy.json") },
    });
    (secret, flags.split_whitespace().map(str::to_owned).collect())
}

/// The machine: its interception, its proxy, its application, and a client.
fn machine(init_flags: &[String]) -> Value {
    let init: Vec<&str> = ["init"].into_iter().chain(init_flags.iter().map(String::as_str)).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "ledger-1", "namespace": "machine-room" },
        "spec": {
            "securityContext": { "fsGroup": 1500 },
            "terminationGracePeriodSeconds": 1,
            "initContainers": [{
                "name": "init",
                "image": SMC_IMAGE,
                "args": init,
                "securityContext": { "runAsUser": 0, "capabilities": { "add": ["NET_ADMIN", "NET_RAW"] } },
            }],
            "containers": [
                {
                    "name": "envoy",
                    "image": ENVOY_IMAGE,
                    "args": ["--config-path", "/etc/smc/envoy.json", "--disable-hot-restart"],
                    "securityContext": { "runAsUser": 1500 },
                    "volumeMounts": [{ "name": "files", "mountPath": "/etc/smc", "readOnly": true }],
                },
                {
                    "name": "server",
                    "image": "tools:test",
                    "command": ["smc-lab", "echo", "--http", "8080", "--name", "ledger-1"],
                },
                { "name": "client", "image": "tools:test", "command": ["sleep", "infinity"] },
            ],
            "volumes": [{ "name": "files", "secret": { "secretName": "ledger-1", "defaultMode": 288 } }],
        },
    })
}

#[tokio::test]
async fn a_machine_takes_part_in_the_mesh_of_a_cluster() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    let cluster: &Cluster = &cluster;
    cluster.apply(MANIFESTS).await.unwrap();
    // Its address is not known yet, so nothing is sent there.
    cluster.apply(&workload("192.0.2.1", true)).await.unwrap();
    let (secret, init_flags) = bootstrap(cluster).await;
    cluster.apply(&secret.to_string()).await.unwrap();
    cluster.apply(&machine(&init_flags).to_string()).await.unwrap();
    for (namespace, pods) in
        [("machine-room", &["pod/ledger-1"][..]), ("bank", &["pod/teller", "pod/stranger"])]
    {
        mesh::wait_ready(cluster, namespace, pods).await;
    }
    let get = ["get", "pod", "-n", "machine-room", "ledger-1", "-o", "jsonpath={.status.podIP}"];
    let address = cluster.kubectl(&get).await.unwrap().stdout;

    // Drained: it calls, and is not called.
    let fetched = expect(cluster, MACHINE, TELLER, Some(200)).await;
    assert_eq!(fetched.pod(), "teller");
    assert!(fetched.caller().contains("URI=spiffe://cluster.local/ns/bank/sa/ledger"), "{fetched:?}");
    expect(cluster, "bank/teller", LEDGER, Some(503)).await;

    cluster.apply(&workload(&address, false)).await.unwrap();
    let fetched = expect(cluster, "bank/teller", LEDGER, Some(200)).await;
    assert_eq!(fetched.pod(), "ledger-1");
    assert!(fetched.caller().contains("URI=spiffe://cluster.local/ns/bank/sa/teller"), "{fetched:?}");
    expect(cluster, "bank/stranger", LEDGER, None).await;
    // Its own proxy stands before its application.
    expect(cluster, "bank/stranger", &format!("http://{address}:8080/"), None).await;

    cluster.apply(&workload(&address, true)).await.unwrap();
    expect(cluster, "bank/teller", LEDGER, Some(503)).await;

    // A machine that is released is out: no controller has a stream of it any more.
    smc_vm(cluster, &["release", WORKLOAD]).await;
    let is_out = || async {
        for replica in 0..mesh::REPLICAS {
            let listed = mesh::smc(cluster, replica, &["proxy", "list", "-o", "json"]).await?;
            let listed: Value = serde_json::from_str(&listed).map_err(|error| error.to_string())?;
            let proxies = listed["proxies"].as_array().map(Vec::as_slice).unwrap_or_default();
            let machine = proxies.iter().find(|proxy| proxy["workload"] == format!("machine/{WORKLOAD}"));
            let is_out = |machine: &Value| {
                machine["certificates"][0]["state"] == "released" && machine["streams"] == json!([])
            };
            if !machine.is_some_and(is_out) {
                return Err(format!("replica {replica}: {machine:?}"));
            }
        }
        Ok(())
    };
    cluster.wait("the released machine to be out", SETTLE, is_out).await.unwrap();
}
