//! What the store makes of lists and events.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use smc_types::ids::MeshName;

use super::*;
use crate::decode::manifest::Origin;

mod model;

/// The kinds of a small API server.
const KINDS: [Kind; 4] = [Kind::Namespace, Kind::ServiceAccount, Kind::TrafficTarget, Kind::MeshConfig];

/// A store, and the events that it has sent.
struct Mesh {
    store: Store,
}

fn store() -> Store {
    let rules = Rules::api_server(MeshName::default());
    Store::new(rules, MeshNamespace::new("own").unwrap(), KINDS.into_iter())
}

fn ended(version: u64) -> Ended {
    Ended { version: Version::new(&version.to_string()), complete: true }
}

fn account(name: &str, version: u64) -> Value {
    let (namespace, name) = name.split_once('/').unwrap();
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": version.to_string()}})
}

fn namespace_object(name: &str, mesh: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
        "labels": {"openservicemesh.io/monitored-by": mesh}, "resourceVersion": version.to_string()}})
}

fn config(namespace: &str) -> Value {
    json!({"apiVersion": "config.openservicemesh.io/v1alpha2", "kind": "MeshConfig",
        "metadata": {"name": "osm-mesh-config", "namespace": namespace, "resourceVersion": "1"}, "spec": {}})
}

impl Mesh {
    fn new() -> Self {
        Self { store: store() }
    }

    /// After a first look at the namespace `shop` and these accounts.
    fn synced(accounts: &[&str]) -> Self {
        let mut mesh = Self::new();
        mesh.list(Kind::Namespace, 10, &[namespace_object("shop", "smc", 1)]);
        let accounts: Vec<Value> = accounts.iter().map(|name| account(name, 2)).collect();
        mesh.list(Kind::ServiceAccount, 10, &accounts);
        mesh.list(Kind::TrafficTarget, 10, &[]);
        mesh.list(Kind::MeshConfig, 10, &[]);
        for kind in KINDS {
            mesh.followed(kind, true);
        }
        mesh
    }

    fn followed(&mut self, kind: Kind, followed: bool) {
        self.store.apply(kind, Change::Followed(followed));
    }

    fn scope(&self) -> Arc<Scope> {
        self.store.scope().cloned().unwrap_or_default()
    }

    fn list(&mut self, kind: Kind, version: u64, objects: &[Value]) {
        let scope = self.scope();
        self.store.apply(kind, Change::ListBegun);
        for object in objects {
            self.store.apply(kind, Change::Listed(Ok(object.clone())));
        }
        self.store.apply(kind, Change::ListEnded(ended(version), scope));
    }

    /// Lists a namespace, as it is in the mesh now.
    fn list_in(&mut self, kind: Kind, namespace: &str, version: u64, objects: &[Value]) {
        let entry = self.scope().get(namespace).copied().unwrap_or_default();
        self.store.apply(kind, Change::ListBegun);
        for object in objects {
            self.store.apply(kind, Change::Listed(Ok(object.clone())));
        }
        self.store.apply(kind, Change::NamespaceEnded(ended(version), namespace.to_owned(), entry));
    }

    fn applied(&mut self, kind: Kind, object: Value) {
        self.store.apply(kind, Change::Applied(Ok(object)));
    }

    fn deleted(&mut self, kind: Kind, object: Value) {
        self.store.apply(kind, Change::Deleted(Ok(object)));
    }

    /// The events of the next batch: `+` for an object, `-` for one that is gone. `None` without a batch, and
    /// for a later one that only says how far the API server has come.
    fn next(&mut self) -> Option<Vec<String>> {
        let (first, before) = (self.store.said.is_none(), self.store.findings.list().to_vec());
        let batch = self.store.batch(&[])?;
        assert!(batch.synced);
        if batch.events.is_empty() && !first && batch.problems == before {
            return None;
        }
        let show = |event: &SourceEvent| match event {
            SourceEvent::Upsert(object) => format!("+{}", object.reference()),
            SourceEvent::Remove(reference) => format!("-{reference}"),
        };
        Some(batch.events.iter().map(show).collect())
    }

