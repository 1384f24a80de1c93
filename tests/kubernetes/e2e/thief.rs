//! A thief of the controllers' token, before a real API server.
//!
//! Owns the list of what a thief would try. Each attempt is one that the administrator could make: what is
//! refused is refused for whose it is, and not because it is malformed. docs/security.md says what
//! succeeds.

use std::io::Write;

use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, ClusterOptions};
use tempfile::NamedTempFile;

use crate::program::Program;
use crate::shared;

const OWN: &str = "smc-system";
/// A namespace of the mesh.
const MESH: &str = "shop";
/// The name of the mesh.
const MESHED: &str = "smc";
/// A namespace that is not of the mesh.
const ELSEWHERE: &str = "kube-system";

const OBJECTS: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {openservicemesh.io/monitored-by: smc}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: theirs, namespace: kube-system}, stringData: {password: hidden}}
---
{apiVersion: v1, kind: Secret, metadata: {name: theirs, namespace: shop}, stringData: {password: hidden}}
---
{apiVersion: v1, kind: Secret, metadata: {name: smc-kek, namespace: smc-system}, stringData: {kek: hidden}}
---
apiVersion: v1
kind: Secret
metadata: {name: smc-bootstrap-1, namespace: shop, labels: {app.kubernetes.io/managed-by: smc}}
stringData: {bootstrap.json: hidden}
---
{apiVersion: v1, kind: Secret, metadata: {name: smc-ca-bundle, namespace: smc-system}, stringData: {ca.crt: roots}}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: theirs-tls, namespace: kube-system}
stringData: {tls.crt: theirs, tls.key: hidden}
---
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: {name: osm-mesh-config, namespace: smc-system}
spec:
  certificate:
    ingressGateway:
      subjectAltNames: [gateway.example]
      validityDuration: 24h
      secret: {name: gateway, namespace: kube-system}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: smc-system}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: theirs, namespace: kube-system}}
";

/// The Secret of a gateway that the MeshConfig named before.
const FORMER: &str = "
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: former, namespace: kube-system, labels: {mesh.smc.dev/gateway-of: smc}}
stringData: {tls.crt: former, tls.key: hidden}
";

/// Something that a thief tries: arguments of kubectl, and its standard input.
struct Attempt {
    args: Vec<String>,
    input: String,
}

fn attempt(args: &str, input: &Value) -> Attempt {
    let args = args.split(' ').map(str::to_owned).collect();
    Attempt { args, input: if input.is_null() { String::new() } else { input.to_string() } }
}

/// The creation of a Secret.
fn secret(namespace: &str, name: &str, kind: &str, label: &str) -> Attempt {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {
            "name": name, "namespace": namespace, "labels": { "app.kubernetes.io/managed-by": label },
            "annotations": { "kubernetes.io/service-account.name": "default" },
        },
    });
    attempt("create -f -", &secret)
}

/// A Secret as that of an ingress gateway.
fn gateway(namespace: &str, name: &str, mesh: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": name, "namespace": namespace, "labels": { "mesh.smc.dev/gateway-of": mesh } },
        "data": { "tls.crt": "dGhpZWY=", "tls.key": "dGhpZWY=" },
    })
}

/// The replacement of a Secret without a look at it, as `update` allows it.
fn replaced(secret: &Value) -> Attempt {
    let [namespace, name] = ["namespace", "name"].map(|field| secret["metadata"][field].as_str().unwrap());
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}?dryRun=All");
    attempt(&format!("replace --raw {path} -f -"), secret)
}

/// The deletion of a Secret after its dependents, or without them: the answer has what is deleted.
fn deleted_slowly(namespace: &str, name: &str, how: &Value) -> Attempt {
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}?dryRun=All");
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"] });
    options.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
    attempt(&format!("delete --raw {path} -f -"), &options)
}

/// A merge patch of an object.
fn merge(object: &str, patch: &Value) -> Attempt {
    let mut patched = attempt(&format!("patch {object} --type=merge -p"), &Value::Null);
    patched.args.push(patch.to_string());
    patched
}

