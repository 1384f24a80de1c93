//! Objects that are hard to read, of every kind, in the mesh and outside of it: each costs itself alone.
//!
//! Meanwhile another tenant takes back an object of every kind, and a replica starts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::json;
use smc_test_kubernetes::{Cluster, create_all};
use smc_types::object_ref::Kind;

use crate::shared;

use super::every_kind::{in_mesh, in_namespaces, namespace, object, reference};
use super::hostile_objects::{Hostile, OBJECT_BYTES, SHAPES, of_metadata, of_shape};
use super::witness::{Deletions, reads_everything};
use super::{Gate, Watcher, alone, lenient};

/// How long a change takes once the API server has said it, hostile objects or not: two seconds, and what a
/// busy machine adds.
const USUAL: Duration = Duration::from_secs(5);

/// How long a start may take after another client that began with it has read everything.
const START: Duration = Duration::from_secs(20);

/// A mesh with a tenant and a running source, and namespaces for what is hostile.
struct Scene {
    cluster: Cluster,
    client: Client,
    watcher: Watcher,
    objects: BTreeSet<String>,
}

impl Scene {
    async fn begin() -> Option<Self> {
        let cluster = lenient(shared::api_programs()?).await;
        let client = cluster.client().await.unwrap();
        let spaces = [("own", json!({})), ("shop", in_mesh()), ("inside", in_mesh()), ("outside", json!({}))];
        create_all(&client, spaces.map(|(name, labels)| namespace(name, labels)).into()).await.unwrap();
        create_all(&client, in_namespaces().map(|kind| object(kind, "shop", "kept")).collect())
            .await
            .unwrap();
        let mut objects = BTreeSet::from(["Namespace shop".to_owned(), "Namespace inside".to_owned()]);
        objects.extend(in_namespaces().map(|kind| reference(kind, "shop", "kept")));
        let mut watcher = Watcher::start(Gate::over(client.clone()));
        watcher.becomes_eventually(&objects, "without hostile objects").await;
        Some(Self { cluster, client, watcher, objects })
    }

    /// Asserts that these objects harm no other one.
    async fn is_unharmed_by(&mut self, hostile: &[Hostile], deep: bool, when: &str) {
        let gone: Vec<_> = in_namespaces().map(|kind| object(kind, "shop", "gone")).collect();
        create_all(&self.client, gone.clone()).await.unwrap();
        let mut with = self.objects.clone();
        with.extend(in_namespaces().map(|kind| reference(kind, "shop", "gone")));
        self.watcher.becomes_eventually(&with, when).await;

        // One after the other: a write ends after 34 s, and the deepest objects take an API server seconds
        // each.
        for hostile in hostile {
            create(&self.client, hostile).await;
        }
        let deletions = Deletions::of(&self.client, in_namespaces(), "shop", "gone").await;
        self.watcher.may_have(hostile.iter().map(Hostile::reference));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": gone});
        let delete = ["delete", "--grace-period=0", "--force", "-f", "-"];
        let deleted = self.cluster.kubectl_with(&delete, &list.to_string()).await.unwrap();
        assert!(deleted.success(), "{when}: {deleted:?}");
        deletions.arrive().await;
        self.watcher.becomes_within(USUAL, &self.objects, when).await;
        accounts_for(&mut self.watcher, hostile, deep, when).await;

        let mut fresh = Watcher::start(Gate::over(self.client.clone()));
        fresh.may_have(hostile.iter().map(Hostile::reference));
        reads_everything(&self.client).await;
        fresh.first_within(START, when).await;
        fresh.assert_is(&self.objects, when);
        accounts_for(&mut fresh, hostile, deep, when).await;
        fresh.stop().await;

        for hostile in hostile {
            delete_all(&self.client, hostile.path()).await;
        }
        self.watcher.may_have([]);
        self.watcher.becomes_eventually(&self.objects, when).await;
    }
}

/// Asserts that each of the objects in the mesh is read, or is a problem that names it; of one that no reader
/// with a bound reads, one problem. Those outside of the mesh are nothing.
async fn accounts_for(watcher: &mut Watcher, hostile: &[Hostile], deep: bool, when: &str) {
    for hostile in hostile {
        let name = hostile.reference();
        if hostile.namespace == "outside" {
            assert!(!watcher.has(&name) && watcher.problems_of(&name) == 0, "{when}: {name}");
            continue;
        }
        watcher.accounts_within(USUAL, &name, when).await;
        if deep {
            assert_eq!(watcher.problems_of(&name), 1, "{when}: {name}: {}", watcher.problems());
        }
    }
}

/// Creates an object, which an API server takes.
async fn create(client: &Client, hostile: &Hostile) {
    if let Some(refusal) = refusal(client, hostile).await {
        panic!("{}: {refusal}", hostile.reference());
    }
}

/// Creates an object, and returns why the API server refuses it. Its text is written and its answer read as
/// they are, since readers have bounds.
///
/// The client asks again where the API server took too long, and finds its own object.
async fn refusal(client: &Client, hostile: &Hostile) -> Option<String> {
    let request = Request::post(hostile.path()).header("content-type", "application/json");
    let created = client.request_text(request.body(hostile.text.clone().into_bytes()).unwrap()).await;
    let exists =
        |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_already_exists());
    let error = created.err().filter(|error| !exists(error))?;
    Some(error.to_string().chars().take(500).collect())
}

