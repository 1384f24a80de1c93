//! The cluster itself: pods run, names resolve, virtual IPs answer, probes arrive.

use std::time::Duration;

use crate::shared;

const WEB: &str = r#"
apiVersion: v1
kind: Namespace
metadata: { name: node-web }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: node-web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      containers:
        - name: web
          image: tools:test
          command: [smc-lab, echo, --http, "8080"]
          readinessProbe: { httpGet: { path: /ready, port: 8080 }, periodSeconds: 1 }
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: node-web }
spec:
  selector: { app: web }
  ports: [{ port: 80, targetPort: 8080 }]
---
apiVersion: v1
kind: Pod
metadata: { name: client, namespace: node-web }
spec:
  containers: [{ name: client, image: tools:test, command: [sleep, infinity] }]
"#;

#[tokio::test]
async fn a_pod_finds_a_service_by_its_name_and_reaches_its_pods() {
    let Some(cluster) = shared::cluster().await else { return };
    cluster.apply(WEB).await.unwrap();
    let wait = ["wait", "-n", "node-web", "--for=condition=Available", "deployment/web", "--timeout=60s"];
    let waited = cluster.kubectl(&wait).await.unwrap();
    assert!(waited.success(), "{waited:?}");
    let wait = ["wait", "-n", "node-web", "--for=condition=Ready", "pod/client", "--timeout=60s"];
    assert!(cluster.kubectl(&wait).await.unwrap().success());
    let exec = ["exec", "-n", "node-web", "client", "--"];
    // kube-proxy's rules come a moment after the pods are ready.
    let fetch =
        [&exec[..], &["smc-lab", "fetch", "--count", "20", "--url", "http://web.node-web/books"]].concat();
    cluster
        .wait("both pods to answer", Duration::from_secs(30), || async {
            let fetched = cluster.kubectl(&fetch).await.map_err(|error| error.chain())?;
            let results: serde_json::Value =
                serde_json::from_str(&fetched.stdout).map_err(|error| format!("{error}: {fetched:?}"))?;
            let pods: std::collections::BTreeSet<String> =
                results.as_array().unwrap().iter().map(|result| result["body"]["pod"].to_string()).collect();
            if pods.len() == 2 { Ok(()) } else { Err(format!("{pods:?}: {results}")) }
        })
        .await
        .unwrap();
    let names = [&exec[..], &["getent", "hosts", "kubernetes.default"]].concat();
    let found = cluster.kubectl(&names).await.unwrap();
    assert!(found.stdout.starts_with("10.96.0.1 "), "{found:?}");
    let gone = cluster.kubectl(&["delete", "namespace", "node-web", "--wait=false"]).await.unwrap();
    assert!(gone.success(), "{gone:?}");
}