/// A JSON patch of an object.
fn edit(object: &str, op: &str, path: &str, value: &Value) -> Attempt {
    let mut edited = attempt(&format!("patch {object} --type=json -p"), &Value::Null);
    edited.args.push(json!([{ "op": op, "path": path, "value": value }]).to_string());
    edited
}

/// What is refused whatever the object.
fn hijacked(object: &str) -> Vec<Attempt> {
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone" }]);
    let meta = |field: &str, value: Value| merge(object, &json!({ "metadata": { field: value } }));
    vec![
        // The garbage collector would delete the object after an owner that does not exist.
        meta("ownerReferences", owner),
        meta("finalizers", json!(["thief.example/stays"])),
        meta("labels", json!({ "thief": "here" })),
        meta("annotations", json!({ "thief": "here" })),
    ]
}

fn webhooks(object: &str) -> Vec<Attempt> {
    let first = |field: &str, value: Value| edit(object, "add", &format!("/webhooks/0/{field}"), &value);
    let everything =
        json!([{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"] }]);
    let mut all = hijacked(object);
    all.extend([
        first("rules", everything),
        first("clientConfig/service/namespace", json!("thief")),
        first("clientConfig/service/path", json!("/thief")),
        first("clientConfig", json!({ "url": "https://thief.example/" })),
        first("failurePolicy", json!("Fail")),
        first("matchPolicy", json!("Exact")),
        first("namespaceSelector", json!({})),
        first("objectSelector", json!({ "matchLabels": { "thief": "here" } })),
        first("matchConditions", json!([{ "name": "none", "expression": "false" }])),
        first("timeoutSeconds", json!(30)),
        edit(object, "remove", "/webhooks/0", &Value::Null),
        first("name", json!("thief.smc.dev")),
    ]);
    all
}

/// What must be refused of the Secrets of gateways, of which the MeshConfig names one.
fn of_gateways() -> Vec<Attempt> {
    vec![
        attempt("create -f -", &gateway(ELSEWHERE, "another", MESHED)),
        attempt("create -f -", &gateway(MESH, "gateway", MESHED)),
        attempt("create -f -", &gateway(ELSEWHERE, "gateway", "another-mesh")),
        replaced(&gateway(ELSEWHERE, "theirs-tls", MESHED)),
        replaced(&gateway(ELSEWHERE, "former", MESHED)),
        replaced(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "theirs", "namespace": MESH },
        })),
        replaced(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "smc-kek", "namespace": OWN },
        })),
        attempt(&format!("delete secret theirs-tls -n {ELSEWHERE}"), &Value::Null),
        deleted_slowly(ELSEWHERE, "former", &json!({ "propagationPolicy": "Foreground" })),
        deleted_slowly(ELSEWHERE, "former", &json!({ "propagationPolicy": "Orphan" })),
        deleted_slowly(ELSEWHERE, "former", &json!({ "orphanDependents": true })),
        deleted_slowly(MESH, "smc-bootstrap-1", &json!({ "propagationPolicy": "Foreground" })),
        attempt(&format!("delete secret smc-ca-bundle -n {OWN}"), &Value::Null),
        attempt(&format!("get secret smc-ca-bundle -n {OWN}"), &Value::Null),
        attempt("delete validatingadmissionpolicy smc-gateway-smc", &Value::Null),
        attempt("delete meshconfig osm-mesh-config -n smc-system", &Value::Null),
        merge("meshconfig osm-mesh-config -n smc-system", &json!({ "spec": { "certificate": null } })),
    ]
}

