//! What becomes of what the API server says of custom objects beside their content.

use super::*;
use crate::custom_objects::{Content, CustomObject};
use smc_decode::manifest::{Declaration, Origin};

const KIND: Kind = Kind::TrafficTarget;

/// A TrafficTarget as an API server has it: its content, its generation, and the one that its status is of.
fn target(name: &str, spec: &str, generation: i64, observed: i64, version: u64) -> Value {
    let (namespace, name) = name.split_once('/').unwrap();
    json!({"apiVersion": "access.smi-spec.io/v1alpha3", "kind": "TrafficTarget",
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": version.to_string(),
            "generation": generation, "uid": format!("uid of {name}")},
        "spec": {"destination": {"kind": "ServiceAccount", "name": spec, "namespace": namespace}},
        "status": {"observedGeneration": observed}})
}

fn reference(name: &str) -> ObjectRef {
    let (namespace, name) = name.split_once('/').unwrap();
    kinds::named(KIND, namespace, name).unwrap()
}

impl Mesh {
    /// After a first look at the namespace `shop` and these targets.
    fn with_targets(targets: &[Value]) -> Self {
        let mut mesh = Self::synced(&[]);
        mesh.list(KIND, 10, targets);
        mesh.next();
        mesh
    }

    /// The generation of a custom object, and the one that its status is of.
    fn marked(&self, name: &str) -> Option<(i64, i64)> {
        let marks = &self.store.custom().get(&reference(name))?.marks;
        Some((marks.generation, marks.written().observed_generation.unwrap_or_default()))
    }

    fn content(&self, name: &str) -> Option<Content> {
        self.store.custom().get(&reference(name)).map(|object| object.content.clone())
    }

    /// The JSON that is held of an object.
    fn json(&self, name: &str) -> Arc<str> {
        self.store.kinds[&KIND].objects[&reference(name)].json.clone().unwrap()
    }
}

#[test]
fn a_status_alone_is_no_news_and_reaches_the_writer_of_statuses() {
    for (changed, marked, what) in [
        (target("shop/t", "a", 1, 1, 11), (1, 1), "its status"),
        (target("shop/t", "a", 2, 1, 11), (2, 1), "its generation"),
    ] {
        let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2)]);
        let (json, revision) = (mesh.json("shop/t"), mesh.revision(KIND));
        assert_eq!((mesh.marked("shop/t"), revision), (Some((1, 0)), (2, 10)));
        mesh.applied(KIND, changed);
        assert!(!mesh.store.has_news() && mesh.next().is_none(), "{what}");
        assert_eq!(mesh.revision(KIND), (2, 11), "{what}: as of any event");
        assert!(Arc::ptr_eq(&mesh.json("shop/t"), &json), "{what}");
        assert_eq!(mesh.marked("shop/t"), Some(marked), "{what}");
    }
}

#[test]
fn the_text_that_is_held_is_shared_and_says_what_its_author_said() {
    let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2)]);
    for (spec, version) in [("a", 11), ("b", 12)] {
        mesh.applied(KIND, target("shop/t", spec, 3, 1, version));
        let Some(Content::Json(shared)) = mesh.content("shop/t") else { panic!("it can be read") };
        assert!(Arc::ptr_eq(&shared, &mesh.json("shop/t")));
        let value: Value = serde_json::from_str(&shared).unwrap();
        assert_eq!(value["metadata"], json!({"name": "t", "namespace": "shop"}));
        assert_eq!((value["spec"]["destination"]["name"].as_str(), value.get("status")), (Some(spec), None));
    }
}

#[test]
fn where_nothing_differs_the_map_stays_the_same() {
    let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2)]);
    let before = mesh.store.custom().clone();
    mesh.applied(KIND, target("shop/t", "a", 1, 0, 11));
    mesh.applied(Kind::ServiceAccount, account("shop/a", 12));
    mesh.list(KIND, 20, &[target("shop/t", "a", 1, 0, 11)]);
    assert!(mesh.store.custom().ptr_eq(&before), "nothing is to be published");
    mesh.applied(KIND, target("shop/t", "a", 1, 1, 21));
    assert!(!mesh.store.custom().ptr_eq(&before));
}

