//! The page on the way from Open Service Mesh, in a cluster that has what OSM 1.2 leaves there.

use serde_json::{Value, json};

use super::machines::machine;
use super::page::Page;
use super::reader::Reader;
use super::start;
use crate::shared::programs;

/// OSM's objects of policy, as its documents write them, in the namespace `shop`.
const POLICY: &str = include_str!("../objects/from_osm.yaml");

/// What OSM 1.2 defines: group, kind, plural, and the version that it stores and serves.
const DEFINED: [(&str, &str, &str, &str); 9] = [
    ("config.openservicemesh.io", "MeshConfig", "meshconfigs", "v1alpha2"),
    ("access.smi-spec.io", "TrafficTarget", "traffictargets", "v1alpha3"),
    ("specs.smi-spec.io", "HTTPRouteGroup", "httproutegroups", "v1alpha4"),
    ("specs.smi-spec.io", "TCPRoute", "tcproutes", "v1alpha4"),
    ("split.smi-spec.io", "TrafficSplit", "trafficsplits", "v1alpha2"),
    ("policy.openservicemesh.io", "Egress", "egresses", "v1alpha1"),
    ("policy.openservicemesh.io", "IngressBackend", "ingressbackends", "v1alpha1"),
    ("policy.openservicemesh.io", "Retry", "retries", "v1alpha1"),
    ("policy.openservicemesh.io", "UpstreamTrafficSetting", "upstreamtrafficsettings", "v1alpha1"),
];

/// A mesh of OSM's: its MeshConfig, and an application in a namespace of it, with each kind that
/// makes pods.
const MESH: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: osm-system}}
---
apiVersion: v1
kind: Namespace
metadata:
  name: bookstore
  labels: {openservicemesh.io/monitored-by: osm}
  annotations: {openservicemesh.io/sidecar-injection: enabled, openservicemesh.io/metrics: enabled}
---
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: {name: osm-mesh-config, namespace: osm-system}
spec:
  sidecar: {enablePrivilegedInitContainer: false, logLevel: error, configResyncInterval: 0s, resources: {}}
  traffic: {enableEgress: true, enablePermissiveTrafficPolicyMode: true}
  observability: {osmLogLevel: info, enableDebugServer: false, tracing: {enable: false}}
  certificate: {serviceCertValidityDuration: 24h, certKeyBitSize: 2048}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: bookstore}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: bookstore}, spec: SPEC}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: bookstore}, spec: SPEC}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: bookstore}, spec: SPEC}
";

/// One pod of a kind that makes pods.
fn workloads() -> String {
    ["web", "db", "agent"].into_iter().fold(MESH.to_owned(), |mesh, name| {
        let containers =
            json!([{ "name": name, "image": "tools:test", "command": ["smc-lab", "echo", "--http", "80"] }]);
        let spec = json!({
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "terminationGracePeriodSeconds": 1, "containers": containers },
            },
        });
        mesh.replacen("SPEC", &spec.to_string(), 1)
    })
}

/// A definition that takes what OSM's does.
fn definition((group, kind, plural, version): (&str, &str, &str, &str)) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "labels": { "app.kubernetes.io/name": "openservicemesh.io" },
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind, "listKind": format!("{kind}List"),
                "plural": plural, "singular": kind.to_lowercase(),
            },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// OSM's program as far as the page needs it: what it does to MeshConfig and to the namespaces.
const OSM: &str = "\
osm() {
  [ \"$*\" = 'uninstall mesh' ]
  kubectl delete meshconfig osm-mesh-config -n osm-system
  kubectl label namespace -l openservicemesh.io/monitored-by=osm openservicemesh.io/monitored-by-
  kubectl annotate namespace bookstore openservicemesh.io/sidecar-injection- openservicemesh.io/metrics-
}";

/// The policy of OSM's documents that OSM 1.2 defines, in the namespace of the application.
fn policy() -> String {
    let defined = |object: &&str| {
        DEFINED.iter().any(|(group, kind, ..)| {
            *kind != "MeshConfig"
                && object.contains(&format!("{group}/"))
                && object.contains(&format!("kind: {kind}\n"))
        })
    };
    let objects: Vec<_> = POLICY.split("---\n").filter(defined).collect();
    assert!(objects.len() > 6, "one of each kind: {objects:#?}");
    objects.join("---\n").replace("namespace: shop", "namespace: bookstore")
}

#[tokio::test]
async fn the_commands_of_the_migration_page_work_as_they_are_typed() {
    let Some(programs) = programs() else { return };
    let page = Page::open("migrating-from-osm.md");
    let cluster = start(programs).await;
    judge(&page).await;

    for defined in DEFINED {
        cluster.apply(&definition(defined).to_string()).await.unwrap();
    }
    let mut reader = Reader::of(&page).with("KUBECONFIG", cluster.kubeconfig()).with_function(OSM);
    reader.types("kubectl wait crd --all --for=condition=Established --timeout=30s").await;
    cluster.apply(&workloads()).await.unwrap();
    cluster.apply(&policy()).await.unwrap();
    reader.types("kubectl rollout status deployment,statefulset,daemonset -n bookstore --timeout=2m").await;

    reader.follow_blocks("Moving a mesh", 0..1).await;
    // Each file holds what the cluster has, and nothing was lost on the way.
    reader
        .types(
            "for name in osm-mesh-config bookstore from-osm buyers books mysql httpbin retry counted external; do
               grep -hq \"name: $name$\" *.yaml
             done
             [ $(grep -hc '^- apiVersion' policy.yaml) = 6 ]",
        )
        .await;
    let rest = page.len("Moving a mesh");
    reader.follow_blocks("Moving a mesh", 1..rest).await;
    page.assert_done();

    // All pods have moved, whatever makes them; permissive mode is as it was, and so is policy.
    reader.until("[ -z \"$(kubectl get pods -n bookstore -l '!osm-proxy-uuid' -o name)\" ]").await;
    reader.types("command smc check --mesh-name osm --wait 2m").await;
    let mode = "kubectl get meshconfig osm-mesh-config -n smc-system -o yaml | grep enablePermissive";
    assert!(reader.types(mode).await.contains("true"));
    reader.types("kubectl get trafficsplits.v1alpha4.split.smi-spec.io from-osm -n bookstore -o yaml | grep 'weight: 50'").await;
    reader
        .types("kubectl get namespace bookstore -o yaml | grep 'openservicemesh.io/metrics: enabled'")
        .await;
    cluster.stop().await.unwrap();
}

/// Objects in a directory are judged without a cluster.
async fn judge(page: &Page) {
    let mut reader = machine(page, 20);
    std::fs::create_dir(reader.directory().join("manifests")).unwrap();
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: bookstore, labels: {openservicemesh.io/monitored-by: osm}}}";
    let objects = format!("{namespace}\n---\n{}", policy());
    std::fs::write(reader.directory().join("manifests/osm.yaml"), objects).unwrap();
    let trial = reader.directory().join("trial/admin.sock");
    reader = reader.with("SMC_ADMIN_SOCKET", trial);
    reader.follow("What to change before").await;
}
