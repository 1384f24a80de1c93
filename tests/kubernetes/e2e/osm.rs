//! Applications and policy in the forms that users of Open Service Mesh write: they work as they are.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::mesh::{self, SETTLE};
use crate::shared;
use crate::traffic::{Fetched, lab};

const MANIFESTS: &str = include_str!("osm.yaml");

/// Requests of which each version of the store answers one, but for one in 2^59 runs.
const ENOUGH: &str = "60";

#[tokio::test]
async fn what_osm_users_write_works_as_it_is() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    cluster.apply(MANIFESTS).await.unwrap();
    mesh::wait_ready(&cluster, "osm-shop", &["pod", "--all"]).await;
    let store = |path: &str| format!("http://store.osm-shop:14001{path}");
    let post = ["--method", "POST"];
    let marked = ["-H", "client-app: buyer", "-H", "user-agent: Go-http-client/1.1"];
    let rows: [(&str, String, &[&str], Option<u64>); 9] = [
        ("buyer", store("/bought"), &marked, Some(200)),
        ("buyer", store("/bought"), &[], Some(403)),
        ("buyer", store("/buy/a-book/new"), &[], Some(200)),
        ("buyer", store("/update"), &post, Some(403)),
        ("thief", store("/buy/a-book/new"), &[], None),
        ("thief", store("/bought"), &marked, None),
        ("buyer", store("/bought"), &marked[..2], Some(403)),
        ("deploy/store-v1", "http://store-v2.osm-shop:14001/any".to_owned(), &post, Some(200)),
        ("deploy/store-v1", "http://store-v2.osm-shop:14001/any".to_owned(), &[], Some(403)),
    ];
    for (from, url, flags, expected) in rows {
        let args = [&["fetch", "--url", &url], flags].concat();
        let as_expected = || async {
            let fetched = lab(&cluster, &format!("osm-shop/{from}"), &[], &args).await?;
            let fits = fetched.iter().all(|result| result.status() == expected);
            if fits { Ok(()) } else { Err(format!("{fetched:?}")) }
        };
        let waited = cluster.wait(&format!("{expected:?} for {from} {url}"), SETTLE, as_expected).await;
        if let Err(error) = waited {
            panic!("{}\n{}", error.chain(), mesh::state(&cluster, "osm-shop").await);
        }
    }
    let url = store("/buy/a-book/new");
    let many = ["fetch", "--count", ENOUGH, "--url", &url];
    let fetched = lab(&cluster, "osm-shop/buyer", &[], &many).await.unwrap();
    let pods: BTreeSet<&str> = fetched.iter().map(Fetched::pod).collect();
    assert_eq!(pods.len(), 2, "the split of an older version divides: {pods:?}");
    let tcp = ["exec", "-n", "osm-shop", "buyer", "--", "smc-lab", "tcp", "--read-first", "--send", "hello"];
    let spoken = cluster.kubectl(&[&tcp[..], &["ledger.osm-shop:3306"]].concat()).await.unwrap();
    assert!(spoken.success() && spoken.stdout.contains("hello"), "the server speaks first: {spoken:?}");
    let split = ["get", "trafficsplits.v1alpha2.split.smi-spec.io", "-n", "osm-shop", "store", "-o", "json"];
    let split: Value = serde_json::from_str(&cluster.kubectl(&split).await.unwrap().stdout).unwrap();
    assert_eq!(split["spec"]["service"], "store.osm-shop", "{split}");
}
