//! The page on the cluster in a box: the cluster that a person starts, asks and ends.

use std::path::Path;
use std::process::Command;

use smc_test_kubernetes::beside;

use super::page::Page;
use super::reader::Reader;
use crate::shared::{programs, variable};

#[tokio::test]
async fn the_commands_of_the_cluster_page_work_as_they_are_typed() {
    if programs().is_none() {
        return;
    }
    let page = Page::open("cluster.md");
    // `make cluster` builds everything, and starts a cluster until Ctrl-C; the second block is for
    // that one. The test `policy_decides_between_the_pods_of_the_bookstore` has the same bookstore.
    page.leave_out("SMC and the bookstore in it");
    // A person has one cluster, which has the default name; it may run beside this test.
    let name = format!("page-{}", std::process::id());
    let sudo = format!(
        "shopt -s expand_aliases
         sudo() {{ [ \"$1\" = -E ]; local program=$2 command=$3; shift 3; \"$program\" \"$command\" --name {name} \"$@\"; }}"
    );
    let mut reader = Reader::of(&page)
        .with_function(&sudo)
        .with("SMC_KUBERNETES", variable("SMC_KUBERNETES").unwrap())
        .with("SMC_ENVOY", variable("SMC_ENVOY").unwrap())
        .naming("/cluster/kubeconfig", format!("/{name}/kubeconfig"));
    built(reader.directory());
    let _ended = Ended(name);
    // The first block fetches and builds: `make` did that before this test.
    let start = "Start one";
    page.take(start, 0..1);
    reader.follow_blocks(start, 1..page.len(start)).await;
    page.assert_done();
}

/// The cluster of this name is gone at the end, also of a test that fails.
struct Ended(String);

impl Drop for Ended {
    fn drop(&mut self) {
        // Where the page has ended it, this fails.
        let down = Command::new(beside("smc-cluster").unwrap()).args(["down", "--name", &self.0]).output();
        down.unwrap();
    }
}

/// Gives a person's home what `make build` makes.
fn built(home: &Path) {
    let target = home.join(".cache/smc/target");
    std::fs::create_dir_all(&target).unwrap();
    let programs = beside("smc-cluster").unwrap().parent().unwrap().to_owned();
    std::os::unix::fs::symlink(programs, target.join("release")).unwrap();
}
