//! The Kubernetes source over a real API server: restarts, hangs, lost permissions, missing definitions.
//!
//! Each test has an API server of its own, since it ends it, and the source in its own process, behind a gate
//! that can cut its connections while the test goes on changing the cluster.

mod compaction;
mod every_kind;
mod gate;
mod hostile;
mod hostile_objects;
mod restored;
mod watcher;
mod whole;
mod witness;
mod world;

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use smc_kubernetes::crds::definitions;
use smc_test_kubernetes::{Cluster, ClusterOptions, Programs};
use smc_types::ids::MeshNamespace;
use smc_types::object_ref::Kind;

use crate::shared;
use gate::Gate;
use watcher::Watcher;

const NAMESPACES: &str = r"
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {openservicemesh.io/monitored-by: smc}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: elsewhere, labels: {openservicemesh.io/monitored-by: osm}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: own}}
";

const TARGET: &str = r"
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {name: buyers, namespace: shop}
spec:
  destination: {kind: ServiceAccount, name: seller, namespace: shop}
  sources: [{kind: ServiceAccount, name: buyer, namespace: shop}]
  rules: [{kind: HTTPRouteGroup, name: all}]
";

/// The role that the source needs, without its binding.
const ROLE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
  - {apiGroups: ["*"], resources: ["*"], verbs: [list, watch]}
"#;

const BINDING: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
";

fn account(name: &str) -> String {
    let (namespace, name) = name.split_once('/').unwrap();
    format!(
        "---\n{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {namespace}}}}}\n"
    )
}

/// An API server with the definitions of custom resources, and two namespaces, which cannot be deleted.
async fn api_server() -> Option<Cluster> {
    let cluster = alone(shared::api_programs()?, &[]).await;
    cluster.apply(NAMESPACES).await.unwrap();
    Some(cluster)
}

/// The same with a controller manager, which ends namespaces.
async fn prepared(programs: Programs) -> Cluster {
    let cluster = started(programs).await;
    define(&cluster, |_| true).await;
    cluster.apply(NAMESPACES).await.unwrap();
    cluster
}

async fn started(programs: Programs) -> Cluster {
    with_flags(programs, &[]).await
}

/// An API server with additional flags.
async fn with_flags(programs: Programs, flags: &[&str]) -> Cluster {
    let api_server_flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    with(ClusterOptions { api_server_flags, ..ClusterOptions::api_only(programs) }).await
}

/// An API server beside which no controller makes objects, with the definitions.
async fn alone(programs: Programs, flags: &[&str]) -> Cluster {
    let cluster = undefined(programs, flags).await;
    define(&cluster, |_| true).await;
    cluster
}