#[test]
fn a_list_of_known_content_says_what_the_api_server_has() {
    let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2), target("shop/u", "a", 1, 0, 2)]);
    mesh.list(KIND, 20, &[target("shop/t", "a", 1, 1, 15), target("shop/u", "b", 2, 1, 16)]);
    assert_eq!((mesh.marked("shop/t"), mesh.marked("shop/u")), (Some((1, 1)), Some((2, 1))));
    // What a list says of new content takes effect with it.
    mesh.list_unended(KIND, &[target("shop/t", "c", 3, 2, 25)]);
    assert_eq!(mesh.marked("shop/t"), Some((1, 1)));
    mesh.list(KIND, 30, &[target("shop/t", "c", 3, 2, 25)]);
    assert_eq!((mesh.marked("shop/t"), mesh.marked("shop/u")), (Some((3, 2)), None));
}

#[test]
fn what_was_restored_is_not_judged_before_the_api_server_names_it() {
    let rules = Rules::api_server(MeshName::default());
    let kept = |object: &Value| -> Declaration {
        let mut kept = arrived(KIND, object).content.unwrap();
        let metadata = kept["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion");
        metadata.remove("generation");
        canonical::read(&rules, Origin { file: "kept".into(), line: 1 }, &kept.to_string()).unwrap()
    };
    let mut shop = namespace_object("shop", "smc", 1);
    shop["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let shop = canonical::read(&rules, Origin { file: "kept".into(), line: 1 }, &shop.to_string()).unwrap();
    let listed = target("shop/t", "a", 4, 3, 9);
    let restored = || MeshCopy { objects: vec![shop.clone(), kept(&listed)], known: Versions::default() };
    let mut mesh = Mesh::new();
    mesh.store.restore(restored());
    assert!(mesh.store.custom().is_empty());
    mesh.list(Kind::Namespace, 10, &[namespace_object("shop", "smc", 1)]);
    mesh.list(KIND, 10, std::slice::from_ref(&listed));
    assert_eq!(mesh.marked("shop/t"), Some((4, 3)));
    // It may be restored while the list is read.
    let mut mesh = Mesh::new();
    mesh.list(Kind::Namespace, 10, &[namespace_object("shop", "smc", 1)]);
    mesh.list_unended(KIND, std::slice::from_ref(&listed));
    mesh.store.restore(restored());
    assert!(mesh.store.custom().is_empty());
    let scope = mesh.scope();
    mesh.learn(KIND, Change::ListEnded(ended(10), scope));
    assert_eq!(mesh.marked("shop/t"), Some((4, 3)));
    assert!(
        matches!(mesh.content("shop/t"), Some(Content::Json(json)) if Arc::ptr_eq(&json, &mesh.json("shop/t")))
    );
}

#[test]
fn an_object_that_is_gone_is_gone_for_its_status_too() {
    type Way = (&'static str, fn(&mut Mesh));
    let ways: [Way; 6] = [
        ("it is deleted", |mesh| mesh.deleted(KIND, target("shop/t", "a", 1, 0, 11))),
        ("a list does not name it", |mesh| mesh.list(KIND, 20, &[])),
        ("a list of its namespace does not name it", |mesh| mesh.list_in(KIND, "shop", 20, &[])),
        ("its namespace leaves the mesh", |mesh| {
            mesh.applied(Kind::Namespace, namespace_object("shop", "osm", 11));
        }),
        ("its namespace leaves and enters again", |mesh| {
            mesh.applied(Kind::Namespace, namespace_object("shop", "osm", 11));
            mesh.applied(Kind::Namespace, namespace_object("shop", "smc", 12));
        }),
        ("its kind is not served any more", |mesh| mesh.learn(KIND, Change::Missing(BTreeSet::new()))),
    ];
    for (way, go) in ways {
        let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2)]);
        assert_eq!(mesh.marked("shop/t"), Some((1, 0)));
        go(&mut mesh);
        assert!(mesh.store.custom().is_empty(), "{way}");
    }
    let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2)]);
    mesh.applied(KIND, target("elsewhere/t", "a", 1, 0, 11));
    mesh.applied(KIND, target("shop/t", "a", 9, 9, 1));
    assert_eq!(mesh.marked("elsewhere/t"), None, "it is of another mesh");
    assert_eq!(mesh.marked("shop/t"), Some((1, 0)), "the server repeats itself");
}

