//! Which Egresses hold for an identity, what a change of one affects, and what is wrong between them.

use super::*;
use crate::catalog::fixtures::{account, class, group, name, namespace, pod, port, service};
use crate::catalog::{Affected, Object, OutboundIntents, SourceEvent};
use crate::policy::fixtures::{egress, host};
use smc_api::osm::MeshConfig;
use smc_api::osm::egress::EgressProtocol::{Http, Https, TcpServerFirst};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Subject;
use smc_types::proxy_class::AppProtocol;

/// `x` and `y`, in a namespace of the mesh, and `x` in another one.
fn shop() -> Catalog {
    Catalog::of([
        namespace("shop"),
        namespace("other"),
        Object::from(pod("shop/x", "shop/x", "x", "10.0.0.1")),
        Object::from(pod("shop/y", "shop/y", "y", "10.0.0.2")),
        Object::from(pod("other/x", "other/x", "x", "10.0.0.3")),
    ])
}

fn https(id: &str, text: &str) -> Egress {
    egress(id, Some(&[host(text)]), None, &[(443, Https)])
}

fn upsert(catalog: &mut Catalog, object: Object) -> Affected {
    catalog.apply(SourceEvent::Upsert(object))
}

fn remove(catalog: &mut Catalog, kind: Kind, id: &str) -> Affected {
    catalog.apply(SourceEvent::Remove(ObjectRef::Namespaced(kind, name(id))))
}

fn config(change: impl FnOnce(&mut MeshConfig)) -> Object {
    let mut config = MeshConfig::default();
    change(&mut config);
    Object::MeshConfig(name("smc-system/osm-mesh-config"), config)
}

/// The ports that an identity may reach outside of the mesh.
fn ports(catalog: &Catalog, id: &str) -> Vec<u16> {
    OutboundIntents::default().of(catalog, &class(id)).egress.keys().copied().collect()
}

fn problems(catalog: &Catalog, id: &str) -> Vec<String> {
    let subject = Subject::Object(ObjectRef::Namespaced(Kind::Egress, name(id)));
    let problems = catalog.problems().into_iter().filter(|problem| problem.subject == subject);
    problems.map(|problem| format!("{}: {}", problem.field, problem.message)).collect()
}

#[test]
fn an_egress_holds_for_its_sources_and_a_change_concerns_nothing_else() {
    let mut catalog = shop();
    let affected = upsert(&mut catalog, Object::from(https("shop/e", "a.example")));
    let expected = Affected { accounts: [account("shop/x")].into(), ..Affected::default() };
    assert_eq!(affected, expected);
    assert_eq!((ports(&catalog, "shop/x"), ports(&catalog, "shop/y")), (vec![443], vec![]));
    // Another source: the former one is affected, too.
    let moved = Egress { sources: [account("shop/y")].into(), ..https("shop/e", "a.example") };
    let affected = upsert(&mut catalog, Object::from(moved));
    assert_eq!(affected.accounts, [account("shop/x"), account("shop/y")].into());
    assert_eq!((ports(&catalog, "shop/x"), ports(&catalog, "shop/y")), (vec![], vec![443]));
    let affected = remove(&mut catalog, Kind::Egress, "shop/e");
    assert_eq!(affected.accounts, [account("shop/y")].into());
    assert_eq!(catalog, shop());
}

#[test]
fn groups_that_come_and_go_concern_the_sources_that_they_restrict() {
    let mut catalog = shop();
    let object = egress("shop/e", Some(&[host("a.example")]), None, &[(80, Http)]);
    upsert(&mut catalog, Object::from(Egress { matches: Some([name("shop/g")].into()), ..object }));
    assert_eq!(ports(&catalog, "shop/x"), [0_u16; 0]);
    let found = problems(&catalog, "shop/e");
    assert!(found.len() == 1 && found[0].contains("no request in clear text passes"), "{found:?}");
    let affected = upsert(&mut catalog, group("shop/g", &["/a"]));
    assert_eq!(affected.accounts, [account("shop/x")].into());
    assert_eq!((ports(&catalog, "shop/x"), problems(&catalog, "shop/e")), (vec![80], vec![]));
    let affected = upsert(&mut catalog, group("shop/other", &["/a"]));
    assert!(affected.accounts.is_empty());
}

