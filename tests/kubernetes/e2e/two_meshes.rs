//! Two meshes in one cluster: each control plane obeys its own namespaces alone. The second one is installed,
//! upgraded, taken away and installed again by the program `smc`, under traffic and without losing its root.

use std::collections::BTreeSet;

use serde_json::Value;
use smc_test_kubernetes::{Cluster, ENVOY_IMAGE, Image, MESH_NAMESPACE, SMC_IMAGE, beside};

use crate::mesh::{self, SETTLE};
use crate::program::Program;
use crate::rights::{Request, controllers, refused, requests};
use crate::shared;
use crate::traffic::{Steady, fetch};

/// The namespace of the second control plane.
const BLUE: &str = "blue-system";
/// The namespaces of both meshes. The second one is in permissive mode; in the first, nothing is allowed.
const MANIFESTS: &str = include_str!("two_meshes.yaml");
/// The image of the upgrade.
const NEXT_IMAGE: &str = "smc:blue";
/// Requests that a step has at least, of twenty in a second.
const LEAST: usize = 20;

/// The user of the second mesh's controllers, whose requests the API server records.
pub(crate) fn blue_controllers() -> String {
    format!("system:serviceaccount:{BLUE}:smc-controller")
}

/// The program, for the second mesh.
fn blue(cluster: &Cluster) -> Program<'_> {
    Program { cluster, mesh: "blue", namespace: BLUE }
}

/// Waits until a request of a client has this outcome; `None` is no answer of a server.
async fn expect(cluster: &Cluster, from: &str, url: &str, status: Option<u64>) {
    let waited = cluster
        .wait(&format!("{status:?} from {url} for {from}"), SETTLE, || async {
            let fetched = fetch(cluster, from, url).await?;
            let failure = fetched.0["failure"].as_str().unwrap_or_default();
            let denied = matches!(failure, "refused" | "closed") || fetched.status() == Some(404);
            let expected = status.map_or(denied, |status| fetched.status() == Some(status));
            if expected { Ok(()) } else { Err(format!("{fetched:?}")) }
        })
        .await;
    if let Err(error) = waited {
        panic!("{}\n{}", error.chain(), mesh::state(cluster, "blue-shop").await);
    }
}

/// The certificates that the second mesh trusts.
async fn root(cluster: &Cluster) -> Value {
    let status: Value =
        serde_json::from_str(&blue(cluster).succeed(&["ca", "status", "-o", "json"]).await).unwrap();
    let roots = status["roots"].clone();
    assert!(roots.as_array().is_some_and(|roots| roots.len() == 1), "{status:#}");
    roots[0]["serial"].clone()
}

async fn converter(cluster: &Cluster) -> String {
    let path = "jsonpath={.spec.conversion.webhook.clientConfig.service.namespace}";
    let get = ["get", "crd", "trafficsplits.split.smi-spec.io", "-o", path];
    cluster.kubectl(&get).await.unwrap().stdout
}

/// One test, because its parts share a control plane and pods that take half a minute to be ready.
#[tokio::test]
async fn two_meshes_share_a_cluster_and_nothing_else() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    let install = ["install", "--image", SMC_IMAGE, "--envoy-image", ENVOY_IMAGE];
    blue(&cluster).succeed(&install).await;
    blue(&cluster).succeed(&["check"]).await;
    assert_eq!(converter(&cluster).await, MESH_NAMESPACE, "the first mesh converts TrafficSplits still");
    cluster.apply(MANIFESTS).await.unwrap();
    blue(&cluster).succeed(&["namespace", "add", "blue-shop"]).await;
    cluster.apply(&PODS.replace("NAMESPACE", "blue-shop")).await.unwrap();
    cluster.apply(&PODS.replace("NAMESPACE", "red-shop")).await.unwrap();
    for namespace in ["blue-shop", "red-shop"] {
        mesh::wait_ready(&cluster, namespace, &["pod/web", "pod/client"]).await;
    }
    each_obeys_its_own(&cluster).await;
    the_second_is_replaced_under_traffic(&cluster, &install).await;
    no_controller_touches_the_other_mesh(&cluster);
    blue(&cluster).succeed(&["uninstall"]).await;
}

