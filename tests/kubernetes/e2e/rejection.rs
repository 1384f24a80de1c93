//! A resource that a pod's real Envoy rejects: the object behind it says so, the last good configuration
//! stays, and the fix ends it.
//!
//! The server's sidecar is added by `smc inject`, since its Envoy needs an argument that no user sets.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, ENVOY_IMAGE, SMC_IMAGE, beside};

use crate::mesh::{self, SETTLE, smc};
use crate::programmed::wait_programmed;
use crate::shared;
use crate::traffic::expect;

const MANIFESTS: &str = include_str!("rejection.yaml");

const SERVER: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: web, namespace: rejecting, labels: { app: web } }
spec:
  serviceAccountName: web
  terminationGracePeriodSeconds: 1
  containers:
    - name: web
      image: tools:test
      command: [smc-lab, echo, --http, "8080"]
"#;

/// The rule's object.
const GROUP: [&str; 3] = ["httproutegroup", "rejecting", "large"];

/// Lets bob call with the paths of this expression.
fn rule(expression: &str) -> String {
    format!(
        "
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {{ name: large, namespace: rejecting }}
spec:
  matches: [{{ name: large, pathRegex: '{expression}', methods: ['*'] }}]
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {{ name: bob, namespace: rejecting }}
spec:
  destination: {{ kind: ServiceAccount, name: web, namespace: rejecting }}
  sources: [{{ kind: ServiceAccount, name: bob, namespace: rejecting }}]
  rules: [{{ kind: HTTPRouteGroup, name: large, matches: [large] }}]
"
    )
}

/// The server with a sidecar whose Envoy takes small expressions only, in place of the bootstrap's limit.
fn server() -> Value {
    let mut inject = Command::new(beside("smc").unwrap())
        .args(["inject", "--envoy-image", ENVOY_IMAGE, "--init-image", SMC_IMAGE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    inject.stdin.take().unwrap().write_all(SERVER.as_bytes()).unwrap();
    let output = inject.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut pod: Value = serde_saphyr::from_str(std::str::from_utf8(&output.stdout).unwrap()).unwrap();
    // The webhook would bring the sidecar up to date. It is called for new pods only.
    pod["metadata"]["annotations"]["openservicemesh.io/sidecar-injection"] = "disabled".into();
    let sidecar = &mut pod["spec"]["initContainers"][1];
    assert_eq!(sidecar["name"], "envoy", "{sidecar:#}");
    let arguments = sidecar["args"].as_array_mut().unwrap();
    let at = arguments.iter().position(|argument| argument == "--config-yaml").unwrap() + 1;
    let mut config: Value = serde_json::from_str(arguments[at].as_str().unwrap()).unwrap();
    let layer = json!({ "name": "test", "static_layer": { "re2.max_program_size.error_level": 40 } });
    config["layered_runtime"]["layers"].as_array_mut().unwrap().push(layer);
    arguments[at] = config.to_string().into();
    pod
}

/// Gives a pod that `smc inject` has changed its bootstrap, as `smc inject` says it is done.
async fn give_bootstrap(cluster: &Cluster, pod: &Value) {
    let uuid = pod["metadata"]["labels"]["osm-proxy-uuid"].as_str().unwrap();
    let bootstrap = std::cell::RefCell::new(String::new());
    let issued = || async {
        *bootstrap.borrow_mut() = smc(cluster, 0, &["proxy", "bootstrap", "rejecting/web"]).await?;
        Ok(())
    };
    let waited = cluster.wait("a bootstrap of rejecting/web", SETTLE, issued).await;
    waited.unwrap_or_else(|error| panic!("{}", error.chain()));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": format!("smc-bootstrap-{uuid}"), "namespace": "rejecting" },
        "stringData": { "bootstrap.json": bootstrap.into_inner() },
    });
    cluster.apply(&secret.to_string()).await.unwrap();
}

#[tokio::test]
async fn what_a_pods_envoy_rejects_is_said_by_the_object_behind_it() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    cluster.apply(MANIFESTS).await.unwrap();
    let server = server();
    cluster.apply(&server.to_string()).await.unwrap();
    let join = ["annotate", "pod", "-n", "rejecting", "web", "openservicemesh.io/sidecar-injection-"];
    let joined = cluster.kubectl(&join).await.unwrap();
    assert!(joined.success(), "{joined:?}");
    give_bootstrap(&cluster, &server).await;
    for name in ["web", "alice", "bob"] {
        mesh::wait_ready(&cluster, "rejecting", &[&format!("pod/{name}")]).await;
    }
    expect(&cluster, "rejecting/alice", "http://web.rejecting/", Some(200)).await;

    cluster.apply(&rule("/a{40}b{40}")).await.unwrap();
    let message = wait_programmed(&cluster, GROUP, "False", "Rejected").await;
    assert!(message.contains("the proxy of Pod rejecting/web rejected"), "{message}");
    assert!(message.contains("program size"), "{message}");
    expect(&cluster, "rejecting/alice", "http://web.rejecting/", Some(200)).await;
    expect(&cluster, "rejecting/bob", "http://web.rejecting/", Some(403)).await;

    cluster.apply(&rule("/a+b+c")).await.unwrap();
    wait_programmed(&cluster, GROUP, "True", "Programmed").await;
    expect(&cluster, "rejecting/bob", "http://web.rejecting/aabbc", Some(200)).await;
    expect(&cluster, "rejecting/bob", "http://web.rejecting/other", Some(403)).await;
}