    /// The revision of the next batch: of the latest change, and up to which everything is known.
    fn revision(&mut self) -> Option<(u64, u64)> {
        let revision = self.store.batch(&[])?.revision?;
        Some((revision.changed, revision.known))
    }

    fn problems(&mut self) -> Vec<String> {
        self.store.set_changed();
        let _ = self.store.batch(&[]);
        self.store.findings.list().iter().map(ToString::to_string).collect()
    }
}

#[test]
fn nothing_is_sent_before_every_kind_was_listed() {
    let mut mesh = Mesh::new();
    mesh.list(Kind::Namespace, 10, &[namespace_object("shop", "smc", 1), namespace_object("x", "osm", 1)]);
    mesh.list(Kind::ServiceAccount, 10, &[account("shop/a", 2), account("x/b", 2)]);
    mesh.list(Kind::TrafficTarget, 10, &[]);
    assert!(!mesh.store.has_news() && mesh.next().is_none());
    mesh.list(Kind::MeshConfig, 10, &[config("own"), config("shop")]);
    assert!(mesh.store.has_news());
    assert_eq!(
        mesh.next().unwrap(),
        ["+Namespace shop", "+ServiceAccount shop/a", "+MeshConfig own/osm-mesh-config"]
    );
    assert!(mesh.next().is_none(), "no news");
}

#[test]
fn an_empty_cluster_is_one_empty_batch() {
    let mut mesh = Mesh::new();
    for kind in KINDS {
        mesh.list(kind, 1, &[]);
    }
    assert_eq!(mesh.next(), Some(Vec::new()));
    assert_eq!(mesh.next(), None);
}

#[test]
fn a_batch_says_how_far_the_api_server_had_come_with_the_mesh() {
    let mut mesh = Mesh::synced(&["shop/a", "shop/b"]);
    assert_eq!(mesh.revision(), Some((2, 10)), "objects have their own versions, and the lists are of 10");
    mesh.applied(Kind::ServiceAccount, account("shop/c", 11));
    assert_eq!(mesh.revision(), Some((11, 11)));
    mesh.applied(Kind::ServiceAccount, account("elsewhere/c", 12));
    mesh.applied(Kind::ServiceAccount, account("shop/c", 13));
    assert!(mesh.store.batch(&[]).is_none(), "of another mesh, and without a difference");
    mesh.deleted(Kind::ServiceAccount, account("shop/b", 14));
    assert_eq!(mesh.revision(), Some((14, 14)), "no list shows what a deletion was");
    mesh.list(Kind::ServiceAccount, 20, &[account("shop/a", 2), account("shop/c", 13)]);
    mesh.applied(Kind::ServiceAccount, account("shop/d", 19));
    assert!(mesh.store.batch(&[]).is_none(), "repeated");
    mesh.list(Kind::ServiceAccount, 30, &[]);
    assert_eq!(mesh.revision(), Some((14, 14)), "the list of one kind says nothing of the others");
    mesh.list(Kind::Namespace, 28, &[namespace_object("shop", "smc", 1)]);
    mesh.list(Kind::TrafficTarget, 28, &[]);
    mesh.list(Kind::MeshConfig, 29, &[]);
    assert_eq!(mesh.revision(), Some((14, 28)));
}

#[test]
fn nothing_is_known_beyond_a_kind_whose_watch_was_lost() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.applied(Kind::ServiceAccount, account("shop/b", 20));
    assert_eq!(mesh.revision(), Some((20, 20)));
    mesh.followed(Kind::TrafficTarget, false);
    mesh.followed(Kind::ServiceAccount, false);
    assert_eq!(mesh.revision(), Some((20, 10)), "other replicas may know of a later TrafficTarget");
    mesh.followed(Kind::ServiceAccount, true);
    mesh.applied(Kind::ServiceAccount, account("shop/c", 30));
    assert_eq!(mesh.revision(), Some((30, 10)));
    mesh.followed(Kind::TrafficTarget, true);
    assert_eq!(mesh.revision(), Some((30, 30)), "said although nothing else is new");
    assert_eq!(mesh.revision(), None);
}

