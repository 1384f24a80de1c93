//! The control plane's own namespace: what is read there whether or not it is of the mesh.

use super::*;

fn next(mesh: &mut Mesh) -> BTreeSet<String> {
    mesh.next().unwrap_or_default().into_iter().collect()
}

#[test]
fn what_means_the_mesh_is_read_whether_or_not_its_namespace_is_of_it() {
    let mut mesh = Mesh::with_telemetries();
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let accounts = [account("shop/a", 2), account("own/a", 2)];
    mesh.list_all(10, &[namespace_object("shop", "smc", 1)], &accounts);
    mesh.list(Kind::Telemetry, 10, &[telemetry("own", 3), telemetry("shop", 3), telemetry("elsewhere", 3)]);
    assert_eq!(
        next(&mut mesh),
        named(&["+Namespace shop", "+ServiceAccount shop/a", "+Telemetry own/log", "+Telemetry shop/log"])
    );

    // It enters the mesh, and what it has of other kinds is read. Meanwhile the mesh goes on to log.
    mesh.applied(Kind::Namespace, namespace_object("own", "smc", 11));
    assert_eq!(next(&mut mesh), named(&[]), "it enters as a whole");
    mesh.deleted(Kind::Telemetry, telemetry("own", 12));
    assert_eq!(next(&mut mesh), named(&["-Telemetry own/log"]));
    mesh.applied(Kind::Telemetry, telemetry("own", 13));
    assert_eq!(next(&mut mesh), named(&["+Telemetry own/log"]));
    mesh.list_in(Kind::ServiceAccount, "own", 14, &[account("own/a", 2)]);
    assert_eq!(next(&mut mesh), named(&[]));
    mesh.list_in(Kind::TrafficTarget, "own", 14, &[]);
    assert_eq!(next(&mut mesh), named(&["+Namespace own", "+ServiceAccount own/a"]));

    // It leaves.
    mesh.applied(Kind::Namespace, namespace_object("own", "osm", 15));
    assert_eq!(next(&mut mesh), named(&["-Namespace own", "-ServiceAccount own/a"]));
    mesh.applied(Kind::ServiceAccount, account("own/b", 16));
    assert_eq!(next(&mut mesh), named(&[]));
    mesh.deleted(Kind::Telemetry, telemetry("own", 17));
    assert_eq!(next(&mut mesh), named(&["-Telemetry own/log"]));
}

/// What was being listed when it left is not taken, in a list of it or in one of all.
#[test]
fn a_list_that_ends_after_its_namespace_left_brings_nothing_of_it() {
    for of_all in [false, true] {
        let mut mesh = Mesh::with_telemetries();
        mesh.list_all(10, &[namespace_object("own", "smc", 1)], &[]);
        mesh.list(Kind::Telemetry, 10, &[]);
        mesh.next();
        let scope = mesh.scope();
        let listed = (!of_all).then_some("own");
        mesh.list_unended_in(Kind::ServiceAccount, listed, &[account("own/a", 11)]);
        mesh.applied(Kind::Namespace, namespace_object("own", "osm", 12));
        let entry = scope["own"];
        let ends = if of_all {
            Change::ListEnded(ended(13), scope)
        } else {
            Change::NamespaceEnded(ended(13), "own".to_owned(), entry)
        };
        mesh.learn(Kind::ServiceAccount, ends);
        assert_eq!(next(&mut mesh), BTreeSet::from(["-Namespace own".to_owned()]), "{of_all}");
    }
}
