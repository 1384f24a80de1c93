//! From the installation in a whole cluster to the first request through the mesh.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use smc_benches::Result;
use smc_test_kubernetes::{
    Cluster, ClusterOptions, ENVOY_IMAGE, Image, MeshOptions, Programs, SMC_IMAGE, beside,
};
use tokio::time::Instant;

/// How long the first request may take to come through.
const LIMIT: Duration = Duration::from_mins(5);

/// A client, a server, and the policy that lets the one call the other.
const PODS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: { name: shop, labels: { openservicemesh.io/monitored-by: smc } }
---
apiVersion: v1
kind: ServiceAccount
metadata: { name: web, namespace: shop }
---
apiVersion: v1
kind: ServiceAccount
metadata: { name: caller, namespace: shop }
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: { name: all, namespace: shop }
spec: { matches: [{ name: all, pathRegex: ".*", methods: ["*"] }] }
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: { name: caller-to-web, namespace: shop }
spec:
  destination: { kind: ServiceAccount, name: web, namespace: shop }
  sources: [{ kind: ServiceAccount, name: caller, namespace: shop }]
  rules: [{ kind: HTTPRouteGroup, name: all, matches: [all] }]
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { selector: { app: web }, ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: v1
kind: Pod
metadata: { name: web, namespace: shop, labels: { app: web } }
spec:
  serviceAccountName: web
  containers:
    - name: web
      image: tools:bench
      command: [smc-lab, echo, --http, "8080"]
      readinessProbe: { httpGet: { path: /ready, port: 8080 }, periodSeconds: 1 }
---
apiVersion: v1
kind: Pod
metadata: { name: caller, namespace: shop }
spec:
  serviceAccountName: caller
  containers: [{ name: client, image: tools:bench, command: [sleep, infinity] }]
"#;

/// Installs with helm, creates two pods at once, and waits for the first answer between them.
pub(crate) async fn measure(programs: &Programs, envoy: &Path, replicas: u16) -> Result<Value> {
    let images = vec![
        Image::smc(SMC_IMAGE, &beside("smc")?),
        Image::envoy(ENVOY_IMAGE, envoy)?,
        Image::tools("tools:bench", &[&beside("smc-lab")?]),
    ];
    let options = ClusterOptions::new(programs.clone(), images);
    let cluster = Cluster::start(options).await.map_err(|error| error.chain())?;
    let start = Instant::now();
    // Cargo starts benches in the directory of their package.
    let charts = PathBuf::from("../charts");
    let image = |name: &str| name.to_owned();
    let options = MeshOptions {
        charts,
        image: image(SMC_IMAGE),
        envoy: image(ENVOY_IMAGE),
        replicas,
        values: Vec::new(),
    };
    cluster.install_mesh(&options).await.map_err(|error| error.chain())?;
    let installed = start.elapsed();
    let asked = first_request(&cluster).await;
    let report = json!({
        "install_s": start.elapsed().as_secs_f64(),
        "install_helm_s": installed.as_secs_f64(),
        "install_replicas": replicas,
    });
    cluster.stop().await.map_err(|error| error.chain())?;
    asked.map(|()| report)
}

/// Creates the pods, and asks until an answer shows that the request came through both sidecars.
async fn first_request(cluster: &Cluster) -> Result<()> {
    // Until the API server trusts the webhooks, it refuses the pods.
    let apply = || async { cluster.apply(PODS).await.map_err(|error| error.chain()) };
    cluster.wait("the pods to be admitted", LIMIT, apply).await.map_err(|error| error.chain())?;
    let ask = [
        "exec",
        "-n",
        "shop",
        "caller",
        "-c",
        "client",
        "--",
        "smc-lab",
        "fetch",
        "--url",
        "http://web.shop/",
    ];
    let asked = || async {
        let output = cluster.kubectl(&ask).await.map_err(|error| error.chain())?;
        let answers: Value = serde_json::from_str(&output.stdout).map_err(|_| output.stderr)?;
        // The server's sidecar states the identity of the caller.
        let caller = &answers[0]["body"]["headers"]["x-forwarded-client-cert"];
        if answers[0]["status"] == 200 && caller.is_string() { Ok(()) } else { Err(answers.to_string()) }
    };
    cluster.wait("the first request", LIMIT, asked).await.map_err(|error| error.chain().into())
}
