//! The page on operation: in a cluster with three controllers, whose volumes are lost between its
//! sections, and beside that on machines.

use smc_test_kubernetes::Cluster;

use super::machines::{self, machine};
use super::page::Page;
use super::reader::Reader;
use super::start;
use crate::shared::programs;

/// Pods of the mesh: one that stays, and one that is shut out.
const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: bookbuyer, namespace: bookbuyer}
spec: {containers: [{name: main, image: 'tools:test', command: [smc-lab, echo, --http, '8080']}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bookthief, namespace: bookthief}
spec: {containers: [{name: main, image: 'tools:test', command: [smc-lab, echo, --http, '8080']}]}
";

#[tokio::test]
async fn the_commands_of_the_operation_page_work_as_they_are_typed() {
    let Some(programs) = programs() else { return };
    let page = Page::open("operation.md");
    let in_a_cluster = async {
        let cluster = start(programs).await;
        operate(&page, &cluster).await;
        cluster
    };
    let (cluster, ()) = tokio::join!(in_a_cluster, machines::operate(&page));
    page.assert_done();
    cluster.stop().await.unwrap();
}

async fn operate(page: &Page, cluster: &Cluster) {
    let mut reader = Reader::of(page).with("KUBECONFIG", cluster.kubeconfig());
    let mut outside = machine(page, 10).with("KUBECONFIG", cluster.kubeconfig());
    reader.types("smc crds | kubectl apply --server-side -f -").await;
    outside.follow("The mesh from a Kubernetes API server").await;
    outside.types("smc mesh problems").await;
    outside.stop().await;

    reader.types("smc install --image registry.example/smc:0.1.0 --permissive --replicas 3").await;
    reader.types("for name in bookbuyer bookthief; do kubectl create namespace $name; smc namespace add $name; done").await;
    cluster.apply(PODS).await.unwrap();
    for name in ["bookbuyer", "bookthief"] {
        reader.types(&format!("kubectl wait pod {name} -n {name} --for=condition=Ready --timeout=2m")).await;
    }
    reader.healthy().await;

    reader.follow("Upgrading replica by replica").await;
    reader.follow("Rotating the certificate authority").await;
    reader.follow("Bootstraps, and shutting a sidecar out").await;
    reader.types("kubectl delete namespace bookthief").await;
    reader.healthy().await;
    reader.follow_blocks("Backups", 0..1).await;
    // As the page on the installation says.
    reader.types("kubectl get secret smc-kek -n smc-system -o yaml > a-safe-place/smc-kek.yaml").await;
    reader.follow("A replica whose disk is lost").await;
    reader.types("kubectl rollout status statefulset smc-controller -n smc-system --timeout=2m").await;
    reader.healthy().await;

    with_older_disks(&reader).await;
    reader.follow("When all disks are older").await;
    reader.healthy().await;

    lose(&reader, &[0, 1], "smc cluster recover").await;
    reader.follow_blocks("When a majority is lost", 0..1).await;
    reader.healthy().await;
    lose(&reader, &[0, 1, 2], "smc cluster restore").await;
    reader.follow_blocks("Backups", 1..2).await;
    // Sidecars connect again: the test on recovery waits for that, and this one after the next loss.
    reader.types("kubectl delete namespace smc-system").await;
    reader.follow_blocks("Backups", 2..3).await;
    reader.healthy().await;
    reader.follow("Changing the key-encryption key").await;
    reader.healthy().await;
    reader.follow_blocks("A group that was off for years", 1..2).await;
    reader.types("kubectl rollout status statefulset smc-controller -n smc-system --timeout=2m").await;
    // Its sidecar has a bootstrap of the former root.
    reader.types("kubectl delete namespace bookbuyer").await;
    reader.healthy().await;
}

/// Lets the record of the group say that it was further than its disks are, as where all of them were put
/// back from a copy, and waits until the check says so.
async fn with_older_disks(reader: &Reader<'_>) {
    reader.types("kubectl scale statefulset smc-controller -n smc-system --replicas=0").await;
    let controllers = "-n smc-system -l app.kubernetes.io/component=controller";
    reader.types(&format!("kubectl wait pod {controllers} --for=delete --timeout=2m")).await;
    let further = r#"{"data":{"entry":"1000000000"}}"#;
    reader
        .types(&format!("kubectl patch configmap smc-group -n smc-system --type=merge -p '{further}'"))
        .await;
    reader.types("kubectl scale statefulset smc-controller -n smc-system --replicas=3").await;
    reader.until("smc check | grep -c 'smc cluster accept-disks'").await;
}

/// Loses volumes of controllers, and their pods, and waits until the check names the command that helps.
async fn lose(reader: &Reader<'_>, ordinals: &[u8], command: &str) {
    for ordinal in ordinals {
        reader
            .types(&format!(
                "kubectl delete pvc data-smc-controller-{ordinal} -n smc-system --wait=false
                 kubectl delete pod smc-controller-{ordinal} -n smc-system --force --grace-period=0"
            ))
            .await;
    }
    reader.until(&format!("smc check | grep -c '{command}'")).await;
}