#[test]
fn events_that_are_known_already_are_no_news() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    mesh.applied(Kind::ServiceAccount, account("shop/old", 9));
    assert_eq!(mesh.next(), None, "the list at version 10 did not have it");
    mesh.applied(Kind::ServiceAccount, account("shop/b", 11));
    mesh.deleted(Kind::ServiceAccount, account("shop/b", 12));
    mesh.applied(Kind::ServiceAccount, account("shop/b", 11));
    assert_eq!(mesh.next(), None, "it is gone, although the server repeats itself");
    mesh.deleted(Kind::ServiceAccount, account("shop/a", 5));
    assert_eq!(mesh.next(), None, "another one of that name was deleted, earlier");
    mesh.deleted(Kind::ServiceAccount, account("shop/a", 13));
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/a"]);
    mesh.applied(Kind::ServiceAccount, account("shop/a", 14));
    mesh.deleted(Kind::ServiceAccount, account("shop/a", 15));
    mesh.applied(Kind::ServiceAccount, account("shop/a", 16));
    assert_eq!(mesh.next().unwrap(), ["+ServiceAccount shop/a"]);
}

#[test]
fn a_list_removes_what_it_does_not_name() {
    let mut mesh = Mesh::synced(&["shop/a", "shop/b"]);
    mesh.next();
    mesh.list(Kind::ServiceAccount, 20, &[account("shop/b", 2), account("shop/c", 15)]);
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/a", "+ServiceAccount shop/c"]);
    // A server that was restored from a backup begins to count again.
    mesh.list(Kind::ServiceAccount, 5, &[account("shop/b", 2)]);
    mesh.applied(Kind::ServiceAccount, account("shop/d", 6));
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/c", "+ServiceAccount shop/d"]);
}

#[test]
fn a_list_with_an_object_that_cannot_be_read_removes_nothing() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    let scope = mesh.scope();
    mesh.store.apply(Kind::ServiceAccount, Change::ListBegun);
    let incomplete = Ended { complete: false, ..ended(20) };
    mesh.store.apply(Kind::ServiceAccount, Change::ListEnded(incomplete, scope));
    assert_eq!(mesh.next(), None);
}

#[test]
fn a_namespace_enters_and_leaves_as_one() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    mesh.applied(Kind::Namespace, namespace_object("more", "smc", 11));
    mesh.applied(Kind::ServiceAccount, account("more/x", 12));
    assert_eq!(mesh.next(), None, "its other kinds were not listed");
    mesh.list_in(Kind::ServiceAccount, "more", 12, &[account("more/w", 3), account("more/x", 12)]);
    assert_eq!(mesh.next(), None);
    mesh.list_in(Kind::TrafficTarget, "more", 12, &[]);
    let all = ["+Namespace more", "+ServiceAccount more/w", "+ServiceAccount more/x"];
    assert_eq!(mesh.next().unwrap(), all);
    mesh.applied(Kind::ServiceAccount, account("more/w", 12));
    assert_eq!(mesh.next(), None, "the list was later");
    mesh.applied(Kind::Namespace, namespace_object("more", "osm", 13));
    let gone = ["-Namespace more", "-ServiceAccount more/w", "-ServiceAccount more/x"];
    assert_eq!(mesh.next().unwrap(), gone);
    mesh.applied(Kind::ServiceAccount, account("more/y", 14));
    assert_eq!(mesh.next(), None, "it is of no mesh");
}