#[test]
fn an_object_that_cannot_be_read_is_judged_by_its_problem() {
    let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2)]);
    let deep =
        Arrived { content: Err(Unreadable::TooDeep), ..arrived(KIND, &target("shop/t", "a", 2, 1, 11)) };
    mesh.learn(KIND, Change::Applied(deep));
    let Some(Content::Unreadable(problems)) = mesh.content("shop/t") else { panic!("it cannot be read") };
    assert!(problems.len() == 1 && problems[0].message.starts_with("nested deeper"), "{problems:?}");
    assert_eq!(mesh.marked("shop/t"), Some((2, 1)));
    mesh.applied(KIND, target("shop/t", "b", 3, 1, 12));
    assert!(matches!(mesh.content("shop/t"), Some(Content::Json(_))));
}

#[test]
fn the_status_of_an_object_that_cannot_be_read_is_no_news() {
    let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2)]);
    let deep = |observed, version| Arrived {
        content: Err(Unreadable::TooDeep),
        ..arrived(KIND, &target("shop/t", "a", 2, observed, version))
    };
    mesh.learn(KIND, Change::Applied(deep(1, 11)));
    assert!(mesh.next().is_some());
    mesh.learn(KIND, Change::Applied(deep(2, 12)));
    assert!(!mesh.store.has_news() && mesh.next().is_none());
    assert_eq!(mesh.marked("shop/t"), Some((2, 2)));
}

/// Such an object has no JSON either, but it can be read.
#[test]
fn a_change_of_an_object_that_is_too_long_to_be_held_takes_effect() {
    let long = "x".repeat(MAX_OBJECT_BYTES);
    let to = |source: &str, version: u64| {
        let mut object = target("shop/t", "a", 1, 0, version);
        object["spec"]["sources"] = json!([{"kind": "ServiceAccount", "name": source, "namespace": "shop"}]);
        object["spec"]["rules"] = json!([{"kind": "TCPRoute", "name": "all"}]);
        object["note"] = long.clone().into();
        object
    };
    let mut mesh = Mesh::with_targets(&[]);
    for (source, version) in [("b", 11), ("c", 12)] {
        mesh.applied(KIND, to(source, version));
        assert!(mesh.next().is_some_and(|batch| batch == ["+TrafficTarget shop/t"]), "{source}");
    }
}

#[test]
fn objects_without_a_status_of_ours_are_not_among_them() {
    let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2)]);
    let mut account = account("shop/a", 11);
    account["metadata"]["uid"] = json!("u");
    mesh.applied(Kind::ServiceAccount, account);
    let names: Vec<String> = mesh.store.custom().keys().map(ToString::to_string).collect();
    assert_eq!(names, ["TrafficTarget shop/t"]);
    // From here on an older version is read, as after another definition was installed.
    let older = Arrived { marks: None, ..arrived(KIND, &target("shop/t", "a", 1, 0, 12)) };
    mesh.learn(KIND, Change::Applied(older));
    assert_eq!(
        mesh.store.custom().values().map(Arc::as_ref).collect::<Vec<&CustomObject>>(),
        Vec::<&CustomObject>::new()
    );
}

/// An object that is left out, since there are too many, has no effect and no status.
#[test]
fn what_exceeds_the_bound_has_no_status() {
    let mut mesh = Mesh::with_targets(&[target("shop/t", "a", 1, 0, 2)]);
    mesh.store.share.close();
    mesh.applied(KIND, target("shop/u", "a", 1, 0, 11));
    assert_eq!((mesh.marked("shop/t"), mesh.marked("shop/u")), (Some((1, 0)), None));
}
