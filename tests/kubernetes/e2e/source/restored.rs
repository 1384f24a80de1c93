//! etcd is put back to an older copy: what was given since is taken, and what was taken since is there again.
//!
//! The versions of all kinds go back with it. A watch that goes on from a version that the API server has not
//! come to yet says nothing until then, and nothing afterwards of what happened before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use smc_mesh::catalog::Object;
use smc_test_kubernetes::{Cluster, EtcdCopy, create_all};
use smc_types::object_ref::Kind;

use crate::shared;

use super::every_kind::{in_mesh, in_namespaces, mesh_config, namespace, object, reference};
use super::witness::reads_everything;
use super::{Gate, Watcher, account, alone, kubectl, version};

/// Counts how often the source noticed that the API server went back.
const RESTORED: &str = "smc_source_restored_total";

/// What the problem says that is there for a while afterwards.
const WENT_BACK: &str = "went back";

/// How long the source may take once the API server answers again, to another client, too: two seconds, and
/// what a busy machine adds.
const SOON: Duration = Duration::from_secs(5);

/// How many versions pass between the copy and its return: more than an API server's own start takes.
const VERSIONS: usize = 600;

const CONFIG: &str = "MeshConfig own/osm-mesh-config";

/// When the mesh's configuration, of which there is one, is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Config {
    /// It is in the copy, and is deleted later.
    Deleted,
    /// It is made after the copy.
    Made,
}

/// A mesh of which a copy was made, and in which everything changed since.
struct Story {
    cluster: Cluster,
    client: Client,
    gate: Gate,
    watcher: Watcher,
    copy: EtcdCopy,
    /// What there was at the time of the copy.
    copied: BTreeMap<String, Object>,
    /// What there was then, and stayed.
    stayed: BTreeSet<String>,
    /// The version that the API server had come to before the copy was put back.
    latest: u64,
}

impl Story {
    async fn begin(config: Config) -> Option<Self> {
        let cluster = alone(shared::api_programs()?, &[]).await;
        let client = cluster.client().await.unwrap();
        let spaces = [("own", json!({})), ("shop", in_mesh()), ("left", in_mesh()), ("entered", json!({}))];
        create_all(&client, spaces.map(|(name, labels)| namespace(name, labels)).into()).await.unwrap();
        let names = [("shop", "kept"), ("shop", "deleted"), ("left", "kept"), ("entered", "kept")];
        let of_all_kinds = |(space, name)| in_namespaces().map(move |kind| object(kind, space, name));
        let mut objects: Vec<Value> = names.into_iter().flat_map(of_all_kinds).collect();
        let mut copied = BTreeSet::from(["Namespace shop".to_owned(), "Namespace left".to_owned()]);
        for (space, name) in &names[..3] {
            copied.extend(in_namespaces().map(|kind| reference(kind, space, name)));
        }
        if config == Config::Deleted {
            objects.push(mesh_config());
            copied.insert(CONFIG.to_owned());
        }
        create_all(&client, objects).await.unwrap();
        let gate = Gate::over(client.clone());
        let mut watcher = Watcher::start(gate.clone());
        watcher.becomes_eventually(&copied, "before the copy").await;
        let contents = watcher.objects().clone();
        let copy = cluster.copy_etcd().await.unwrap();
        let now = change(&cluster, &client, config, copied.clone()).await;
        watcher.becomes_eventually(&now, "after the copy").await;
        let stayed = copied.intersection(&now).cloned().collect();
        let latest = version(&cluster).await.parse().unwrap();
        Some(Self { cluster, client, gate, watcher, copy, copied: contents, stayed, latest })
    }

    /// Asserts that the source soon has what the copy has, and lost nothing on the way that stayed.
    async fn is_as_copied(&mut self, when: &str) {
        reads_everything(&self.client).await;
        self.watcher.returns_within(SOON, &self.copied, when).await;
        let lost: Vec<_> = self.watcher.removed().intersection(&self.stayed).collect();
        assert!(lost.is_empty(), "{when}: {lost:?} were missing for a moment");
        // So has a source that knows of no time before.
        let mut fresh = Watcher::start(Gate::over(self.client.clone()));
        fresh.first().await;
        assert_eq!(fresh.objects(), self.watcher.objects(), "{when}");
    }

