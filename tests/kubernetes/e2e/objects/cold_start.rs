//! A first start over objects that an older definition stored: nothing is served until they are converted,
//! and the replica that waits for them converts them.

use std::time::Duration;

use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, ClusterOptions};

use super::control_plane::ControlPlane;
use super::{definitions, get, split};
use crate::shared;

/// The definition of TrafficSplit in a chart's file, as OSM's was: v1alpha2 is stored, nothing is converted.
fn older(definition: &str) -> Value {
    let mut older: Value = serde_saphyr::from_str(definition).unwrap();
    let spec = &mut older["spec"];
    spec["conversion"] = json!({"strategy": "None"});
    for version in spec["versions"].as_array_mut().unwrap() {
        version["storage"] = json!(version["name"] == "v1alpha2");
    }
    older
}

#[tokio::test]
async fn a_first_start_converts_what_it_waits_for() {
    let Some(programs) = shared::api_programs() else { return };
    // The webhooks' Service leads to an address of the host, and there is no kube-proxy.
    let api_server_flags = vec!["--enable-aggregator-routing=true".to_owned()];
    let options = ClusterOptions { api_server_flags, ..ClusterOptions::api_only(programs) };
    let cluster = Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let name = "trafficsplits.split.smi-spec.io";
    let today = std::fs::read_to_string(definitions().join(format!("{name}.yaml"))).unwrap();
    cluster.apply(&older(&today).to_string()).await.unwrap();
    let established = ["wait", "--for=condition=Established", "--timeout=30s", "crd", name];
    assert!(cluster.kubectl(&established).await.unwrap().success());
    cluster
        .apply(
            "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {openservicemesh.io/monitored-by: smc}}}",
        )
        .await
        .unwrap();
    let stored = split("v1alpha2", "old", "{service: store, backends: [{service: v1, weight: 70}]}");
    cluster.apply(&stored).await.unwrap();
    let directory = definitions().display().to_string();
    let applied = cluster.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &directory]).await;
    let applied = applied.unwrap();
    assert!(applied.success(), "{}", applied.stderr);
    let listed = cluster.kubectl(&["get", "trafficsplits", "-n", "shop"]).await.unwrap();
    assert!(listed.stderr.contains("conversion webhook"), "nobody converts yet: {listed:?}");

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
    drop(control_plane);
    cluster.stop().await.unwrap();
}