#[test]
fn a_namespace_that_enters_again_is_listed_again() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    let before = mesh.scope();
    mesh.applied(Kind::Namespace, namespace_object("shop", "osm", 11));
    mesh.applied(Kind::Namespace, namespace_object("shop", "smc", 12));
    assert_ne!(before, mesh.scope());
    assert_eq!(mesh.next(), None, "what was sent stays until the namespace was listed");
    // A list that began before says nothing about it.
    mesh.store.apply(Kind::ServiceAccount, Change::ListEnded(ended(12), before));
    mesh.list_in(Kind::TrafficTarget, "shop", 13, &[]);
    assert_eq!(mesh.next(), None);
    mesh.list_in(Kind::ServiceAccount, "shop", 13, &[account("shop/b", 2)]);
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/a", "+Namespace shop", "+ServiceAccount shop/b"]);
}

#[test]
fn a_kind_that_is_missing_is_one_problem_and_the_rest_is_sent() {
    let mut mesh = Mesh::new();
    mesh.list(Kind::Namespace, 10, &[namespace_object("shop", "smc", 1)]);
    mesh.list(Kind::ServiceAccount, 10, &[account("shop/a", 2)]);
    mesh.list(Kind::MeshConfig, 10, &[]);
    let others = BTreeSet::from(["access.smi-spec.io/v1alpha2".to_owned()]);
    mesh.store.apply(Kind::TrafficTarget, Change::Missing(others));
    assert_eq!(mesh.next().unwrap(), ["+Namespace shop", "+ServiceAccount shop/a"]);
    assert_eq!(
        mesh.problems(),
        ["warning: Kubernetes API: does not serve TrafficTarget (access.smi-spec.io/v1alpha3), only \
          access.smi-spec.io/v1alpha2; install its definition; until then, there are no such objects"]
    );
    mesh.list(Kind::TrafficTarget, 11, &[]);
    assert_eq!(mesh.problems(), Vec::<String>::new());
}

#[test]
fn what_many_kinds_have_in_common_is_one_problem() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    for kind in KINDS {
        mesh.store.apply(kind, Change::Trouble(Some(Trouble::Forbidden)));
    }
    assert!(mesh.store.is_stale());
    let problems = mesh.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("permission") && problems[0].contains("MeshConfig"), "{problems:?}");
    for kind in KINDS {
        mesh.store.apply(kind, Change::Trouble(None));
    }
    assert!(!mesh.store.is_stale());
    assert_eq!(mesh.problems(), Vec::<String>::new());
}

/// The objects as the last known mesh has them.
fn kept(objects: &[Value]) -> Vec<Declaration> {
    let rules = Rules::api_server(MeshName::default());
    let read = |object: &Value| {
        let mut object = object.clone();
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        canonical::read(&rules, Origin { file: "kept".into(), line: 1 }, &object.to_string()).unwrap()
    };
    objects.iter().map(read).collect()
}

#[test]
fn the_last_known_mesh_is_served_until_the_api_server_says_what_differs() {
    let mut mesh = Mesh::new();
    let objects =
        [namespace_object("shop", "smc", 1), account("shop/a", 2), account("shop/b", 2), account("x/c", 2)];
    mesh.store.restore(kept(&objects));
    assert_eq!(
        mesh.next().unwrap(),
        ["+Namespace shop", "+ServiceAccount shop/a", "+ServiceAccount shop/b"],
        "an object of no namespace of the mesh is left out"
    );
    assert!(mesh.store.is_stale() && !mesh.store.is_synced());
    assert!(mesh.problems()[0].contains("the last known mesh is served"));
    mesh.list(Kind::Namespace, 30, &[namespace_object("shop", "smc", 1)]);
    mesh.list(Kind::ServiceAccount, 30, &[account("shop/b", 2), account("shop/d", 20)]);
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/a", "+ServiceAccount shop/d"]);
    mesh.list(Kind::TrafficTarget, 30, &[]);
    mesh.list(Kind::MeshConfig, 30, &[]);
    assert!(mesh.store.is_synced() && !mesh.store.is_stale());
    assert_eq!(mesh.problems(), Vec::<String>::new());
}

