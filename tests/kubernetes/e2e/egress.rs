//! What an Egress lets out of the mesh: its sidecars resolve names by the cluster's own DNS.

use crate::mesh;
use crate::shared;
use crate::traffic::expect;

/// A server outside of the mesh, and a namespace in it.
const MANIFESTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: { name: abroad }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: abroad }
spec:
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{ name: web, image: "tools:test", command: [smc-lab, echo, --http, "8080"] }]
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: abroad }
spec: { selector: { app: web }, ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: v1
kind: Namespace
metadata: { name: harbour, labels: { openservicemesh.io/monitored-by: smc } }
"#;

/// A client in the mesh, with an account of its own.
fn client(name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: ServiceAccount
metadata: {{ name: {name}, namespace: harbour }}
---
apiVersion: v1
kind: Pod
metadata: {{ name: {name}, namespace: harbour }}
spec:
  serviceAccountName: {name}
  terminationGracePeriodSeconds: 1
  containers: [{{ name: client, image: 'tools:test', command: [smc-lab, echo, --http, '8080'] }}]
"
    )
}

const EGRESS: &str = "
apiVersion: policy.openservicemesh.io/v1alpha1
kind: Egress
metadata: { name: abroad, namespace: harbour }
spec:
  sources: [{ kind: ServiceAccount, name: alice, namespace: harbour }]
  hosts: [web.abroad.svc.cluster.local]
  ports: [{ number: 80, protocol: http }]
";

#[tokio::test]
async fn an_egress_lets_one_account_out_to_one_name() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    cluster.apply(MANIFESTS).await.unwrap();
    for name in ["alice", "bob"] {
        cluster.apply(&client(name)).await.unwrap();
    }
    mesh::wait_ready(&cluster, "abroad", &["pod", "-l", "app=web"]).await;
    mesh::wait_ready(&cluster, "harbour", &["pod/alice", "pod/bob"]).await;
    let (host, url) = ("web.abroad.svc.cluster.local", "http://web.abroad.svc.cluster.local/");
    for client in ["harbour/alice", "harbour/bob"] {
        expect(&cluster, client, url, None).await;
    }
    cluster.apply(EGRESS).await.unwrap();
    expect(&cluster, "harbour/alice", url, Some(200)).await;
    expect(&cluster, "harbour/bob", url, None).await;
    // The short name is another one.
    expect(&cluster, "harbour/alice", "http://web.abroad/", Some(404)).await;
    let said = mesh::smc(&cluster, 0, &["mesh", "egress", "harbour/alice"]).await.unwrap();
    assert!(said.contains(host) && said.contains("Egress harbour/abroad"), "{said}");
    let deleted = cluster.kubectl(&["delete", "egress", "-n", "harbour", "abroad"]).await.unwrap();
    assert!(deleted.success(), "{deleted:?}");
    expect(&cluster, "harbour/alice", url, None).await;
    for namespace in ["abroad", "harbour"] {
        let deleted = cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]).await.unwrap();
        assert!(deleted.success(), "{deleted:?}");
    }
}
