//! Owns the installation that tests share: three controllers, installed with the charts, in SMI mode.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, ENVOY_IMAGE, MESH_NAMESPACE, MeshOptions, SMC_IMAGE};

use crate::shared::Shared;

/// Number of controllers: the smallest group in which one may fail.
pub(crate) const REPLICAS: u16 = 3;

/// Policy alone decides: no permissive mode, no egress.
const MESH_CONFIG: &str = "
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: { name: osm-mesh-config, namespace: smc-system }
spec:
  traffic: { enablePermissiveTrafficPolicyMode: false, enableEgress: false }
";

/// Installs SMC, once for all tests of a cluster.
pub(crate) async fn install(cluster: &Shared) {
    cluster
        .installed
        .get_or_init(|| async {
            let options = MeshOptions {
                // Cargo starts tests in the directory of their package.
                charts: PathBuf::from("../../charts"),
                image: SMC_IMAGE.to_owned(),
                envoy: ENVOY_IMAGE.to_owned(),
                replicas: REPLICAS,
                values: Vec::new(),
            };
            if let Err(error) = cluster.install_mesh(&options).await {
                panic!("{}\n{}", error.chain(), state(cluster, MESH_NAMESPACE).await);
            }
            cluster.apply(MESH_CONFIG).await.unwrap();
        })
        .await;
}

/// Waits until all pods that `selector` names in a namespace are ready; a failure says why they are
/// not.
pub(crate) async fn wait_ready(cluster: &Cluster, namespace: &str, selector: &[&str]) {
    let limit = "--timeout=90s";
    let wait = [&["wait", "-n", namespace, "--for=condition=Ready", limit], selector].concat();
    let waited = cluster.kubectl(&wait).await.unwrap();
    assert!(waited.success(), "{}\n{}", waited.stderr, state(cluster, namespace).await);
}

/// What is in a namespace, for the report of a failure.
pub(crate) async fn state(cluster: &Cluster, namespace: &str) -> String {
    let mut text = String::new();
    let commands: [&[&str]; 5] = [
        &["get", "pods", "-A", "-o", "wide"],
        &["describe", "pods", "-n", namespace],
        &["get", "events", "-n", namespace, "--sort-by=.lastTimestamp"],
        &[
            "logs",
            "-n",
            MESH_NAMESPACE,
            "-l",
            "app.kubernetes.io/component=controller",
            "--all-containers",
            "--tail=40",
        ],
        &["logs", "-n", MESH_NAMESPACE, "smc-controller-0", "-c", "controller", "--previous", "--tail=20"],
    ];
    for command in commands {
        let output = cluster.kubectl(command).await.unwrap();
        text = format!("{text}\n$ kubectl {}\n{}{}", command.join(" "), output.stdout, output.stderr);
    }
    text
}

/// Runs `smc` in a controller's pod, and returns its standard output if it succeeds.
pub(crate) async fn smc(cluster: &Cluster, replica: u16, args: &[&str]) -> Result<String, String> {
    let pod = format!("smc-controller-{replica}");
    let exec = ["exec", "-n", MESH_NAMESPACE, &pod, "-c", "controller", "--", "smc"];
    let output = cluster.kubectl(&[&exec, args].concat()).await.map_err(|error| error.chain())?;
    if output.success() { Ok(output.stdout) } else { Err(format!("{pod}: {}", output.stderr.trim())) }
}

/// Changes the settings of the mesh by this merge patch of their `spec`.
pub(crate) async fn patch_settings(cluster: &Cluster, spec: &Value) {
    let patch = json!({ "spec": spec }).to_string();
    let config =
        ["patch", "meshconfig", "osm-mesh-config", "-n", MESH_NAMESPACE, "--type=merge", "-p", &patch];
    let patched = cluster.kubectl(&config).await.unwrap();
    assert!(patched.success(), "{patched:?}");
}

/// Waits until a rollout of the controllers is complete.
pub(crate) async fn wait_rolled_out(cluster: &Cluster) {
    let status = ["rollout", "status", "-n", MESH_NAMESPACE, "statefulset/smc-controller", "--timeout=180s"];
    let output = cluster.kubectl(&status).await.unwrap();
    assert!(output.success(), "{}\n{}", output.stderr, state(cluster, MESH_NAMESPACE).await);
}

/// Time limit for a change of policy or of pods to take effect, on a machine that is busy.
pub(crate) const SETTLE: Duration = Duration::from_secs(45);