#[test]
fn the_last_known_mesh_fills_only_what_was_not_read() {
    let mut mesh = Mesh::new();
    mesh.list(Kind::Namespace, 30, &[namespace_object("shop", "smc", 1), namespace_object("new", "smc", 1)]);
    mesh.list(Kind::ServiceAccount, 30, &[account("shop/b", 2), account("new/c", 2)]);
    let objects = [
        namespace_object("shop", "smc", 1),
        namespace_object("old", "smc", 1),
        account("shop/a", 2),
        account("old/x", 2),
        config("own"),
    ];
    mesh.store.restore(kept(&objects));
    assert_eq!(
        mesh.next().unwrap(),
        ["+Namespace shop", "+ServiceAccount shop/b", "+MeshConfig own/osm-mesh-config"],
        "of a namespace that it does not know, nothing is sent before all was listed"
    );
    mesh.list(Kind::TrafficTarget, 30, &[]);
    mesh.list(Kind::MeshConfig, 30, &[]);
    assert_eq!(
        mesh.next().unwrap(),
        ["-MeshConfig own/osm-mesh-config", "+Namespace new", "+ServiceAccount new/c"]
    );
}

#[test]
fn what_is_kept_is_what_was_sent() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    mesh.applied(Kind::Namespace, namespace_object("more", "smc", 11));
    let kept: Vec<Arc<str>> = mesh.store.kept();
    let shop = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"openservicemesh.io/monitored-by":"smc"},"name":"shop"}}"#;
    let a = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a","namespace":"shop"}}"#;
    assert_eq!(kept, [Arc::from(shop), Arc::from(a)]);
}

#[test]
fn a_refused_object_loses_its_effect_and_is_a_problem() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    let target = |spec: Value, version: &str| {
        json!({"apiVersion": "access.smi-spec.io/v1alpha3", "kind": "TrafficTarget",
            "metadata": {"name": "t", "namespace": "shop", "resourceVersion": version}, "spec": spec})
    };
    let account = |name| json!({"kind": "ServiceAccount", "name": name, "namespace": "shop"});
    let good = json!({"destination": account("a"), "sources": [account("b")],
        "rules": [{"kind": "HTTPRouteGroup", "name": "r"}]});
    mesh.applied(Kind::TrafficTarget, target(good, "11"));
    assert_eq!(mesh.next().unwrap(), ["+TrafficTarget shop/t"]);
    mesh.applied(Kind::TrafficTarget, target(json!(7), "12"));
    assert_eq!(mesh.next().unwrap(), ["-TrafficTarget shop/t"]);
    assert!(mesh.problems()[0].contains("TrafficTarget shop/t"), "{:?}", mesh.problems());
    mesh.deleted(Kind::TrafficTarget, target(json!(7), "13"));
    assert_eq!(mesh.problems(), Vec::<String>::new());
}

#[test]
fn what_exceeds_the_bound_is_left_out_and_comes_when_there_is_room() {
    let mut mesh = Mesh::synced(&["shop/a", "shop/b"]);
    mesh.next();
    mesh.store.limit = 3;
    mesh.applied(Kind::ServiceAccount, account("shop/c", 11));
    assert_eq!(mesh.next(), Some(Vec::new()), "a problem is news");
    assert!(mesh.problems()[0].contains("more than 3 objects"));
    let before = mesh.scope();
    mesh.deleted(Kind::ServiceAccount, account("shop/a", 12));
    assert_ne!(mesh.scope(), before, "every namespace is listed again");
    mesh.list_in(Kind::ServiceAccount, "shop", 13, &[account("shop/b", 2), account("shop/c", 11)]);
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/a", "+ServiceAccount shop/c"]);
    assert_eq!(mesh.problems(), Vec::<String>::new());
}
