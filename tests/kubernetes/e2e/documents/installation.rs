//! The page of the installation. The three ways of installation are written beside each other, and
//! a cluster has one of them at a time.

use super::page::Page;
use super::reader::Reader;
use super::start;
use crate::shared::programs;
use crate::traffic::application;

/// One test, since its parts are steps in one cluster.
#[tokio::test]
async fn the_commands_of_the_installation_page_work_as_they_are_typed() {
    let Some(programs) = programs() else { return };
    let cluster = start(programs).await;
    let page = Page::open("install.md");
    let mut reader = Reader::of(&page).with("KUBECONFIG", cluster.kubeconfig());
    // It moves into the mesh.
    cluster.apply(&application("bookstore")).await.unwrap();

    // It builds the image, which takes an hour, and the cluster has it.
    page.leave_out("The image");
    reader.follow("With the program smc").await;
    reader.types("kubectl rollout status deployment -n bookstore --timeout=2m; sleep 5").await;
    reader.follow("Allow traffic first, then close").await;
    reader.types("grep -q 'kind: TrafficTarget' policy.yaml").await;
    reader.follow("More controllers, fewer controllers").await;
    reader.healthy().await;
    reader.follow("Key-encryption key").await;
    reader.follow("Webhooks").await;
    reader.healthy().await;
    reader.follow("Take a namespace out of the mesh").await;
    reader.follow("Upgrade and uninstall").await;
    reader.follow("For good").await;
    reader.follow("With kubectl, or GitOps").await;
    reader.healthy().await;
    reader.types("smc uninstall").await;
    reader.follow("For good").await;
    reader.follow("With helm").await;
    reader.follow("From helm to smc").await;
    reader.healthy().await;
    reader.follow("From smc to helm").await;
    reader.healthy().await;
    page.assert_done();
    cluster.stop().await.unwrap();
}