/// What must be refused.
fn refused() -> Vec<Attempt> {
    let mut all = Vec::new();
    for (namespace, name) in
        [(ELSEWHERE, "theirs"), (MESH, "theirs"), (OWN, "smc-kek"), (MESH, "smc-bootstrap-1")]
    {
        let of = format!("secret {name} -n {namespace}");
        // An answer to any of these has the content.
        all.push(attempt(&format!("get {of}"), &Value::Null));
        all.push(merge(&of, &json!({})));
        all.push(edit(&of, "add", "/metadata/labels", &json!({ "app.kubernetes.io/managed-by": "smc" })));
        if name != "smc-bootstrap-1" {
            all.push(attempt(&format!("delete {of}"), &Value::Null));
        }
    }
    all.push(attempt("get secrets -A", &Value::Null));
    let (token, opaque) = ("kubernetes.io/service-account-token", "Opaque");
    for (namespace, name, kind, label) in [
        (ELSEWHERE, "smc-bootstrap-2", token, "smc"),
        (OWN, "smc-bootstrap-2", token, "smc"),
        (OWN, "smc-kek-2", token, "smc"),
        (MESH, "smc-bootstrap-2", token, "smc"),
        (MESH, "smc-bootstrap-2", "bootstrap.kubernetes.io/token", "smc"),
        (ELSEWHERE, "smc-bootstrap-2", opaque, "smc"),
        (OWN, "smc-bootstrap-2", opaque, "smc"),
        (MESH, "smc-bootstrap-2", opaque, "helm"),
        (MESH, "other", opaque, "smc"),
        (ELSEWHERE, "smc-kek", opaque, "smc"),
        (OWN, "other", opaque, "smc"),
    ] {
        all.push(secret(namespace, name, kind, label));
    }
    all.extend(of_gateways());
    let map = |namespace: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "other", "namespace": namespace } });
    all.extend([OWN, ELSEWHERE].map(|namespace| attempt("create -f -", &map(namespace))));
    all.push(merge(&format!("configmap theirs -n {OWN}"), &json!({ "data": { "a": "b" } })));
    all.extend(webhooks("mutatingwebhookconfiguration smc-injector-smc"));
    all.extend(webhooks("validatingwebhookconfiguration smc-validator-smc"));
    let definition = "customresourcedefinition trafficsplits.split.smi-spec.io";
    all.extend(hijacked(definition));
    for (path, value) in [
        ("/spec/names/shortNames", json!(["thief"])),
        ("/spec/versions/0/served", json!(false)),
        ("/spec/versions/0/schema/openAPIV3Schema/description", json!("thief")),
        ("/spec/conversion", json!({ "strategy": "None" })),
        ("/spec/conversion/webhook/clientConfig/service/namespace", json!("thief")),
        ("/spec/conversion/webhook/clientConfig/service/path", json!("/thief")),
    ] {
        all.push(edit(definition, "add", path, &value));
    }
    all.push(attempt(&format!("delete {definition}"), &Value::Null));
    // The policy itself, and the ways around it.
    let cluster_admin =
        "clusterrolebinding thief --clusterrole=cluster-admin --serviceaccount=smc-system:smc-controller";
    for line in [
        "delete validatingadmissionpolicy smc-controller-smc",
        "delete validatingadmissionpolicybinding smc-controller-smc",
        &format!("create {cluster_admin}"),
        "create serviceaccount thief -n shop",
        "create deployment thief -n shop --image=thief",
        "delete namespace shop",
        "scale statefulset smc-controller -n smc-system --replicas=0",
        "get nodes",
    ] {
        all.push(attempt(line, &Value::Null));
    }
    all.push(merge("clusterrole smc-controller-smc", &json!({ "rules": [] })));
    all.push(merge("namespace kube-system", &json!({ "metadata": { "labels": { "a": "b" } } })));
    all.push(merge(
        "validatingadmissionpolicybinding smc-controller-smc",
        &json!({ "spec": { "validationActions": ["Audit"] } }),
    ));
    all
}

