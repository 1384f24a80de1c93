use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::catalog::{Catalog, Object, SourceEvent};
use smc_api::smi::read_http_route_group;
use smc_types::object_ref::{Kind, ObjectRef};

fn id(name: &str) -> NamespacedName {
    name.parse().unwrap()
}

/// A group with one match for each expression, named by its place.
fn group(name: &str, expressions: &[String]) -> SourceEvent {
    let matches = expressions.iter().enumerate();
    let matches = matches.map(|(i, text)| json!({"name": format!("m{i:03}"), "headers": [{"h": text}]}));
    let spec = json!({"matches": matches.collect::<Vec<Value>>()});
    SourceEvent::Upsert(Object::HttpRouteGroup(read_http_route_group(id(name), spec).object.unwrap()))
}

/// A group whose expressions are no other's, and take all that one group may.
fn hostile(name: &str) -> SourceEvent {
    let expressions: Vec<String> =
        (0..64).map(|i| format!("a{{0,480}}{}{i}", name.replace('/', "-"))).collect();
    group(name, &expressions)
}

fn small(name: &str) -> SourceEvent {
    group(name, &[name.replace('/', "-")])
}

fn remove(name: &str) -> SourceEvent {
    SourceEvent::Remove(ObjectRef::Namespaced(Kind::HttpRouteGroup, id(name)))
}

fn catalog(events: impl IntoIterator<Item = SourceEvent>) -> Catalog {
    let mut catalog = Catalog::default();
    for event in events {
        catalog.apply(event);
    }
    catalog
}

fn matches(catalog: &Catalog, name: &str) -> usize {
    catalog.route_groups.get(&id(name)).unwrap().matches.len()
}

/// The groups that have a problem.
fn reported(catalog: &Catalog) -> Vec<String> {
    let about =
        |problem: &Problem| problem.message.contains("more work").then(|| problem.subject.to_string());
    catalog.problems().iter().filter_map(about).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn a_namespace_has_steps_for_its_first_groups_and_no_other_namespaces() {
    let names = ["shop/a", "shop/b", "shop/c", "shop/d", "shop/e", "other/a"];
    let all = catalog(names.iter().map(|name| hostile(name)).chain([small("shop/f"), small("other/f")]));
    let left: Vec<usize> = names.iter().map(|name| matches(&all, name)).collect();
    assert!(left[..4].iter().all(|matches| *matches > 0), "{left:?}");
    assert_eq!((left[4], matches(&all, "shop/f")), (0, 0));
    assert!(left[5] == left[0] && matches(&all, "other/f") == 1);
    let expected = ["other/a", "shop/a", "shop/b", "shop/c", "shop/d", "shop/e", "shop/f"];
    assert_eq!(reported(&all), expected.map(|name| format!("HTTPRouteGroup {name}")));
    assert_eq!(
        all.route_groups.made(),
        5 * MAX_STEPS + all.route_groups.namespaces["other"].steps - MAX_STEPS
    );
}

#[test]
fn when_a_group_goes_those_after_it_get_what_it_took() {
    let names = ["shop/a", "shop/b", "shop/c", "shop/d"];
    let mut mesh = catalog(names.iter().map(|name| hostile(name)).chain([small("shop/e")]));
    assert_eq!(matches(&mesh, "shop/e"), 0);
    mesh.apply(remove("shop/b"));
    assert_eq!(matches(&mesh, "shop/e"), 1);
    mesh.apply(hostile("shop/aa"));
    assert_eq!(matches(&mesh, "shop/e"), 0);
    mesh.apply(small("shop/a"));
    assert_eq!(matches(&mesh, "shop/e"), 1);
    for name in names {
        mesh.apply(remove(name));
    }
    mesh.apply(remove("shop/aa"));
    mesh.apply(remove("shop/e"));
    assert_eq!(mesh, Catalog::default(), "nothing is left of them");
}

/// As at a start: the objects come in the order of their names.
#[test]
fn a_namespace_of_hostile_groups_takes_its_budget_once() {
    let names: Vec<String> = (0..200).map(|i| format!("shop/g{i:03}")).collect();
    let mut mesh = catalog(names.iter().map(|name| hostile(name)));
    assert_eq!(mesh.route_groups.made(), MAX_NAMESPACE);
    for name in &names {
        mesh.apply(hostile(name));
    }
    assert_eq!(mesh.route_groups.made(), MAX_NAMESPACE, "they are listed again");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Also through states in which other groups had what was left.
    #[test]
    fn which_matches_are_left_out_depends_on_the_objects_alone(
        steps in prop::collection::vec((0..6_usize, 0..3_usize), 1..16),
    ) {
        let mut last = std::collections::BTreeMap::new();
        let mut mesh = Catalog::default();
        for (name, what) in steps {
            let name = format!("shop/g{name}");
            let event = match what {
                0 => hostile(&name),
                1 => small(&name),
                _ => remove(&name),
            };
            mesh.apply(event.clone());
            last.insert(name, event);
        }
        let at_once = catalog(last.values().cloned());
        prop_assert_eq!(&mesh, &at_once);
        let backwards = catalog(last.into_values().rev());
        prop_assert_eq!(&mesh, &backwards);
    }
}
