//! What the store holds where there is more than there is room for.

use super::*;

/// A store with room for so many accounts, each of 2 KiB, beside the Namespaces `shop` and `more`.
fn with_room(accounts: u64) -> Mesh {
    let mut mesh = Mesh::new();
    mesh.store.share = Share::new(4 + 2 * accounts, &MeshNamespace::new("own").unwrap());
    let both = ["shop", "more"].map(|name| namespace_object(name, "smc", 1));
    mesh.list(Kind::Namespace, 10, &both);
    mesh
}

fn accounts(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| account(name, 2)).collect()
}

/// The accounts that are held.
fn held(mesh: &Mesh) -> Vec<String> {
    let objects = &mesh.store.kinds[&Kind::ServiceAccount].objects;
    objects.keys().map(|of| of.to_string().replace("ServiceAccount ", "")).collect()
}

const ALL: [&str; 6] = ["shop/a", "shop/b", "shop/c", "shop/d", "more/a", "more/b"];
const FAIR: [&str; 4] = ["more/a", "more/b", "shop/a", "shop/b"];

/// After a start with [`ALL`] and room for four.
fn full() -> Mesh {
    let mut mesh = with_room(4);
    mesh.list(Kind::ServiceAccount, 10, &accounts(&ALL));
    mesh.list(Kind::TrafficTarget, 10, &[]);
    mesh.list(Kind::MeshConfig, 10, &[]);
    mesh.next();
    mesh
}

#[test]
fn the_largest_namespace_pays_whatever_comes_first() {
    for order in [ALL.to_vec(), ALL.iter().rev().copied().collect()] {
        let mut mesh = with_room(4);
        mesh.list(Kind::TrafficTarget, 10, &[]);
        mesh.list(Kind::MeshConfig, 10, &[]);
        // As events, as a list, and as events after a part of a list.
        let (first, last) = order.split_at(3);
        mesh.list(Kind::ServiceAccount, 10, &accounts(first));
        for (version, name) in (11..).zip(last) {
            mesh.applied(Kind::ServiceAccount, account(name, version));
        }
        assert_eq!(held(&mesh), FAIR, "{order:?}");
        mesh.next();
        mesh.list(Kind::ServiceAccount, 30, &accounts(&order));
        assert_eq!((held(&mesh), mesh.next()), (FAIR.map(str::to_owned).to_vec(), None), "{order:?}");
        let mut fresh = with_room(4);
        fresh.list(Kind::ServiceAccount, 10, &accounts(&order));
        assert_eq!(held(&fresh), FAIR, "{order:?}");
        let [problem] = mesh.problems().try_into().unwrap();
        assert!(problem.starts_with("error: Namespace shop: has more objects than its share"), "{problem}");
        assert!(problem.contains("ServiceAccount (2 or more)"), "{problem}");
        assert_eq!(mesh.store.epoch(), 0, "nothing is listed again for it");
    }
}

#[test]
fn what_loses_its_effect_comes_back_when_its_namespace_is_read() {
    let mut mesh = full();
    mesh.deleted(Kind::ServiceAccount, account("shop/a", 11));
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/a"]);
    assert!(mesh.store.wants_more());
    let before = mesh.scope();
    assert_eq!(mesh.store.read_again(), [Arc::from("shop")]);
    assert!(!mesh.store.wants_more(), "it is being read");
    assert!(before["shop"] < mesh.scope()["shop"] && before["more"] == mesh.scope()["more"]);
    assert_eq!(mesh.next(), None, "it stays of the mesh meanwhile");
    mesh.list_in(Kind::ServiceAccount, "shop", 11, &accounts(&["shop/b", "shop/c", "shop/d"]));
    mesh.list_in(Kind::TrafficTarget, "shop", 10, &[]);
    assert_eq!(mesh.next().unwrap(), ["+ServiceAccount shop/c"]);
    assert!(!mesh.store.wants_more());
    assert_eq!(mesh.problems().len(), 1);
    // With room for all, the problem is gone as well.
    mesh.deleted(Kind::ServiceAccount, account("more/a", 12));
    mesh.store.read_again();
    mesh.list_in(Kind::TrafficTarget, "shop", 12, &[]);
    mesh.list_in(Kind::ServiceAccount, "shop", 12, &accounts(&["shop/b", "shop/c", "shop/d"]));
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount more/a", "+ServiceAccount shop/d"]);
    assert_eq!((mesh.problems(), mesh.store.wants_more()), (Vec::<String>::new(), false));
}

