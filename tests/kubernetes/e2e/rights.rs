//! The rights of the controllers: those that the chart grants are those that they use, and no more.

mod comparison;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use smc_host::env::Env;
use smc_test_kubernetes::{Cluster, MESH_NAMESPACE};

use crate::{mesh, shared};
use comparison::{Grant, grants};
pub(crate) use comparison::{Request, refused, requests};

/// What needs all that the controllers may ask for: an object of each kind, one of them without effect, and a
/// pod with a sidecar.
const MANIFESTS: &str = include_str!("rights.yaml");

/// Time limit for the controllers to do all of it, on a busy machine; the leader looks at Secrets every
/// half a minute.
const LIMIT: Duration = Duration::from_mins(4);

/// Rights that this cluster does not see used, as verb, API group and resource.
const RARE: [(&str, &str, &str); 2] = [
    // A Secret is deleted within a minute after its pod, and five minutes after a pod that does not come.
    ("delete", "", "secrets"),
    // An API server without streaming lists is asked for a list before a watch.
    ("list", "", "namespaces"),
];

/// The user whose requests the API server records for this test.
pub(crate) fn controllers() -> String {
    format!("system:serviceaccount:{MESH_NAMESPACE}:smc-controller")
}

#[tokio::test]
async fn the_controllers_have_the_rights_that_they_use_and_no_others() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    cluster.apply(MANIFESTS).await.unwrap();
    mesh::wait_ready(&cluster, "rights", &["pod/web"]).await;
    an_unknown_namespace_is_asked_about(&cluster).await;
    let granted = granted(&cluster).await;
    let all_used = || async {
        let used = requests(&cluster.audit().map_err(|error| error.chain())?, &controllers());
        let idle: Vec<_> = granted.iter().filter(|grant| !rare(grant) && !grant.is_used(&used)).collect();
        if idle.is_empty() {
            return Ok(());
        }
        touch_the_settings(&cluster).await;
        Err(format!("granted and not used: {idle:#?}"))
    };
    let waited = cluster.wait("the controllers to use all of their rights", LIMIT, all_used).await;
    waited.unwrap_or_else(|error| panic!("{}", error.chain()));
    let used = requests(&cluster.audit().unwrap(), &controllers());
    let refused = refused(&used);
    assert!(refused.is_empty(), "used and not granted: {refused:#?}");
    // All users have some rights by birth; the controllers use none of these.
    let elsewhere = |request: &&Request| !granted.iter().any(|grant| grant.allows(request));
    let elsewhere: BTreeSet<&Request> = used.iter().filter(elsewhere).collect();
    assert!(elsewhere.is_empty(), "granted by others than the chart: {elsewhere:#?}");
}

fn rare(grant: &Grant) -> bool {
    RARE.iter().any(|(verb, group, resource)| grant.is(verb, group, resource))
}

/// What the chart grants in the cluster as it is installed.
async fn granted(cluster: &Cluster) -> Vec<Grant> {
    let mut all = Vec::new();
    let roles: [&[&str]; 2] =
        [&["clusterrole", "smc-controller-smc"], &["role", "smc-controller", "-n", MESH_NAMESPACE]];
    for role in roles {
        let output = cluster.kubectl(&[&["get"], role, &["-o", "json"]].concat()).await.unwrap();
        assert!(output.success(), "{}", output.stderr);
        let role: Value = serde_json::from_str(&output.stdout).unwrap();
        all.extend(grants(&role));
    }
    assert!(all.len() > 30, "{all:#?}");
    all
}

/// The probes of the API server list the two kinds that changed last. What is in the control plane's
/// namespace changes at the installation alone, while other tests change much else.
async fn touch_the_settings(cluster: &Cluster) {
    let now = format!("test/touched={}", Env::system().now().0);
    for object in ["meshconfig/osm-mesh-config", "meshrootcertificate/root"] {
        let annotate = ["annotate", object, "-n", MESH_NAMESPACE, "--overwrite", &now];
        let touched = cluster.kubectl(&annotate).await.unwrap();
        assert!(touched.success(), "{touched:?}");
    }
}

/// A controller reads a Namespace that it has not heard of, as when a pod comes in the moment after its
/// namespace joined the mesh. The API server's own proxy brings the question to a controller.
async fn an_unknown_namespace_is_asked_about(cluster: &Cluster) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "new", "namespace": "default" },
        "spec": { "containers": [{ "name": "app", "image": "app" }] },
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "namespace": "default", "name": "new", "dryRun": true,
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "userInfo": {}, "object": pod,
        },
    });
    let path = format!("/api/v1/namespaces/{MESH_NAMESPACE}/services/https:smc-webhook:webhook/proxy/mutate");
    let asked =
        cluster.kubectl_with(&["create", "--raw", &path, "-f", "-"], &review.to_string()).await.unwrap();
    assert!(asked.success() && asked.stdout.contains("\"allowed\":true"), "{asked:?}");
}