/// How often a deletion is asked for: each one goes on where the one before was cut.
const DELETIONS: usize = 5;

/// Deletes all objects at a path, without grace.
///
/// An API server answers with all that it has deleted, and where this takes more than a minute, it cuts the
/// connection in the middle of its answer.
async fn delete_all(client: &Client, path: String) {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    for asked in 1.. {
        let request = Request::delete(&path).header("content-type", "application/json");
        let request = request.body(options.to_string().into_bytes()).unwrap();
        match client.request_text(request).await {
            Err(kube::Error::Service(_)) if asked < DELETIONS => {}
            deleted => {
                deleted.unwrap();
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_hard_to_read_costs_itself_alone() {
    let Some(mut scene) = Scene::begin().await else { return };
    for shape in SHAPES {
        let hostile: Vec<_> = ["outside", "inside"]
            .into_iter()
            .flat_map(|space| of_shape(shape, space, OBJECT_BYTES))
            .collect();
        scene.is_unharmed_by(&hostile, shape.is_deep(), &format!("{shape:?}")).await;
    }
    let hostile: Vec<_> = ["outside", "inside"].into_iter().flat_map(of_metadata).collect();
    scene.is_unharmed_by(&hostile, false, "metadata").await;
    scene.cluster.stop().await.unwrap();
}

/// Bytes of an object of which nothing hostile is left: its other fields, and what the API server notes.
const HARMLESS_BYTES: u64 = 4096;

/// Bytes of an object that may be refused. An API server looks for everything that is wrong with an object,
/// and does so for minutes in a MiB with a hundred thousand wrong entries; after 34 s it says something else.
const REFUSED_BYTES: usize = 16 * 1024;

/// In what the definitions leave out, nothing is stored, and what they have has types.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_hard_to_read_is_not_stored_in_what_the_definitions_say() {
    let Some(programs) = shared::api_programs() else { return };
    let cluster = alone(programs, &[]).await;
    let client = cluster.client().await.unwrap();
    create_all(&client, vec![namespace("own", json!({})), namespace("inside", in_mesh())]).await.unwrap();
    let mut refused = BTreeSet::new();
    for shape in SHAPES {
        for hostile in of_shape(shape, "inside", REFUSED_BYTES) {
            if let Some(refusal) = refusal(&client, &hostile).await {
                assert!(refusal.contains("spec.matches[0].headers"), "{shape:?}: {refusal}");
                refused.insert(format!("{shape:?} {}", hostile.kind));
                continue;
            }
            let request = Request::get(format!("{}/{}", hostile.path(), hostile.name));
            let stored = client.request_text(request.body(Vec::new()).unwrap()).await.unwrap();
            let bytes = stored.len() as u64;
            assert!(bytes < HARMLESS_BYTES, "{shape:?} {}: {bytes} bytes", hostile.reference());
            delete_all(&client, hostile.path()).await;
        }
    }
    // What is neither a map nor a list of maps. The other fields are dropped.
    let groups = SHAPES.map(|shape| format!("{shape:?} {}", Kind::HttpRouteGroup));
    assert_eq!(refused, groups.into());
    cluster.stop().await.unwrap();
}

/// How many objects of what size are more than a page may have.
const LARGE: usize = 200;
const LARGE_BYTES: usize = 400 * 1024;

/// Without streaming lists, pages hold 500 objects of any size. Half of these are outside of the mesh.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_objects_arrives_in_parts() {
    let Some(programs) = shared::api_programs() else { return };
    let cluster = alone(programs, &["--feature-gates=WatchList=false"]).await;
    let client = cluster.client().await.unwrap();
    let spaces = [("own", json!({})), ("inside", in_mesh()), ("outside", json!({}))];
    create_all(&client, spaces.map(|(name, labels)| namespace(name, labels)).into()).await.unwrap();
    let large = |number: usize| {
        let space = if number.is_multiple_of(2) { "inside" } else { "outside" };
        let mut large = object(Kind::Telemetry, space, &format!("large-{number}"));
        let attributes: BTreeMap<_, _> =
            (0..LARGE_BYTES / 4096).map(|number| (number.to_string(), "x".repeat(4096))).collect();
        large["spec"]["accessLog"]["openTelemetry"] = json!({
            "attributes": attributes, "extensionService": {"namespace": "inside", "name": "otel"},
        });
        large
    };
    // A few at once, each of which the API server holds several times.
    for number in 0..LARGE / 10 {
        create_all(&client, (0..10).map(|part| large(10 * number + part)).collect()).await.unwrap();
    }
    let mut objects: BTreeSet<String> = (0..LARGE)
        .step_by(2)
        .map(|number| reference(Kind::Telemetry, "inside", &format!("large-{number}")))
        .collect();
    objects.insert("Namespace inside".to_owned());
    let mut watcher = Watcher::start(Gate::over(client.clone()));
    reads_everything(&client).await;
    watcher.first_within(START, "pages").await;
    watcher.assert_is(&objects, "pages");
    create_all(&client, vec![object(Kind::Telemetry, "inside", "late")]).await.unwrap();
    objects.insert(reference(Kind::Telemetry, "inside", "late"));
    watcher.becomes_eventually(&objects, "after the pages").await;
    cluster.stop().await.unwrap();
}
