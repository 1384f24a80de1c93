//! What the store makes of lists and events.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use smc_types::ids::MeshName;

use super::*;
use crate::source::marks;

mod custom;
mod model;
mod own;
mod restored;
mod room;

/// The kinds of a small API server.
const KINDS: [Kind; 4] = [Kind::Namespace, Kind::ServiceAccount, Kind::TrafficTarget, Kind::MeshConfig];

/// A store, and the events that it has sent.
struct Mesh {
    store: Store,
}

fn store_of(kinds: impl Iterator<Item = Kind>) -> Store {
    let rules = Rules::api_server(MeshName::default());
    Store::new(rules, MeshNamespace::new("own").unwrap(), kinds)
}

fn store() -> Store {
    store_of(KINDS.into_iter())
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

fn telemetry(namespace: &str, version: u64) -> Value {
    json!({"apiVersion": "policy.openservicemesh.io/v1alpha1", "kind": "Telemetry",
        "metadata": {"name": "log", "namespace": namespace, "resourceVersion": version.to_string()},
        "spec": {"accessLog": {}}})
}

/// An object as it arrives.
fn arrived(kind: Kind, object: &Value) -> Arrived {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let reference = kinds::named(kind, text("/metadata/namespace"), text("/metadata/name")).unwrap();
    let version = Version::new(text("/metadata/resourceVersion"));
    let marks = marks::read(&object.to_string()).map(Box::new);
    // As what is kept of an object, without what its marks are read from.
    let mut kept = object.clone();
    kept["metadata"].as_object_mut().unwrap().remove("uid");
    kept.as_object_mut().unwrap().remove("status");
    Arrived { reference, version, content: Ok(kept), marks }
}

impl Mesh {
    fn new() -> Self {
        Self { store: store() }
    }

    /// With a kind whose objects mean the mesh in the control plane's namespace.
    fn with_telemetries() -> Self {
        Self { store: store_of(KINDS.into_iter().chain([Kind::Telemetry])) }
    }

    /// After a first look at the namespace `shop` and these accounts.
    fn synced(accounts: &[&str]) -> Self {
        let mut mesh = Self::new();
        mesh.list(Kind::Namespace, 10, &[namespace_object("shop", "smc", 1)]);
        let accounts: Vec<Value> = accounts.iter().map(|name| account(name, 2)).collect();
        mesh.list(Kind::ServiceAccount, 10, &accounts);
        mesh.list(Kind::TrafficTarget, 10, &[]);
        mesh.list(Kind::MeshConfig, 10, &[]);
        mesh
    }

    fn scope(&self) -> Arc<Scope> {
        self.store.scope().cloned().unwrap_or_default()
    }

    /// What a reader learns that follows the latest order to list.
    fn learn(&mut self, kind: Kind, change: Change) {
        self.store.apply(kind, self.store.epoch(), change);
    }

    fn list_unended(&mut self, kind: Kind, objects: &[Value]) {
        self.list_unended_in(kind, None, objects);
    }

    fn list_unended_in(&mut self, kind: Kind, namespace: Option<&str>, objects: &[Value]) {
        self.learn(kind, Change::ListBegun(namespace.map(str::to_owned)));
        for object in objects {
            self.learn(kind, Change::Listed(arrived(kind, object)));
        }
    }

    fn list(&mut self, kind: Kind, version: u64, objects: &[Value]) {
        let scope = self.scope();
        self.list_unended(kind, objects);
        self.learn(kind, Change::ListEnded(ended(version), scope));
    }

    /// Lists a namespace, as it is in the mesh now.
    fn list_in(&mut self, kind: Kind, namespace: &str, version: u64, objects: &[Value]) {
        let entry = self.scope().get(namespace).copied().unwrap_or_default();
        self.list_unended_in(kind, Some(namespace), objects);
        self.learn(kind, Change::NamespaceEnded(ended(version), namespace.to_owned(), entry));
    }

    /// Lists everything again, where the API server is at this version.
    fn list_all(&mut self, version: u64, namespaces: &[Value], accounts: &[Value]) {
        self.list(Kind::Namespace, version, namespaces);
        self.list(Kind::ServiceAccount, version, accounts);
        self.list(Kind::TrafficTarget, version, &[]);
        self.list(Kind::MeshConfig, version, &[]);
    }

    #[expect(clippy::needless_pass_by_value, reason = "objects are made where they are used")]
    fn applied(&mut self, kind: Kind, object: Value) {
        self.learn(kind, Change::Applied(arrived(kind, &object)));
    }

    #[expect(clippy::needless_pass_by_value, reason = "objects are made where they are used")]
    fn deleted(&mut self, kind: Kind, object: Value) {
        let Arrived { reference, version, .. } = arrived(kind, &object);
        self.learn(kind, Change::Deleted(reference, version));
    }

    fn passed(&mut self, kind: Kind, version: u64) {
        self.learn(kind, Change::Passed(Version::new(&version.to_string())));
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

    /// Of a kind, the version of the latest change, and the one up to which everything is known.
    fn revision(&mut self, kind: Kind) -> (u64, u64) {
        let revision = self.store.revision();
        (revision.changed.of(kind), revision.known.of(kind))
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
fn a_batch_says_of_each_kind_how_far_the_api_server_had_come() {
    let mut mesh = Mesh::synced(&["shop/a", "shop/b"]);
    let accounts = Kind::ServiceAccount;
    assert_eq!(mesh.revision(accounts), (2, 10), "objects have their own versions, and the lists are of 10");
    mesh.next();
    mesh.applied(accounts, account("shop/c", 11));
    assert_eq!(mesh.revision(accounts), (11, 11));
    assert_eq!(mesh.revision(Kind::TrafficTarget), (0, 10), "the watch of another kind may lag");
    mesh.next();
    mesh.applied(accounts, account("elsewhere/c", 12));
    mesh.applied(accounts, account("shop/c", 13));
    assert_eq!(mesh.revision(accounts), (11, 13), "of another mesh, and without a difference");
    mesh.deleted(accounts, account("shop/b", 14));
    assert_eq!(mesh.revision(accounts), (14, 14));
    mesh.passed(Kind::TrafficTarget, 15);
    assert_eq!(mesh.revision(Kind::TrafficTarget), (0, 15));
    mesh.list(accounts, 20, &[account("shop/a", 2), account("shop/c", 13)]);
    assert_eq!(mesh.revision(accounts), (14, 20), "a list without news");
    mesh.list(accounts, 30, &[]);
    assert_eq!(mesh.revision(accounts), (30, 30), "no list shows the version of a deletion");
    mesh.applied(Kind::Namespace, namespace_object("x", "osm", 31));
    assert_eq!(mesh.revision(Kind::Namespace), (1, 31), "a namespace of another mesh is no change");
}

/// Proxies may hold versions from before the definition of a kind was deleted.
#[test]
fn a_kind_that_is_not_served_is_known_as_far_as_the_others() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.learn(Kind::TrafficTarget, Change::Missing(BTreeSet::new()));
    mesh.applied(Kind::ServiceAccount, account("shop/b", 20));
    assert_eq!(mesh.revision(Kind::TrafficTarget), (0, 20));
}

#[test]
fn events_that_are_known_already_are_no_news() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    mesh.applied(Kind::ServiceAccount, account("shop/b", 11));
    mesh.deleted(Kind::ServiceAccount, account("shop/b", 12));
    mesh.applied(Kind::ServiceAccount, account("shop/b", 11));
    assert_eq!(mesh.next(), None, "it is gone, although the server repeats itself");
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
}

#[test]
fn a_list_takes_effect_as_one_and_only_if_it_ends() {
    let mut mesh = Mesh::synced(&["shop/a", "shop/b"]);
    mesh.next();
    mesh.list_unended(Kind::ServiceAccount, &[account("shop/c", 15), account("shop/b", 2)]);
    mesh.learn(
        Kind::ServiceAccount,
        Change::Unlisted(arrived(Kind::ServiceAccount, &account("shop/b", 16)).reference),
    );
    assert_eq!(mesh.next(), None);
    let scope = mesh.scope();
    mesh.learn(Kind::ServiceAccount, Change::ListEnded(ended(20), scope));
    assert_eq!(
        mesh.next().unwrap(),
        ["-ServiceAccount shop/a", "-ServiceAccount shop/b", "+ServiceAccount shop/c"]
    );
    mesh.list_unended(Kind::ServiceAccount, &[account("shop/x", 21)]);
    mesh.list(Kind::ServiceAccount, 30, &[account("shop/c", 15)]);
    assert_eq!(mesh.next(), None, "the first of the two lists was interrupted");
}

#[test]
fn versions_that_go_back_have_everything_listed_again() {
    type Sign = (&'static str, fn(&mut Mesh));
    let (shop, more) = (namespace_object("shop", "smc", 1), namespace_object("more", "smc", 40));
    let signs: [Sign; 2] = [
        ("a list", |mesh| mesh.list(Kind::TrafficTarget, 20, &[])),
        ("its own word", |mesh| mesh.learn(Kind::Pod, Change::WentBack(Version::new("20")))),
    ];
    for (sign, go_back) in signs {
        let mut mesh = Mesh::synced(&["shop/a"]);
        mesh.list_all(50, &[shop.clone(), more.clone()], &[account("shop/b", 45)]);
        mesh.list_in(Kind::ServiceAccount, "more", 50, &[account("more/c", 45)]);
        mesh.list_in(Kind::TrafficTarget, "more", 50, &[]);
        mesh.next();
        let epoch = mesh.store.epoch();
        go_back(&mut mesh);
        assert_eq!(mesh.store.epoch(), epoch + 1, "{sign}");
        assert_eq!(mesh.store.take_went_back(), Some(WentBack { from: 50, to: 20 }), "{sign}");
        assert_eq!(mesh.store.take_went_back(), None);
        assert!(mesh.store.is_stale(), "{sign}");
        assert_eq!(mesh.next(), Some(Vec::new()), "{sign}: a problem is news, and what was sent stays");
        assert!(mesh.problems()[0].contains("went back to an older state"), "{:?}", mesh.problems());
        // What readers say that began before is of no known history.
        let late = Change::Applied(arrived(Kind::ServiceAccount, &account("shop/late", 51)));
        mesh.store.apply(Kind::ServiceAccount, epoch, late);
        mesh.store.apply(Kind::Pod, epoch, Change::WentBack(Version::new("20")));
        // All kinds are listed, each of them at a version that is below its own.
        mesh.list_all(21, std::slice::from_ref(&shop), &[account("shop/a", 2)]);
        assert_eq!(mesh.store.epoch(), epoch + 1, "{sign}: once");
        assert!(!mesh.store.is_stale(), "{sign}");
        let gone =
            ["-Namespace more", "-ServiceAccount more/c", "-ServiceAccount shop/b", "+ServiceAccount shop/a"];
        assert_eq!(mesh.next().unwrap(), gone, "{sign}");
        mesh.applied(Kind::ServiceAccount, account("shop/d", 22));
        assert_eq!(mesh.next().unwrap(), ["+ServiceAccount shop/d"], "{sign}");
        let (changed, known) = mesh.revision(Kind::ServiceAccount);
        assert_eq!(
            (changed, known >= 45),
            (22, true),
            "{sign}: what proxies hold of the other history is void"
        );
        mesh.passed(Kind::Namespace, 51);
        assert_eq!(mesh.problems(), Vec::<String>::new(), "{sign}: versions say again which state is meant");
    }
}

#[test]
fn an_event_that_is_repeated_is_no_return_to_an_older_state() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.applied(Kind::ServiceAccount, account("shop/b", 11));
    mesh.deleted(Kind::ServiceAccount, account("shop/b", 12));
    mesh.passed(Kind::ServiceAccount, 20);
    mesh.applied(Kind::ServiceAccount, account("shop/b", 11));
    mesh.deleted(Kind::ServiceAccount, account("shop/b", 12));
    mesh.passed(Kind::ServiceAccount, 15);
    mesh.applied(Kind::ServiceAccount, account("shop/old", 9));
    assert_eq!(mesh.store.epoch(), 0);
    assert_eq!(mesh.next().unwrap(), ["+Namespace shop", "+ServiceAccount shop/a"]);
}

#[test]
fn versions_that_are_no_numbers_prove_nothing() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    for name in ["shop/b", "shop/c"] {
        let mut object = account(name, 0);
        object["metadata"]["resourceVersion"] = json!("opaque");
        mesh.applied(Kind::ServiceAccount, object);
    }
    assert_eq!(mesh.next().unwrap(), ["+ServiceAccount shop/b", "+ServiceAccount shop/c"]);
    assert_eq!(mesh.store.epoch(), 0);
}

#[test]
fn an_object_that_cannot_be_read_is_its_own_problem() {
    let mut mesh = Mesh::synced(&["shop/a", "shop/b"]);
    mesh.next();
    let unreadable = |name, version| {
        let arrived = arrived(Kind::ServiceAccount, &account(name, version));
        Arrived { content: Err(Unreadable::TooDeep), ..arrived }
    };
    mesh.learn(Kind::ServiceAccount, Change::Applied(unreadable("shop/a", 11)));
    mesh.learn(Kind::ServiceAccount, Change::Applied(unreadable("elsewhere/a", 12)));
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/a"], "it must not keep a right that it lost");
    let problems = mesh.problems();
    assert!(problems.len() == 1 && problems[0].contains("ServiceAccount shop/a"), "{problems:?}");
    mesh.learn(Kind::ServiceAccount, Change::ListBegun(None));
    for object in [unreadable("shop/a", 11), arrived(Kind::ServiceAccount, &account("shop/c", 13))] {
        mesh.learn(Kind::ServiceAccount, Change::Listed(object));
    }
    let scope = mesh.scope();
    mesh.learn(Kind::ServiceAccount, Change::ListEnded(ended(20), scope));
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/b", "+ServiceAccount shop/c"]);
    mesh.applied(Kind::ServiceAccount, account("shop/a", 21));
    assert_eq!(mesh.next().unwrap(), ["+ServiceAccount shop/a"]);
    assert_eq!(mesh.problems(), Vec::<String>::new());
}

#[test]
fn namespaces_outside_of_the_mesh_are_not_held() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    let others = (0..9).map(|number| namespace_object(&format!("n{number}"), "osm", 11));
    let left = namespace_object("shop", "osm", 12);
    let unreadable = Arrived {
        content: Err(Unreadable::TooDeep),
        ..arrived(Kind::Namespace, &namespace_object("deep", "osm", 13))
    };
    let listed = others.chain([left]).map(|object| arrived(Kind::Namespace, &object)).chain([unreadable]);
    mesh.learn(Kind::Namespace, Change::ListBegun(None));
    for object in listed {
        mesh.learn(Kind::Namespace, Change::Listed(object));
    }
    let listing = mesh.store.kinds[&Kind::Namespace].listing.as_ref().unwrap();
    assert_eq!(listing.keys().map(ToString::to_string).collect::<Vec<_>>(), ["Namespace shop"]);
    // A list that is not whole says as well what is of the mesh no more.
    let (incomplete, scope) = (Ended { complete: false, ..ended(20) }, mesh.scope());
    mesh.learn(Kind::Namespace, Change::ListEnded(incomplete, scope));
    assert_eq!(mesh.next().unwrap(), ["-Namespace shop", "-ServiceAccount shop/a"]);
    assert_eq!(mesh.problems(), Vec::<String>::new());
}

