//! The bookstore, created through the API: what policy allows and forbids, the split, TCP whose server
//! speaks first, judged by the demo's own verdict. The leader is killed on the way, and all controllers are
//! restarted in turn at the end.

use std::path::Path;
use std::time::Duration;

use smc_demo::manifests::{APPLICATIONS, WEIGHTS_BEFORE};
use smc_demo::unattended::{self, Plan};
use smc_test_kubernetes::BOOKSTORE_IMAGE;

use crate::stage::ClusterStage;
use crate::{mesh, shared};

#[tokio::test]
async fn policy_decides_between_the_pods_of_the_bookstore() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    let manifests = smc_test_kubernetes::bookstore(Path::new("../demo/mesh"), BOOKSTORE_IMAGE).unwrap();
    cluster.apply(&manifests).await.unwrap();
    for (pod, _) in APPLICATIONS {
        let (namespace, name) = pod.split_once('/').unwrap();
        mesh::wait_ready(&cluster, namespace, &[&format!("pod/{name}")]).await;
        let get = ["get", "pod", "-n", namespace, name, "-o", "jsonpath={.spec.initContainers[*].name}"];
        let containers = cluster.kubectl(&get).await.unwrap().stdout;
        assert_eq!(containers, "smc-init envoy", "{pod} has its sidecar");
    }
    let plan = Plan {
        settle_max: Duration::from_mins(1),
        window_requests: 400,
        window_max: Duration::from_mins(2),
        converge_max: Duration::from_secs(30),
        upgrade_max: Duration::from_mins(4),
        grace: Duration::from_secs(1),
    };
    let mut stage = ClusterStage::new(&cluster).await;
    let report = unattended::run(&mut stage, &plan).await;
    let report = match report {
        Ok(report) => report,
        Err(error) => panic!("{}\n{}", error.chain(), mesh::state(&cluster, "bookbuyer").await),
    };
    let text = serde_json::to_string_pretty(&report).unwrap();
    assert!(report.ok, "{text}\n{}", mesh::state(&cluster, "bookstore").await);
    assert!(report.leader_killed.is_some());
    // For the next run against this cluster.
    cluster.apply(&WEIGHTS_BEFORE.to_yaml()).await.unwrap();
    mesh::wait_rolled_out(&cluster).await;
}
