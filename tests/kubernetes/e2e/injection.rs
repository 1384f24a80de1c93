//! The injector before a real API server: what it stores is what counts.
//!
//! The controller runs beside the API server. No pod runs: living pods are for the tests with a node.

mod clocks;

use std::time::Duration;

use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, ClusterOptions, injector_webhook};
use smc_testkit::held_port::HeldPort;

use crate::controller::{Controller, admits};
use crate::shared;

/// How long anything may take. Admission takes milliseconds; the leader looks every ten seconds at what the
/// API server trusts, and every thirty at Secrets.
const PATIENCE: Duration = Duration::from_secs(75);

const NAMESPACES: &str = r"
apiVersion: v1
kind: Namespace
metadata: { name: shop, labels: { openservicemesh.io/monitored-by: smc } }
---
apiVersion: v1
kind: Namespace
metadata: { name: other }
---
apiVersion: v1
kind: Namespace
metadata:
  name: strict
  labels: { openservicemesh.io/monitored-by: smc, pod-security.kubernetes.io/enforce: restricted }
---
apiVersion: v1
kind: ServiceAccount
metadata: { name: store, namespace: shop }
";

const PODS: &str = r"
apiVersion: v1
kind: Pod
metadata: { name: store, namespace: shop }
spec:
  serviceAccountName: store
  containers:
    - name: app
      image: store:1
      ports: [{ name: http, containerPort: 8080 }]
      livenessProbe: { httpGet: { port: http, path: /healthz } }
      readinessProbe: { grpc: { port: 9090 } }
---
apiVersion: v1
kind: Pod
metadata: { name: machine, namespace: shop }
spec: { hostNetwork: true, containers: [{ name: app, image: store:1 }] }
---
apiVersion: v1
kind: Pod
metadata: { name: refuses, namespace: shop, annotations: { openservicemesh.io/sidecar-injection: disabled } }
spec: { containers: [{ name: app, image: store:1 }] }
---
apiVersion: v1
kind: Pod
metadata: { name: outside, namespace: other }
spec: { containers: [{ name: app, image: store:1 }] }
---
apiVersion: batch/v1
kind: Job
metadata: { name: once, namespace: shop }
spec: { template: { spec: { restartPolicy: Never, containers: [{ name: app, image: store:1 }] } } }
";

const REFUSED: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: wrong
  namespace: shop
  annotations: { openservicemesh.io/outbound-port-exclusion-list: "80;81" }
spec: { containers: [{ name: app, image: store:1 }] }
"#;

/// A Pod that keeps to the restricted Pod Security Standard by itself.
const STRICT: &str = r"
apiVersion: v1
kind: Pod
metadata: { name: strict, namespace: strict }
spec:
  securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: RuntimeDefault } }
  containers:
    - name: app
      image: store:1
      securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: [ALL] } }
";

async fn get(cluster: &Cluster, what: &[&str]) -> Value {
    let got = cluster.kubectl(&[&["get", "-o", "json"], what].concat()).await.unwrap();
    assert!(got.success(), "{got:?}");
    serde_json::from_str(&got.stdout).unwrap()
}

async fn uuid_of(cluster: &Cluster, pod: &str) -> String {
    let pod = get(cluster, &["-n", "shop", "pod", pod]).await;
    pod["metadata"]["labels"]["osm-proxy-uuid"].as_str().unwrap_or_default().to_owned()
}

/// Creates a running pod of the mesh before there is an injector.
async fn slip_through(cluster: &Cluster) {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: early, namespace: shop}, spec: {serviceAccountName: store, \
               containers: [{name: app, image: app}]}}";
    cluster.apply(pod).await.unwrap();
    runs(cluster, "early", "10.0.0.1").await;
}

