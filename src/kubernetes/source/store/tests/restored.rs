//! What the store makes of the last known mesh.

use super::*;
use smc_decode::manifest::{Declaration, Origin};

/// The objects as the last known mesh has them, as of version 20 of each kind.
fn kept(objects: &[Value]) -> MeshCopy<Declaration> {
    let rules = Rules::api_server(MeshName::default());
    let read = |object: &Value| {
        let mut object = object.clone();
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        canonical::read(&rules, Origin { file: "kept".into(), line: 1 }, &object.to_string()).unwrap()
    };
    let known = KINDS.iter().map(|kind| (*kind, 20)).collect();
    MeshCopy { objects: objects.iter().map(read).collect(), known }
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
fn the_last_known_mesh_stays_whatever_is_read_half() {
    let objects = [namespace_object("shop", "smc", 1), account("shop/a", 2), account("shop/b", 2)];
    let mut mesh = Mesh::new();
    // Lists that had begun when it was restored.
    mesh.list_unended(Kind::Namespace, &objects[..1]);
    mesh.store.restore(kept(&objects));
    mesh.next();
    let scope = mesh.scope();
    mesh.learn(Kind::Namespace, Change::ListEnded(ended(30), scope));
    mesh.list_unended(Kind::ServiceAccount, &objects[1..2]);
    assert_eq!(mesh.next(), Some(Vec::new()), "nothing is gone that was not seen to be gone");
    mesh.list(Kind::ServiceAccount, 30, &objects[1..2]);
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/b"]);
}

#[test]
fn a_revision_says_how_far_the_copy_went_until_everything_was_read() {
    let objects = [namespace_object("shop", "smc", 1), account("shop/a", 2)];
    let mut mesh = Mesh::new();
    assert_eq!(mesh.store.revision().copy, None);
    mesh.store.restore(kept(&objects));
    let copy = Some(Box::new(kept(&[]).known));
    assert_eq!(mesh.store.batch(&[]).unwrap().revision.unwrap().copy, copy);
    mesh.list(Kind::Namespace, 30, &objects[..1]);
    mesh.list(Kind::ServiceAccount, 30, &objects[1..]);
    mesh.list(Kind::TrafficTarget, 30, &[]);
    assert_eq!(mesh.store.revision().copy, copy);
    mesh.list(Kind::MeshConfig, 30, &[]);
    assert_eq!(mesh.store.batch(&[]).unwrap().revision.unwrap().copy, None);
    assert_eq!(mesh.store.kept().known.of(Kind::MeshConfig), 30);
}

/// Equal content is not read again when the API server says it.
#[test]
fn the_last_known_mesh_has_the_problems_of_its_objects() {
    let mut mesh = Mesh::new();
    let target = json!({"apiVersion": "access.smi-spec.io/v1alpha3", "kind": "TrafficTarget",
        "metadata": {"name": "t", "namespace": "shop", "resourceVersion": "2"}, "spec": 7});
    mesh.store.restore(kept(&[namespace_object("shop", "smc", 1), target.clone()]));
    let problem = "error: TrafficTarget shop/t";
    assert!(mesh.problems().iter().any(|said| said.starts_with(problem)), "{:?}", mesh.problems());
    mesh.list(Kind::Namespace, 30, &[namespace_object("shop", "smc", 1)]);
    mesh.list(Kind::ServiceAccount, 30, &[]);
    mesh.list(Kind::TrafficTarget, 30, &[target]);
    mesh.list(Kind::MeshConfig, 30, &[]);
    assert!(mesh.problems().iter().any(|said| said.starts_with(problem)), "{:?}", mesh.problems());
}
