//! Clusters without a node: an API server for tests that need no pods.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use smc_test_kubernetes::{Cluster, ClusterOptions};

use crate::shared;

#[tokio::test]
async fn several_api_servers_run_at_once_and_know_nothing_of_each_other() {
    let Some(programs) = shared::api_programs() else { return };
    let start = || Cluster::start(ClusterOptions::api_only(programs.clone()));
    let (one, other) = tokio::try_join!(start(), start()).unwrap_or_else(|error| panic!("{}", error.chain()));
    let namespaces: Api<Namespace> = Api::all(one.client().await.unwrap());
    let name = serde_json::json!({ "metadata": { "name": "mine" } });
    let made = namespaces.create(&PostParams::default(), &serde_json::from_value(name).unwrap()).await;
    assert_eq!(made.unwrap().name_any(), "mine");
    let others: Api<Namespace> = Api::all(other.client().await.unwrap());
    assert!(others.get_opt("mine").await.unwrap().is_none());
    // envtest has no controller manager.
    let components = one.components().await.unwrap();
    let all = ["etcd", "kube-apiserver", "kube-controller-manager"];
    assert!(components == all || components == all[..2], "{components:?}");
    let directory = one.state_dir().path().to_owned();
    assert!(directory.exists());
    one.stop().await.unwrap();
    assert!(!directory.exists());
    other.stop().await.unwrap();
}
