//! A real API server with the definitions, and the objects that the parts create in it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use smc_benches::Result;
use smc_benches::controller::{Controller, PATIENCE};
use smc_benches::mesh::Mesh;
use smc_kubernetes::crds::definitions;
use smc_test_kubernetes::{Cluster, ClusterOptions, Programs};
use smc_types::ids::{MeshNamespace, ProxyUuid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The control plane's namespace.
pub(crate) const CONTROL_PLANE: &str = "smc-system";

/// The node of all pods: the controller manager makes no endpoints of pods without one.
const NODE: &str = "bench";

/// Starts etcd, an API server and a controller manager, with SMC's definitions.
pub(crate) async fn api_server(programs: &Programs) -> Result<Cluster> {
    api_server_with(ClusterOptions::api_only(programs.clone())).await
}

/// As [`api_server`], with other options.
pub(crate) async fn api_server_with(options: ClusterOptions) -> Result<Cluster> {
    let cluster = Cluster::start(options).await.map_err(|error| error.chain())?;
    let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {CONTROL_PLANE}}}}}");
    let definitions = definitions(&MeshNamespace::new(CONTROL_PLANE)?)?;
    let mut texts = vec![namespace];
    texts.extend(definitions.iter().map(|definition| definition.as_json().to_string()));
    cluster.apply(&texts.join("\n---\n")).await.map_err(|error| error.chain())?;
    for definition in definitions {
        let name = format!("crd/{}", definition.name());
        let waited = cluster.kubectl(&["wait", "--for=condition=Established", &name, "--timeout=60s"]).await;
        if !waited.map_err(|error| error.chain())?.success() {
            return Err(format!("{name} is not established").into());
        }
    }
    Ok(cluster)
}

/// A controller over the API server of a kubeconfig, with all its files in `directory`.
pub(crate) fn controller(kubeconfig: &Path, directory: &Path, flags: &[String]) -> Result<Controller> {
    let mut all = vec![
        "--kubernetes".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--mesh-namespace={CONTROL_PLANE}"),
        "--xds-listen=127.0.0.1:0".to_owned(),
    ];
    all.extend_from_slice(flags);
    Controller::launch(directory, &directory.join("kek"), &all)
}

/// Waits until the controller whose metrics are at `address` is ready: until it serves its sources' mesh.
pub(crate) async fn ready(address: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Ok(mut stream) = TcpStream::connect(address).await {
            stream.write_all(b"GET /readyz HTTP/1.0\r\nhost: smc\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            if answer.split(' ').nth(1) == Some("200") {
                return Ok(());
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
    Err("the controller is not ready in time".into())
}

/// The resource of a kind.
pub(crate) fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The objects of `mesh`, as a user would write them: a node and the namespaces, then the accounts, then the
/// rest. Pods come with the status that a kubelet writes.
pub(crate) fn objects(mesh: Mesh) -> Result<[Vec<Value>; 3]> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    let (mut first, mut rest) = (vec![node], Vec::new());
    for text in mesh.yaml().split("---\n").filter(|text| !text.is_empty()) {
        let mut object: Value = serde_saphyr::from_str(text)?;
        // The API server gives the addresses.
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        if object["kind"] == "Namespace" { first.push(object) } else { rest.push(object) }
    }
    let mut accounts = Vec::new();
    for service in 0..mesh.services {
        let account = mesh.account(service)?;
        accounts.push(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": account.name(), "namespace": account.namespace()}}));
    }
    for p in 0..mesh.proxies {
        rest.push(pod(mesh, p)?);
    }
    Ok([first, accounts, rest])
}

/// The pod of proxy `p` as the API server has it once it runs: with a sidecar, and ready.
fn pod(mesh: Mesh, p: usize) -> Result<Value> {
    let mut pod: Value = serde_saphyr::from_str(mesh.pod_yaml(p, true).trim_start_matches("---\n"))?;
    pod["metadata"]["labels"]["osm-proxy-uuid"] = ProxyUuid::derived(&mesh.workload(p)?).to_string().into();
    pod["metadata"]["labels"]["pod-template-hash"] = "5d4f8c7b9".into();
    pod["metadata"]["annotations"] = json!({"prometheus.io/scrape": "true", "prometheus.io/port": "15010"});
    let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}});
    let security = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}});
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    pod["spec"]["automountServiceAccountToken"] = false.into();
    pod["spec"]["nodeName"] = NODE.into();
    // No kubelet says that the node lives, and its pods are to stay.
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    pod["spec"]["initContainers"] = json!([
        {"name": "smc-init", "image": "smc:1", "args": ["init"], "resources": resources},
        {"name": "envoy", "image": "envoy:1", "restartPolicy": "Always", "resources": resources,
            "args": ["--config-path", "/etc/smc/bootstrap.json"], "securityContext": security},
    ]);
    pod["spec"]["containers"] = json!([{"name": "app", "image": "registry.example/shop/app:1.4.2",
        "ports": [{"name": "http", "containerPort": 8080}], "resources": resources,
        "env": [{"name": "GREETING", "value": "hello"}], "securityContext": security,
        "readinessProbe": probe, "livenessProbe": probe}]);
    let state = json!({"running": {"startedAt": "2026-11-22T20:00:00Z"}});
    let container = |name: &str| {
        json!({"name": name, "image": "i", "imageID": "i@sha256:0", "ready": true, "started": true,
            "restartCount": 0, "state": state})
    };
    pod["status"]["containerStatuses"] = json!([container("app")]);
    pod["status"]["initContainerStatuses"] = json!([container("smc-init"), container("envoy")]);
    let of =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-11-22T20:00:00Z"});
    pod["status"]["conditions"] =
        ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(of).to_vec().into();
    Ok(pod)
}