#[test]
fn the_settings_of_the_mesh_ignore_egresses_or_make_them_moot() {
    let mut catalog = shop();
    upsert(&mut catalog, Object::from(https("shop/e", "a.example")));
    let affected = upsert(&mut catalog, config(|config| config.ignores_egress = true));
    assert_eq!((affected.everything, affected.accounts), (false, [account("shop/x")].into()));
    assert_eq!(ports(&catalog, "shop/x"), [0_u16; 0]);
    assert!(problems(&catalog, "shop/e")[0].contains("enableEgressPolicy"));
    let affected = upsert(&mut catalog, config(|config| config.egress = true));
    assert!(affected.everything);
    assert_eq!(ports(&catalog, "shop/x"), [0_u16; 0]);
    assert!(problems(&catalog, "shop/e")[0].contains("adds nothing"));
    upsert(&mut catalog, config(|_| {}));
    assert_eq!((ports(&catalog, "shop/x"), problems(&catalog, "shop/e")), (vec![443], vec![]));
}

#[test]
fn a_host_that_is_a_service_of_the_mesh_is_named_as_one() {
    let mut catalog = shop();
    upsert(&mut catalog, Object::from(https("shop/e", "web.other.svc.cluster.local")));
    assert_eq!(problems(&catalog, "shop/e"), [""; 0]);
    let service = service("other/web", "x", &[port(80, AppProtocol::Http)]);
    upsert(&mut catalog, Object::from(service));
    let found = problems(&catalog, "shop/e");
    assert!(found.len() == 1 && found[0].contains("Service other/web of the mesh"), "{found:?}");
    catalog.apply(SourceEvent::Remove(ObjectRef::Namespace("other".to_owned())));
    assert_eq!(problems(&catalog, "shop/e"), [""; 0]);
    catalog.apply(SourceEvent::Remove(ObjectRef::Namespace("shop".to_owned())));
    let found = problems(&catalog, "shop/e");
    assert!(found.len() == 1 && found[0].starts_with("metadata.namespace"), "{found:?}");
}

/// The identities of a namespace share what it may have, and objects that do not fit are named.
#[test]
fn objects_for_which_there_is_no_room_are_named_and_a_neighbour_is_served() {
    let mut catalog = shop();
    let hosts: Vec<_> = (0..100).map(|place| host(&format!("h{place}.example"))).collect();
    for place in 0..40 {
        let object = egress(&format!("shop/e{place:02}"), Some(&hosts), None, &[(443, Https)]);
        upsert(&mut catalog, Object::from(object));
    }
    upsert(&mut catalog, Object::from(https("other/e", "a.example")));
    let left_out = |catalog: &Catalog| {
        let problems = catalog.problems().into_iter();
        problems.filter(|problem| problem.message.contains("take more than")).count()
    };
    let alone = left_out(&catalog);
    assert!((20..40).contains(&alone), "{alone}");
    assert!(problems(&catalog, "shop/e39")[0].contains("for ServiceAccount shop/x"));
    assert_eq!(ports(&catalog, "other/x"), [443]);
    // The ninth identity of the namespace makes the shares of all smaller.
    for place in 0..8 {
        let source = [account(&format!("shop/z{place}"))].into();
        let object = Egress { sources: source, ..https(&format!("shop/f{place}"), "a.example") };
        let affected = upsert(&mut catalog, Object::from(object));
        assert_eq!(affected.accounts.contains(&account("shop/x")), place == 7, "{place}");
    }
    assert!(left_out(&catalog) > alone);
}

#[test]
fn both_authors_hear_that_a_server_that_speaks_first_is_waited_for() {
    let mut catalog = shop();
    upsert(&mut catalog, Object::from(https("shop/a", "a.example")));
    let first = egress("shop/b", None, Some(&["192.0.2.0/24"]), &[(443, TcpServerFirst)]);
    upsert(&mut catalog, Object::from(first));
    for id in ["shop/a", "shop/b"] {
        let found = problems(&catalog, id);
        assert!(found.len() == 1 && found[0].contains("port 443, which the Egresses of"), "{found:?}");
    }
    remove(&mut catalog, Kind::Egress, "shop/a");
    assert_eq!(problems(&catalog, "shop/b"), [""; 0]);
}