    /// Asserts that changes arrive as ever.
    async fn goes_on(&mut self, when: &str) {
        let gone = "TrafficTarget shop/kept";
        kubectl(&self.cluster, &["delete", "-n", "shop", "traffictarget", "kept"]).await;
        self.cluster.apply(&account("shop/later")).await.unwrap();
        let mut objects: BTreeSet<String> = self.copied.keys().cloned().collect();
        objects.remove(gone);
        objects.insert("ServiceAccount shop/later".to_owned());
        self.watcher.becomes_within(SOON, &objects, when).await;
        // The API server that came back may yet end a watch, which the source then begins again.
        self.watcher.is_current(when).await;
    }
}

/// Something of each kind changes: one object goes, one comes, one namespace leaves and one enters. Returns
/// what there is then, of the mesh.
async fn change(
    cluster: &Cluster,
    client: &Client,
    config: Config,
    mut now: BTreeSet<String>,
) -> BTreeSet<String> {
    let (mut gone, mut made) = (Vec::new(), history("before", VERSIONS));
    for kind in in_namespaces() {
        gone.push(object(kind, "shop", "deleted"));
        made.push(object(kind, "shop", "made"));
        now.remove(&reference(kind, "shop", "deleted"));
        now.insert(reference(kind, "shop", "made"));
        now.remove(&reference(kind, "left", "kept"));
        now.insert(reference(kind, "entered", "kept"));
    }
    match config {
        Config::Deleted => {
            gone.push(mesh_config());
            now.remove(CONFIG);
        }
        Config::Made => {
            made.push(mesh_config());
            now.insert(CONFIG.to_owned());
        }
    }
    now.remove("Namespace left");
    now.insert("Namespace entered".to_owned());
    create_all(client, made).await.unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": gone});
    let delete = ["delete", "--grace-period=0", "--force", "-f", "-"];
    let deleted = cluster.kubectl_with(&delete, &list.to_string()).await.unwrap();
    assert!(deleted.success(), "{deleted:?}");
    // What stays is given to another one.
    let mut target = object(Kind::TrafficTarget, "shop", "kept");
    target["spec"]["sources"][0]["name"] = "thief".into();
    cluster.apply(&target.to_string()).await.unwrap();
    kubectl(cluster, &["label", "namespace", "left", "openservicemesh.io/monitored-by-"]).await;
    kubectl(cluster, &["label", "namespace", "entered", "openservicemesh.io/monitored-by=smc"]).await;
    now
}

/// Objects that the mesh does not read, which take a version each.
fn history(name: &str, versions: usize) -> Vec<Value> {
    let object = |number| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("{name}-{number}"), "namespace": "own"}})
    };
    (0..versions).map(object).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_takes_back_what_was_made_since() {
    let Some(mut story) = Story::begin(Config::Deleted).await else { return };
    story.cluster.put_back(&story.copy).await.unwrap();
    story.is_as_copied("restored").await;
    story.watcher.has_reported(WENT_BACK).await;
    assert!(story.watcher.metric(RESTORED) >= 1);
    assert!(version(&story.cluster).await.parse::<u64>().unwrap() < story.latest);
    story.goes_on("with versions below the old ones").await;
    create_all(&story.client, history("after", 2 * VERSIONS)).await.unwrap();
    assert!(version(&story.cluster).await.parse::<u64>().unwrap() > story.latest);
    story.watcher.watch_for(Duration::from_secs(1)).await;
    story.cluster.apply(&account("shop/last")).await.unwrap();
    story.watcher.gets("ServiceAccount shop/last").await;
    assert!(!story.watcher.has(&reference(Kind::Pod, "shop", "made")));
    story.cluster.stop().await.unwrap();
}

/// When the source reaches the API server again, no version tells that it went back.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_that_has_overtaken_is_read_again() {
    let Some(mut story) = Story::begin(Config::Made).await else { return };
    story.gate.close();
    story.cluster.put_back(&story.copy).await.unwrap();
    create_all(&story.client, history("after", 2 * VERSIONS)).await.unwrap();
    assert!(version(&story.cluster).await.parse::<u64>().unwrap() > story.latest);
    story.gate.open();
    story.is_as_copied("overtaken").await;
    story.goes_on("overtaken").await;
    story.cluster.stop().await.unwrap();
}
