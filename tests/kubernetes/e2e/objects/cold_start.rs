//! Objects that an older definition stored, at a first start, where nothing is served until they are
//! converted and the replica that waits for them converts them; and when their control plane goes.

use std::time::Duration;

use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, ClusterOptions, MESH_NAMESPACE};

use super::control_plane::ControlPlane;
use super::{definitions, get, split};
use crate::program::Program;
use crate::shared;

/// The definition of TrafficSplit in a chart's file, as SMI's first was: v1alpha1 is stored, nothing is
/// converted.
fn older(definition: &str) -> Value {
    let mut older: Value = serde_saphyr::from_str(definition).unwrap();
    let spec = &mut older["spec"];
    spec["conversion"] = json!({"strategy": "None"});
    for version in spec["versions"].as_array_mut().unwrap() {
        version["storage"] = json!(version["name"] == "v1alpha1");
    }
    older
}

/// A TrafficSplit in the first version, whose weights are quantities.
fn first_version(namespace: &str, name: &str) -> String {
    split("v1alpha1", name, "{service: store, backends: [{service: v1, weight: 70m}]}")
        .replace("namespace: shop", &format!("namespace: {namespace}"))
}

/// Stores a TrafficSplit as the first definition did, and brings the definitions of today back.
async fn store_as_before(cluster: &Cluster, objects: &[(&str, &str)]) {
    let name = "trafficsplits.split.smi-spec.io";
    let today = std::fs::read_to_string(definitions().join(format!("{name}.yaml"))).unwrap();
    let applied = ["apply", "--server-side", "--force-conflicts", "-f"];
    let older =
        cluster.kubectl_with(&[&applied[..], &["-"]].concat(), &older(&today).to_string()).await.unwrap();
    assert!(older.success(), "{}", older.stderr);
    let established = ["wait", "--for=condition=Established", "--timeout=30s", "crd", name];
    assert!(cluster.kubectl(&established).await.unwrap().success());
    for (namespace, name) in objects {
        cluster.apply(&first_version(namespace, name)).await.unwrap();
    }
    let directory = definitions().display().to_string();
    let today = cluster.kubectl(&[&applied[..], &[&directory]].concat()).await.unwrap();
    assert!(today.success(), "{}", today.stderr);
}

/// Without a converter the API server reads none of them, and would end no namespace with one.
async fn assert_unreadable(cluster: &Cluster) {
    let listed = cluster.kubectl(&["get", "trafficsplits", "-n", "shop"]).await.unwrap();
    assert!(listed.stderr.contains("conversion webhook"), "no converter answers: {listed:?}");
}

#[tokio::test]
async fn a_first_start_converts_what_it_waits_for() {
    let Some(programs) = shared::programs() else { return };
    // The webhooks' Service leads to an address of the host, and there is no kube-proxy.
    let api_server_flags = vec!["--enable-aggregator-routing=true".to_owned()];
    let options = ClusterOptions { api_server_flags, ..ClusterOptions::api_only(programs) };
    let cluster = Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let namespaces = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: \
                      {openservicemesh.io/monitored-by: smc}}}\n---\n\
                      {apiVersion: v1, kind: Namespace, metadata: {name: elsewhere}}";
    cluster.apply(namespaces).await.unwrap();
    store_as_before(&cluster, &[("shop", "old"), ("elsewhere", "old")]).await;
    assert_unreadable(&cluster).await;

    let control_plane = ControlPlane::start(
        &cluster,
        "{apiVersion: v1, kind: ServiceAccount, \
         metadata: {name: store, namespace: shop}}",
    )
    .await;
    let judged = || async {
        let listed = cluster.kubectl(&["get", "trafficsplits", "-n", "shop", "-o", "json"]).await;
        let list: Value = serde_json::from_str(&listed.map_err(|error| error.chain())?.stdout)
            .map_err(|error| error.to_string())?;
        // A status is written by a controller that has read the mesh.
        if list["items"][0]["status"]["observedGeneration"] == 1 { Ok(()) } else { Err(list.to_string()) }
    };
    let waited = cluster.wait("the status of the old split", Duration::from_secs(90), judged).await;
    waited.unwrap_or_else(|error| panic!("{}", error.chain()));
    let converted = get(&cluster, "trafficsplits", "old").await;
    assert_eq!(converted["spec"]["backends"][0]["weight"], 70, "{converted}");
    the_control_plane_goes(&cluster, control_plane).await;
    cluster.stop().await.unwrap();
}

/// What is left can be read and deleted, whether the control plane still converts when it goes or is lost.
async fn the_control_plane_goes(cluster: &Cluster, control_plane: ControlPlane) {
    let smc = Program { cluster, mesh: "smc", namespace: MESH_NAMESPACE };
    let uninstalled = smc.run(&["uninstall", "--wait", "0s"]).await;
    assert!(uninstalled.errors.contains("2 are stored in their present version"), "{uninstalled:#?}");
    drop(control_plane);
    // No status was ever written to it, since its namespace is in no mesh.
    let get = ["get", "-n", "elsewhere", "trafficsplit", "old", "-o", "json"];
    let left: Value = serde_json::from_str(&cluster.kubectl(&get).await.unwrap().stdout).unwrap();
    assert_eq!(left["spec"]["backends"][0]["weight"], 70, "{left}");

    store_as_before(cluster, &[("shop", "lost")]).await;
    assert_unreadable(cluster).await;
    let uninstalled = smc.run(&["uninstall", "--wait", "0s"]).await;
    assert!(
        uninstalled.errors.contains("those stored in an earlier version can be deleted"),
        "{uninstalled:#?}"
    );
    let deleted = ["delete", "namespace", "shop", "elsewhere", "--timeout=90s"];
    let deleted = cluster.kubectl(&deleted).await.unwrap();
    assert!(deleted.success(), "{}", deleted.stderr);
}