/// Says of a pod what a kubelet would.
async fn runs(cluster: &Cluster, pod: &str, ip: &str) {
    let status =
        json!({ "status": { "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }] } }).to_string();
    let patch = ["patch", "pod", "-n", "shop", pod, "--subresource=status", "--type=merge", "-p", &status];
    let patched = cluster.kubectl(&patch).await.unwrap();
    assert!(patched.success(), "{}", patched.stderr);
}

/// Waits until the pod that slipped through has its Event, as a person sees it.
async fn is_reported(cluster: &Cluster) {
    let described = || async {
        let described = cluster.kubectl(&["describe", "pod", "-n", "shop", "early"]).await;
        let text = described.map_err(|error| error.chain())?.stdout;
        if text.contains("NoSidecar") { Ok(()) } else { Err(text) }
    };
    cluster.wait("the Event", PATIENCE, described).await.unwrap();
}

/// The leader looks twice a minute. A pod that ended before the first look counts as one that never came.
async fn the_secret_goes_after_the_pod(cluster: &Cluster, pod: &str, secret: &str) {
    let delete = ["delete", "pod", "-n", "shop", pod, "--force", "--grace-period=0"];
    assert!(cluster.kubectl(&delete).await.unwrap().success());
    let gone = async || {
        let found = cluster.kubectl(&["get", "secret", "-n", "shop", secret]).await;
        let found = found.map_err(|error| error.chain())?;
        if found.stderr.contains("NotFound") { Ok(()) } else { Err(found.stdout) }
    };
    let limit = Duration::from_mins(5) + PATIENCE;
    cluster.wait("the Secret to go after its pod", limit, gone).await.unwrap();
}

#[tokio::test]
async fn pods_are_stored_with_a_sidecar_whose_secret_goes_after_them() {
    // A Job needs a controller manager, which envtest has not.
    let Some(programs) = shared::programs() else { return };
    let cluster = Cluster::start(ClusterOptions::api_only(programs)).await.unwrap();
    let port = HeldPort::loopback();
    let webhooks = port.address;
    cluster.apply(NAMESPACES).await.unwrap();
    slip_through(&cluster).await;
    cluster.apply(&injector_webhook(webhooks)).await.unwrap();
    let _controller = Controller::start(&cluster, webhooks);

    admits(&cluster).await;
    let secrets = get(&cluster, &["-n", "shop", "secrets"]).await;
    assert_eq!(secrets["items"], json!([]), "a dry run has no side effects");

    cluster.apply(PODS).await.unwrap();
    runs(&cluster, "store", "10.0.0.2").await;
    let pod = get(&cluster, &["-n", "shop", "pod", "store"]).await;
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array().unwrap().iter();
        containers.map(|container| container["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (names("initContainers"), names("containers")),
        (vec!["smc-init".into(), "envoy".into()], vec!["app".into()])
    );
    let envoy = &pod["spec"]["initContainers"][1];
    assert_eq!((&envoy["restartPolicy"], &envoy["image"]), (&json!("Always"), &json!("envoy:test")));
    let mounts: Vec<_> =
        envoy["volumeMounts"].as_array().unwrap().iter().map(|mount| &mount["name"]).collect();
    assert_eq!(mounts, ["smc-bootstrap"], "no token of the service account");
    let app = &pod["spec"]["containers"][0];
    let ready = envoy["startupProbe"]["httpGet"]["path"].as_str().unwrap();
    let (token, _) = ready.split_once("/ready").unwrap();
    assert_eq!(app["livenessProbe"]["httpGet"]["path"], format!("{token}/http/8080/healthz"));
    assert_eq!(app["readinessProbe"]["httpGet"]["path"], format!("{token}/grpc/9090/"));

    let uuid = uuid_of(&cluster, "store").await;
    let secret = format!("smc-bootstrap-{uuid}");
    let made = get(&cluster, &["-n", "shop", "secret", &secret]).await;
    assert!(made["data"]["bootstrap.json"].is_string() && made["immutable"] == true, "{made}");

    is_reported(&cluster).await;
    for pod in ["machine", "refuses"] {
        assert_eq!(uuid_of(&cluster, pod).await, "", "{pod}");
    }
    let outside = get(&cluster, &["-n", "other", "pod", "outside"]).await;
    assert!(outside["spec"]["initContainers"].is_null());
    let jobs = get(&cluster, &["-n", "shop", "pods", "-l", "job-name=once"]).await;
    let of_job = jobs["items"][0]["metadata"]["labels"]["osm-proxy-uuid"].as_str().unwrap();
    let of_job = get(&cluster, &["-n", "shop", "secret", &format!("smc-bootstrap-{of_job}")]).await;
    let owners = &of_job["metadata"]["ownerReferences"];
    assert!(owners[0]["kind"] == "Job" && owners[0]["blockOwnerDeletion"].is_null(), "{owners}");

    let refused = cluster.kubectl_with(&["apply", "-f", "-"], REFUSED).await.unwrap();
    assert!(!refused.success() && refused.stderr.contains("outbound-port-exclusion-list"), "{refused:?}");

    // Interception is the only part of a sidecar that goes beyond the restricted standard.
    let judged = cluster.kubectl_with(&["apply", "-f", "-"], STRICT).await.unwrap();
    for words in ["PodSecurity \"restricted", "NET_ADMIN", "NET_RAW", "runAsUser=0", "container \"smc-init\""]
    {
        assert!(!judged.success() && judged.stderr.contains(words), "{words}: {}", judged.stderr);
    }
    for container in ["\"envoy\"", "\"app\""] {
        assert!(!judged.stderr.contains(container), "{container}: {}", judged.stderr);
    }

    // A copy of a pod that is there gets a sidecar of its own.
    let mut copy = pod.clone();
    copy["metadata"] = json!({"name": "copy", "namespace": "shop", "labels": pod["metadata"]["labels"]});
    let copied = cluster.kubectl_with(&["create", "-f", "-"], &copy.to_string()).await.unwrap();
    assert!(copied.success(), "{copied:?}");
    let other = uuid_of(&cluster, "copy").await;
    assert!(!other.is_empty() && other != uuid, "{other}");
    // And paths of probes of its own.
    let copy = get(&cluster, &["-n", "shop", "pod", "copy"]).await;
    let path = |pod: &Value| pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]["path"].clone();
    assert!(
        path(&copy).as_str().unwrap().ends_with("/http/8080/healthz") && path(&copy) != path(&pod),
        "{copy}"
    );

    the_secret_goes_after_the_pod(&cluster, "store", &secret).await;
    let kept = get(&cluster, &["-n", "shop", "secret", &format!("smc-bootstrap-{other}")]).await;
    assert!(kept["data"].is_object(), "{kept}");
    cluster.stop().await.unwrap();
}