#[test]
fn a_list_with_an_object_that_cannot_be_read_removes_nothing() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    let scope = mesh.scope();
    mesh.learn(Kind::ServiceAccount, Change::ListBegun(None));
    let incomplete = Ended { complete: false, ..ended(20) };
    mesh.learn(Kind::ServiceAccount, Change::ListEnded(incomplete, scope));
    assert_eq!(mesh.next(), None);
}

#[test]
fn nothing_is_sent_before_the_namespaces_are_known_to_their_end() {
    let mut mesh = Mesh::new();
    let (one, two) = (namespace_object("one", "smc", 1), namespace_object("two", "smc", 1));
    mesh.list_unended(Kind::Namespace, std::slice::from_ref(&one));
    assert_eq!(mesh.store.scope(), None, "the first namespace is not all");
    for kind in [Kind::ServiceAccount, Kind::TrafficTarget, Kind::MeshConfig] {
        mesh.list(kind, 10, &[]);
    }
    assert!(!mesh.store.is_synced() && mesh.next().is_none());
    mesh.list(Kind::Namespace, 10, &[one, two]);
    assert!(!mesh.store.is_synced() && mesh.next().is_none(), "no kind was read in them");
    for (kind, accounts) in [(Kind::TrafficTarget, vec![]), (Kind::ServiceAccount, vec![account("two/a", 2)])]
    {
        for namespace in ["one", "two"] {
            assert!(!mesh.store.is_synced() && mesh.next().is_none());
            let of: Vec<Value> = accounts
                .iter()
                .filter(|object| object["metadata"]["namespace"] == namespace)
                .cloned()
                .collect();
            mesh.list_in(kind, namespace, 10, &of);
        }
    }
    assert!(mesh.store.is_synced());
    assert_eq!(mesh.next().unwrap(), ["+Namespace one", "+Namespace two", "+ServiceAccount two/a"]);
}