#[test]
fn a_small_namespace_that_grows_takes_its_share_from_the_largest() {
    let mut mesh = with_room(4);
    mesh.list(Kind::ServiceAccount, 10, &accounts(&ALL[..4]));
    mesh.list(Kind::TrafficTarget, 10, &[]);
    mesh.list(Kind::MeshConfig, 10, &[]);
    mesh.next();
    mesh.applied(Kind::ServiceAccount, account("more/a", 11));
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/d", "+ServiceAccount more/a"]);
    mesh.applied(Kind::ServiceAccount, account("shop/e", 12));
    assert_eq!(
        mesh.next(),
        Some(Vec::new()),
        "it comes after one that is left out, and counts in the problem"
    );
    mesh.applied(Kind::ServiceAccount, account("shop/aa", 13));
    assert_eq!(mesh.next().unwrap(), ["-ServiceAccount shop/c", "+ServiceAccount shop/aa"], "by name");
}

#[test]
fn a_namespace_that_leaves_makes_room_and_is_forgotten() {
    let mut mesh = full();
    mesh.applied(Kind::Namespace, namespace_object("shop", "osm", 11));
    assert_eq!((held(&mesh).len(), mesh.problems()), (2, Vec::<String>::new()));
    assert!(!mesh.store.wants_more());
}

#[test]
fn a_list_that_breaks_off_holds_no_room() {
    let mut mesh = full();
    mesh.deleted(Kind::ServiceAccount, account("more/b", 11));
    mesh.list_unended(Kind::ServiceAccount, &accounts(&["more/c", "other/d"]));
    assert_eq!(held(&mesh), ["more/a", "shop/a", "shop/b"]);
    assert!(!mesh.store.wants_more(), "what is listed takes room");
    mesh.learn(Kind::ServiceAccount, Change::Trouble(Some(Trouble::Unreachable)));
    mesh.learn(Kind::ServiceAccount, Change::Trouble(None));
    assert!(mesh.store.wants_more(), "and no more");
    mesh.list(Kind::ServiceAccount, 20, &accounts(&ALL));
    assert_eq!(held(&mesh), FAIR);
}

#[test]
fn what_was_left_out_and_is_gone_is_not_waited_for() {
    // Of the two that are left out, one is deleted while the watch is lost, and then there is room.
    let mut mesh = full();
    mesh.list(Kind::ServiceAccount, 20, &accounts(&["shop/a", "shop/b", "shop/d", "more/a", "more/b"]));
    mesh.deleted(Kind::ServiceAccount, account("more/b", 21));
    assert_eq!(mesh.store.missing_names(), ["ServiceAccount shop/d"]);
    // It is deleted as well before it is read.
    mesh.deleted(Kind::ServiceAccount, account("shop/d", 22));
    assert_eq!((mesh.store.missing_names(), mesh.store.wants_more()), (Vec::<String>::new(), false));
    assert_eq!(mesh.problems(), Vec::<String>::new());
    // The same where the list that would bring it does not name it.
    let mut mesh = full();
    mesh.deleted(Kind::ServiceAccount, account("more/b", 11));
    mesh.store.read_again();
    mesh.list_in(Kind::TrafficTarget, "shop", 12, &[]);
    mesh.list_in(Kind::ServiceAccount, "shop", 12, &accounts(&["shop/a", "shop/b"]));
    assert_eq!((mesh.store.missing_names(), mesh.store.wants_more()), (Vec::<String>::new(), false));
    assert_eq!(held(&mesh), ["more/a", "shop/a", "shop/b"]);
}

#[test]
fn the_own_namespace_keeps_its_objects_and_its_policy() {
    let mut mesh = with_room(0);
    mesh.list(Kind::MeshConfig, 10, &[config("own")]);
    mesh.list(Kind::ServiceAccount, 10, &accounts(&ALL));
    mesh.list(Kind::TrafficTarget, 10, &[]);
    let all = ["+Namespace more", "+Namespace shop", "+MeshConfig own/osm-mesh-config"];
    assert_eq!(mesh.next().unwrap(), all);
    assert_eq!(mesh.problems().len(), 2, "{:?}", mesh.problems());
}

#[test]
fn a_status_counts_in_the_weight_of_its_object() {
    let target = |status: &str| {
        json!({"apiVersion": "access.smi-spec.io/v1alpha3", "kind": "TrafficTarget",
            "metadata": {"name": "t", "namespace": "shop", "uid": "u", "resourceVersion": "11"}, "spec": {},
            "status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "Fine", "message": status,
                "lastTransitionTime": "2026-11-22T20:00:00Z"}]}})
    };
    let mut mesh = with_room(8);
    mesh.list(Kind::ServiceAccount, 10, &accounts(&["shop/a"]));
    mesh.list(Kind::TrafficTarget, 10, &[target("")]);
    mesh.list(Kind::MeshConfig, 10, &[]);
    assert_eq!(mesh.store.kinds[&Kind::TrafficTarget].objects.len(), 1);
    let mut long = target(&"x".repeat(30_000));
    long["metadata"]["resourceVersion"] = json!("12");
    mesh.applied(Kind::TrafficTarget, long);
    assert!(mesh.store.kinds[&Kind::TrafficTarget].objects.is_empty() && mesh.store.custom.is_empty());
    assert_eq!(held(&mesh), ["shop/a"]);
}