/// What succeeds, with the sentence of docs/security.md about it.
fn allowed() -> Vec<(&'static str, Attempt)> {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "thief", "namespace": "default" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "thief", "reportingInstance": "thief",
        "action": "Stealing", "reason": "Stolen", "type": "Normal", "note": "here",
        "regarding": { "kind": "Pod", "name": "thief", "namespace": "default" },
    });
    vec![
        (
            "list Pods, Services, service accounts, Namespaces",
            attempt("get pods,services,serviceaccounts,namespaces -A", &Value::Null),
        ),
        ("make and delete bootstraps of sidecars", secret(MESH, "smc-bootstrap-2", "Opaque", "smc")),
        (
            "make and delete bootstraps of sidecars",
            attempt("delete secret smc-bootstrap-1 -n shop", &Value::Null),
        ),
        (
            "the certificate of the ingress gateway",
            attempt("create -f -", &gateway(ELSEWHERE, "gateway", MESHED)),
        ),
        (
            "the certificate of the ingress gateway",
            attempt(&format!("delete secret former -n {ELSEWHERE}"), &Value::Null),
        ),
        (
            "the roots of the mesh",
            replaced(&json!({
                "apiVersion": "v1", "kind": "Secret", "data": { "ca.crt": "dGhpZWY=" },
                "metadata": { "name": "smc-ca-bundle", "namespace": OWN },
            })),
        ),
        ("write Events", attempt("create -f -", &event)),
    ]
}

#[tokio::test]
async fn a_stolen_token_reads_no_secret_and_becomes_no_other_account() {
    let Some(programs) = shared::api_programs() else { return };
    let cluster = Cluster::start(ClusterOptions::api_only(programs)).await.unwrap();
    let smc = Program { cluster: &cluster, mesh: "smc", namespace: OWN };
    cluster.apply(&smc.succeed(&["install", "--dry-run"]).await).await.unwrap();
    cluster.apply(OBJECTS).await.unwrap();
    // The API server takes some moments to know the MeshConfig as a policy's parameter.
    cluster
        .wait("the MeshConfig", crate::mesh::SETTLE, async || {
            cluster.apply(FORMER).await.map_err(|error| error.chain())
        })
        .await
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let stolen = stolen_kubeconfig(&cluster).await;
    let page = std::fs::read_to_string("../../docs/security.md").unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");

    // The API server compiles the policy some moments after it was applied.
    cluster
        .wait("the policy", crate::mesh::SETTLE, async || {
            let probe = secret(ELSEWHERE, "smc-bootstrap-0", "Opaque", "smc");
            let said = run(&cluster, &probe, Some(&stolen)).await;
            if said.contains("denied request") { Ok(()) } else { Err(said) }
        })
        .await
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let mut wrong = Vec::new();
    for attempt in refused() {
        let could = run(&cluster, &attempt, None).await;
        let could_not = run(&cluster, &attempt, Some(&stolen)).await;
        if !could.is_empty() {
            wrong.push(format!("malformed: {:?} {}: {could}", attempt.args, attempt.input));
        }
        if !["denied request", "orbidden"].iter().any(|reason| could_not.contains(reason)) {
            wrong.push(format!("not refused: {:?} {}: {could_not}", attempt.args, attempt.input));
        }
    }
    for (sentence, attempt) in allowed() {
        let said = run(&cluster, &attempt, Some(&stolen)).await;
        if !said.is_empty() || !page.contains(sentence) {
            wrong.push(format!("{sentence}: {:?} {}: {said}", attempt.args, attempt.input));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    cluster.stop().await.unwrap();
}

/// A kubeconfig with the controllers' own token.
async fn stolen_kubeconfig(cluster: &Cluster) -> NamedTempFile {
    let token = cluster.kubectl(&["create", "token", "smc-controller", "-n", OWN]).await.unwrap();
    assert!(token.success(), "{token:?}");
    let config = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = json!({ "token": token.stdout.trim() });
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(config.to_string().as_bytes()).unwrap();
    file
}

/// What the API server says against an attempt; nothing if it succeeds. Nothing is changed.
async fn run(cluster: &Cluster, attempt: &Attempt, stolen: Option<&NamedTempFile>) -> String {
    let mut args: Vec<&str> = attempt.args.iter().map(String::as_str).collect();
    if args[0] != "get" && !args.contains(&"--raw") {
        args.push("--dry-run=server");
    }
    let config = stolen.map(|file| format!("--kubeconfig={}", file.path().display()));
    args.extend(config.as_deref());
    let output = cluster.kubectl_with(&args, &attempt.input).await.unwrap();
    if output.success() { String::new() } else { output.stderr }
}