#[test]
fn a_namespace_enters_and_leaves_as_one() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    mesh.applied(Kind::Namespace, namespace_object("more", "smc", 11));
    assert!(mesh.store.is_synced(), "it is withheld, and everything else goes on");
    assert_eq!(mesh.next(), None, "its kinds were not read");
    mesh.applied(Kind::ServiceAccount, account("shop/b", 12));
    assert_eq!(mesh.next().unwrap(), ["+ServiceAccount shop/b"]);
    mesh.list_in(Kind::ServiceAccount, "more", 12, &[account("more/w", 3), account("more/x", 12)]);
    assert_eq!(mesh.next(), None);
    mesh.list_in(Kind::TrafficTarget, "more", 10, &[]);
    let all = ["+Namespace more", "+ServiceAccount more/w", "+ServiceAccount more/x"];
    assert_eq!(mesh.next().unwrap(), all);
    mesh.applied(Kind::Namespace, namespace_object("more", "osm", 13));
    let gone = ["-Namespace more", "-ServiceAccount more/w", "-ServiceAccount more/x"];
    assert_eq!(mesh.next().unwrap(), gone);
    mesh.applied(Kind::ServiceAccount, account("more/y", 14));
    assert_eq!(mesh.next(), None, "it is of no mesh");
}

#[test]
fn a_namespace_that_left_and_enters_again_is_read_again() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    let before = mesh.scope();
    mesh.applied(Kind::Namespace, namespace_object("shop", "osm", 11));
    mesh.applied(Kind::Namespace, namespace_object("shop", "smc", 12));
    assert_ne!(before, mesh.scope());
    assert_eq!(
        mesh.next().unwrap(),
        ["-Namespace shop", "-ServiceAccount shop/a"],
        "it did leave, and what changed in it since was not read"
    );
    // A list that began before says nothing about it.
    mesh.list_unended(Kind::ServiceAccount, &[account("shop/a", 2)]);
    mesh.learn(Kind::ServiceAccount, Change::ListEnded(ended(12), before));
    mesh.list_in(Kind::TrafficTarget, "shop", 12, &[]);
    assert_eq!(mesh.next(), None);
    mesh.list_in(Kind::ServiceAccount, "shop", 12, &[account("shop/b", 2)]);
    assert_eq!(mesh.next().unwrap(), ["+Namespace shop", "+ServiceAccount shop/b"]);
}