async fn each_obeys_its_own(cluster: &Cluster) {
    expect(cluster, "blue-shop/client", "http://web.blue-shop/", Some(200)).await;
    let fetched = fetch(cluster, "blue-shop/client", "http://web.blue-shop/").await.unwrap();
    assert!(fetched.caller().contains("spiffe://cluster.local/ns/blue-shop/sa/client"), "{fetched:?}");
    expect(cluster, "red-shop/client", "http://web.red-shop/", None).await;
    expect(cluster, "blue-shop/client", "http://web.red-shop/", None).await;
    expect(cluster, "red-shop/client", "http://web.blue-shop/", None).await;
    let blue = blue(cluster).succeed(&["proxy", "list"]).await;
    assert!(blue.contains("blue-shop") && !blue.contains("red-shop"), "{blue}");
    for replica in 0..mesh::REPLICAS {
        let red = mesh::smc(cluster, replica, &["proxy", "list"]).await.unwrap();
        assert!(!red.contains("blue-shop"), "{red}");
    }
}

async fn the_second_is_replaced_under_traffic(cluster: &Cluster, install: &[&str]) {
    let before = root(cluster).await;
    let mut steady = Steady::of(cluster, "blue-shop/client").await;
    steady.start();
    for command in ["upgrade", "uninstall"] {
        let said = blue(cluster).run_as_typed(&[command, "--mesh-namespace", BLUE]).await.refusal();
        assert!(said.contains("use --mesh-name blue"), "{said}");
        let said = blue(cluster).run_as_typed(&[command]).await.refusal();
        assert!(said.contains(&format!("use `helm {command} smc`")), "{said}");
    }
    let rendered = blue(cluster).succeed(&["upgrade", "--dry-run"]).await;
    assert!(rendered.contains("--envoy-image=envoy:v"), "the repository that is used: {rendered}");
    cluster.import(Image::smc(NEXT_IMAGE, &beside("smc").unwrap())).await.unwrap();
    blue(cluster).succeed(&["upgrade", "--image", NEXT_IMAGE, "--envoy-image", ENVOY_IMAGE]).await;
    let image = "jsonpath={.items[*].spec.containers[0].image}";
    let label = "-l=app.kubernetes.io/component=controller";
    let images = cluster.kubectl(&["get", "pods", "-n", BLUE, label, "-o", image]).await.unwrap();
    assert_eq!(images.stdout, NEXT_IMAGE);
    steady.assert_no_failure(LEAST, "an upgrade");
    blue(cluster).succeed(&["uninstall"]).await;
    blue(cluster).succeed(install).await;
    steady.assert_no_failure(LEAST, "no control plane, and a new one");
    assert_eq!(root(cluster).await, before, "the same authority");
    // A new pod gets a certificate that the sidecar from before trusts, and is found by it.
    let replaced = ["delete", "pod", "-n", "blue-shop", "web"];
    assert!(cluster.kubectl(&replaced).await.unwrap().success());
    cluster.apply(&PODS.replace("NAMESPACE", "blue-shop")).await.unwrap();
    mesh::wait_ready(cluster, "blue-shop", &["pod/web"]).await;
    expect(cluster, "blue-shop/client", "http://web.blue-shop/", Some(200)).await;
}

/// The controllers of both watch all namespaces; what they ask about a single one is about their own.
fn no_controller_touches_the_other_mesh(cluster: &Cluster) {
    let audit = cluster.audit().unwrap();
    for (user, others) in
        [(controllers(), ["blue-shop", BLUE]), (blue_controllers(), ["red-shop", MESH_NAMESPACE])]
    {
        let requests = requests(&audit, &user);
        assert!(requests.len() > 20, "{user}: {requests:#?}");
        let touched: BTreeSet<&Request> =
            requests.iter().filter(|request| others.contains(&&*request.namespace)).collect();
        assert!(touched.is_empty(), "{user}: {touched:#?}");
        let refused = refused(&requests);
        assert!(refused.is_empty(), "{user}: {refused:#?}");
    }
}

/// A server and a client that calls it without end.
const PODS: &str = include_str!("two_meshes/pods.yaml");