/// The same with definitions that say nothing of any `spec`.
async fn lenient(programs: Programs) -> Cluster {
    let cluster = undefined(programs, &[]).await;
    let mut all = all_definitions(|_| true);
    for version in all.iter_mut().flat_map(|one| one["spec"]["versions"].as_array_mut().unwrap()) {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    install(&cluster, &all).await;
    cluster
}

/// An API server beside which no controller makes objects.
async fn undefined(programs: Programs, flags: &[&str]) -> Cluster {
    let api_server_flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    let options = ClusterOptions::api_only(programs);
    with(ClusterOptions { controller_manager: false, api_server_flags, ..options }).await
}

async fn with(options: ClusterOptions) -> Cluster {
    Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// Installs the definitions whose names are chosen, and waits until they are served.
async fn define(cluster: &Cluster, chosen: impl Fn(&str) -> bool) {
    install(cluster, &all_definitions(chosen)).await;
}

fn all_definitions(chosen: impl Fn(&str) -> bool) -> Vec<Value> {
    let all = definitions(&MeshNamespace::new("own").unwrap()).unwrap();
    all.iter().filter(|one| chosen(one.name())).map(|one| one.as_json().clone()).collect()
}

async fn install(cluster: &Cluster, definitions: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": definitions});
    cluster.apply(&list.to_string()).await.unwrap();
    let name = |definition: &Value| format!("crd/{}", definition["metadata"]["name"].as_str().unwrap());
    let names: Vec<_> = definitions.iter().map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let wait = ["wait", "--for=condition=Established", "--timeout=60s"];
    let waited = cluster.kubectl(&[&wait, &names[..]].concat()).await.unwrap();
    assert!(waited.success(), "{names:?}: {}", waited.stderr);
}

/// A client of the user `reader`, who has the rights that the test gives.
async fn reader(cluster: &Cluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info.impersonate = Some("reader".to_owned());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// The version that the API server is at.
async fn version(cluster: &Cluster) -> String {
    let list = cluster.kubectl(&["get", "--raw", "/api/v1/namespaces/shop/serviceaccounts"]).await.unwrap();
    let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

async fn kubectl(cluster: &Cluster, args: &[&str]) {
    let output = cluster.kubectl(args).await.unwrap();
    assert!(output.success(), "{args:?}: {output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_of_the_mesh_come_and_go_with_their_objects() {
    // A namespace gets its account `default`, and ends, by a controller manager, which envtest has not.
    let Some(programs) = shared::programs() else { return };
    let cluster = prepared(programs).await;
    cluster.apply(&(account("shop/seller") + &account("elsewhere/stranger") + "---" + TARGET)).await.unwrap();
    let mut watcher = Watcher::start(Gate::over(cluster.client().await.unwrap()));
    let default = "ServiceAccount shop/default";
    watcher
        .becomes(&["Namespace shop", default, "ServiceAccount shop/seller", "TrafficTarget shop/buyers"])
        .await;
    assert_eq!(watcher.problems(), "");
    cluster.apply(&account("shop/late")).await.unwrap();
    watcher.gets("ServiceAccount shop/late").await;
    kubectl(
        &cluster,
        &["label", "namespace", "elsewhere", "openservicemesh.io/monitored-by=smc", "--overwrite"],
    )
    .await;
    watcher.gets("Namespace elsewhere").await;
    assert!(watcher.has("ServiceAccount elsewhere/stranger"), "it came with its namespace");
    kubectl(&cluster, &["label", "namespace", "elsewhere", "openservicemesh.io/ignore=true"]).await;
    watcher.loses("ServiceAccount elsewhere/stranger").await;
    kubectl(&cluster, &["delete", "namespace", "shop"]).await;
    watcher.becomes(&[]).await;
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_starts_while_the_api_is_away_serves_what_it_knew() {
    let Some(cluster) = api_server().await else { return };
    cluster.apply(&(account("shop/seller") + &account("shop/buyer") + "---" + TARGET)).await.unwrap();
    let gate = Gate::over(cluster.client().await.unwrap());
    let mut watcher = Watcher::start(gate.clone());
    watcher.gets("TrafficTarget shop/buyers").await;
    watcher.saved("buyers").await;
    let directory = watcher.stop().await;
    // Not even its address answers.
    cluster.signal("kube-apiserver", Signal::SIGKILL).await.unwrap();
    cluster.wait_ended("kube-apiserver").await.unwrap();
    let mut watcher = Watcher::over(gate, directory);
    watcher.gets("TrafficTarget shop/buyers").await;
    assert!(watcher.has("Namespace shop") && watcher.has("ServiceAccount shop/seller"));
    assert!(watcher.problems().contains("the last known mesh is served"), "{}", watcher.problems());
    assert_eq!(watcher.metric("smc_source_stale"), 1);
    assert_eq!(watcher.metric("smc_source_synced"), 0);
    cluster.start_api_server().await.unwrap();
    kubectl(&cluster, &["delete", "-n", "shop", "serviceaccount", "buyer"]).await;
    watcher.loses("ServiceAccount shop/buyer").await;
    watcher.without_problems().await;
    assert!(watcher.has("TrafficTarget shop/buyers"));
    assert_eq!((watcher.metric("smc_source_synced"), watcher.metric("smc_source_stale")), (1, 0));
    // A damaged copy is not served; the replica waits for the API.
    watcher.saved("seller").await;
    let directory = watcher.stop().await;
    let path = directory.path().join("last-known-mesh");
    let copy = std::fs::read_to_string(&path).unwrap().replace("seller", "seller2");
    std::fs::write(&path, copy).unwrap();
    let closed = Gate::over(cluster.client().await.unwrap());
    closed.close();
    let mut watcher = Watcher::over(closed.clone(), directory);
    watcher.serves_nothing_for(Duration::from_secs(8)).await;
    closed.open();
    watcher.gets("ServiceAccount shop/seller").await;
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_while_watches_were_cut_arrives_though_history_is_gone() {
    let Some(cluster) = api_server().await else { return };
    cluster.apply(&(account("shop/kept") + &account("shop/gone"))).await.unwrap();
    let gate = Gate::over(cluster.client().await.unwrap());
    let mut watcher = Watcher::start(gate.clone());
    watcher.gets("ServiceAccount shop/gone").await;
    // Cut for a moment, after which a watch goes on; or a list is due, if a busy machine made it a long
    // moment.
    gate.close();
    cluster.apply(&account("shop/meanwhile")).await.unwrap();
    gate.open();
    watcher.gets("ServiceAccount shop/meanwhile").await;
    // Cut while the API server restarts, which forgets the history that a watch would need: 410 Gone.
    gate.close();
    kubectl(&cluster, &["delete", "-n", "shop", "serviceaccount", "gone"]).await;
    cluster.signal("kube-apiserver", Signal::SIGKILL).await.unwrap();
    cluster.wait_ended("kube-apiserver").await.unwrap();
    cluster.start_api_server().await.unwrap();
    cluster.apply(&account("shop/after")).await.unwrap();
    gate.open();
    watcher.gets("ServiceAccount shop/after").await;
    watcher.loses("ServiceAccount shop/gone").await;
    assert!(watcher.has("ServiceAccount shop/kept"));
    assert!(watcher.metric("smc_source_relists_total{kind=\"ServiceAccount\"}") >= 1);
    watcher.without_problems().await;
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_hangs_is_noticed_and_takes_nothing_away() {
    let Some(cluster) = api_server().await else { return };
    cluster.apply(&account("shop/seller")).await.unwrap();
    let mut watcher = Watcher::start(Gate::over(cluster.client().await.unwrap()));
    watcher.gets("ServiceAccount shop/seller").await;
    watcher.without_problems().await;
    cluster.signal("kube-apiserver", Signal::SIGSTOP).await.unwrap();
    watcher.reports("does not answer").await;
    assert_eq!(watcher.metric("smc_source_stale"), 1);
    assert!(watcher.has("ServiceAccount shop/seller"));
    cluster.signal("kube-apiserver", Signal::SIGCONT).await.unwrap();
    cluster.apply(&account("shop/buyer")).await.unwrap();
    watcher.gets("ServiceAccount shop/buyer").await;
    watcher.without_problems().await;
    assert_eq!(watcher.metric("smc_source_stale"), 0);
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_that_is_taken_away_is_one_problem_and_changes_nothing() {
    let Some(cluster) = api_server().await else { return };
    cluster.apply(&format!("{ROLE}---{BINDING}{}", account("shop/seller"))).await.unwrap();
    let gate = Gate::over(reader(&cluster).await);
    let mut watcher = Watcher::start(gate.clone());
    watcher.gets("ServiceAccount shop/seller").await;
    watcher.without_problems().await;
    kubectl(&cluster, &["delete", "clusterrolebinding", "reader"]).await;
    // An open watch goes on; permission is asked for when the next one begins.
    gate.close();
    gate.open();
    watcher.reports("lack of permission").await;
    assert_eq!(watcher.problems().lines().count(), 1, "{}", watcher.problems());
    assert!(watcher.has("ServiceAccount shop/seller"));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let asked = gate.requests();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let more = gate.requests() - asked;
    let kinds = Kind::ALL.len();
    let most = 5 * kinds as u64;
    assert!(more < most, "{more} requests in ten seconds, of {kinds} kinds that wait longer and longer");
    cluster.apply(&format!("{BINDING}{}", account("shop/buyer"))).await.unwrap();
    watcher.gets("ServiceAccount shop/buyer").await;
    watcher.without_problems().await;
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_definition_is_one_problem_and_takes_effect_later() {
    let Some(programs) = shared::api_programs() else { return };
    let cluster = started(programs).await;
    define(&cluster, |name| !name.starts_with("traffictargets.")).await;
    cluster.apply(&(NAMESPACES.to_owned() + &account("shop/seller"))).await.unwrap();
    let mut watcher = Watcher::start(Gate::over(cluster.client().await.unwrap()));
    watcher.gets("ServiceAccount shop/seller").await;
    assert!(watcher.problems().contains("does not serve TrafficTarget"), "{}", watcher.problems());
    assert_eq!(watcher.problems().lines().count(), 1, "{}", watcher.problems());
    define(&cluster, |name| name.starts_with("traffictargets.")).await;
    cluster.apply(TARGET).await.unwrap();
    watcher.gets("TrafficTarget shop/buyers").await;
    watcher.without_problems().await;
    kubectl(&cluster, &["delete", "crd", "traffictargets.access.smi-spec.io"]).await;
    watcher.loses("TrafficTarget shop/buyers").await;
    watcher.reports("does not serve TrafficTarget").await;
    assert!(watcher.has("ServiceAccount shop/seller"));
    cluster.stop().await.unwrap();
}