#[test]
fn a_kind_that_is_missing_is_one_problem_and_the_rest_is_sent() {
    let mut mesh = Mesh::new();
    mesh.list(Kind::Namespace, 10, &[namespace_object("shop", "smc", 1)]);
    mesh.list(Kind::ServiceAccount, 10, &[account("shop/a", 2)]);
    mesh.list(Kind::MeshConfig, 10, &[]);
    let others = BTreeSet::from(["access.smi-spec.io/v1alpha2".to_owned()]);
    mesh.learn(Kind::TrafficTarget, Change::Missing(others));
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
        mesh.learn(kind, Change::Trouble(Some(Trouble::Forbidden)));
    }
    assert!(mesh.store.is_stale());
    let problems = mesh.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("permission") && problems[0].contains("MeshConfig"), "{problems:?}");
    for kind in KINDS {
        mesh.learn(kind, Change::Trouble(None));
    }
    assert!(!mesh.store.is_stale());
    assert_eq!(mesh.problems(), Vec::<String>::new());
}

#[test]
fn what_is_kept_is_what_was_sent() {
    let mut mesh = Mesh::synced(&["shop/a"]);
    mesh.next();
    mesh.applied(Kind::Namespace, namespace_object("more", "smc", 11));
    let kept: Vec<Arc<str>> = mesh.store.kept().objects;
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
