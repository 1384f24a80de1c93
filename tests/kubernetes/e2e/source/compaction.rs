//! etcd is compacted while the source's watches are cut: 410 Gone.

use std::time::Duration;

use smc_test_kubernetes::Cluster;

use crate::shared;

use super::{Gate, NAMESPACES, Watcher, account, define, kubectl, version, with_flags};

/// How long the API server may take to compact twice. It forgets what it saw at the compaction before.
const COMPACTED: Duration = Duration::from_mins(2);

/// Waits until the API server does not know this version of the accounts any more.
async fn is_compacted(cluster: &Cluster, version: &str) {
    let exact = format!(
        "/api/v1/namespaces/shop/serviceaccounts?resourceVersion={version}&resourceVersionMatch=Exact&limit=1"
    );
    let asked = || async {
        let output = cluster.kubectl(&["get", "--raw", &exact]).await.map_err(|error| error.chain())?;
        if output.stderr.contains("too old") { Ok(()) } else { Err(format!("{output:?}")) }
    };
    let waited = cluster.wait("etcd to be compacted", COMPACTED, asked).await;
    waited.unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// Without a watch cache, a watch begins in etcd, and cannot begin before its latest compaction.
#[tokio::test(flavor = "multi_thread")]
async fn watches_that_etcd_has_compacted_are_listed_again_and_lose_nothing() {
    let flags = ["--watch-cache=false", "--etcd-compaction-interval=2s"];
    let Some(programs) = shared::api_programs() else { return };
    let cluster = with_flags(programs, &flags).await;
    define(&cluster, |_| true).await;
    cluster.apply(NAMESPACES).await.unwrap();
    cluster.apply(&(account("shop/kept") + &account("shop/gone"))).await.unwrap();
    let gate = Gate::over(cluster.client().await.unwrap());
    let mut watcher = Watcher::start(gate.clone());
    watcher.gets("ServiceAccount shop/kept").await;
    watcher.gets("ServiceAccount shop/gone").await;
    let relists = "smc_source_relists_total{kind=\"ServiceAccount\"}";
    let before = watcher.metric(relists);
    gate.close();
    kubectl(&cluster, &["delete", "-n", "shop", "serviceaccount", "gone"]).await;
    cluster.apply(&account("shop/meanwhile")).await.unwrap();
    is_compacted(&cluster, &version(&cluster).await).await;
    gate.open();
    watcher.gets("ServiceAccount shop/meanwhile").await;
    watcher.loses("ServiceAccount shop/gone").await;
    assert!(watcher.metric(relists) > before, "the watch could not go on");
    watcher.without_problems().await;
    assert!(!watcher.ever_lost("ServiceAccount shop/kept") && !watcher.ever_lost("Namespace shop"));
    // And it goes on from there.
    cluster.apply(&account("shop/after")).await.unwrap();
    watcher.gets("ServiceAccount shop/after").await;
    cluster.stop().await.unwrap();
}
