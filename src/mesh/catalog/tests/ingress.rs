//! What IngressBackends open, whom their changes concern, and what is wrong between them and others.

use std::collections::BTreeSet;

use crate::catalog::fixtures::{accounts, group, namespace, pod, port, service, slice};
use crate::catalog::{Affected, Catalog, Object};
use crate::policy::MAX_IDENTITY;
use crate::policy::fixtures::{ingress, name};
use smc_api::osm::IngressBackend;
use smc_model::ingress::IngressGrantees;
use smc_model::regex::Pattern;
use smc_model::topology::{Namespace, Readiness, Service, TargetPort, Workload};
use smc_types::object_ref::Kind;
use smc_types::problem::Severity;
use smc_types::proxy_class::AppProtocol::{Http, Http2, Tcp};

/// `shop/web` at port 8080 of its pod, and `edge/gateway` in a namespace without sidecars.
fn shop() -> Vec<Object> {
    let Object::Namespace(edge) = namespace("edge") else { unreachable!("a namespace") };
    let mut web = service("shop/web", "web", &[port(80, Http), port(7000, Tcp)]);
    web.ports[0].target = TargetPort::Number(8080);
    let gateway = service("edge/gateway", "gateway", &[port(80, Http)]);
    vec![
        namespace("shop"),
        Object::Namespace(Namespace { injection: Some(false), ..edge }),
        Object::from(web),
        Object::from(pod("shop/web", "shop/web", "web", "10.0.0.1")),
        Object::from(Service { cluster_ips: vec!["10.96.0.9".parse().unwrap()], ..gateway }),
        Object::from(pod("edge/gateway", "edge/gateway", "gateway", "10.0.1.1")),
        group("shop/g", &["/a"]),
    ]
}

fn opened() -> IngressBackend {
    ingress("shop/i", "shop/web", 8080, &["edge/gateway"], &[])
}

/// From which addresses `shop/web` lets an ingress in.
fn lets_in(catalog: &Catalog) -> Vec<String> {
    let account = "shop/web".parse().unwrap();
    let chains =
        catalog.classes(&account).flat_map(|class| catalog.inbound_intent(class, MAX_IDENTITY).ingress);
    let grants = chains.flat_map(|chain| chain.grants);
    let addresses = grants.flat_map(|grant| match grant.sources {
        IngressGrantees::Addresses(addresses) => addresses,
        IngressGrantees::Principals(..) => BTreeSet::new(),
    });
    addresses.map(|address| address.to_string()).collect()
}

#[test]
fn the_routes_of_an_ingress_are_known_by_host() {
    let mut catalog = Catalog::of(shop());
    let web = "shop/web".parse().unwrap();
    assert_eq!(catalog.ingress_routes_per_host(&web).len(), 0);
    catalog.declare(Object::from(opened()));
    let any = catalog.ingress_routes_per_host(&web);
    assert_eq!(
        any.iter().map(|(host, routes)| (host.as_str(), routes.len())).collect::<Vec<_>>(),
        [("*", 1)]
    );

    let Object::HttpRouteGroup(mut hosts) = group("shop/hosts", &["/a", "/b", "/c"]) else { unreachable!() };
    for (matched, host) in hosts.matches.values_mut().zip(["one", "two", "one"]) {
        matched.headers.insert("host".to_owned(), Pattern::whole(host).unwrap());
    }
    catalog.declare(Object::HttpRouteGroup(hosts));
    let matches = Some([name("shop/hosts"), name("shop/g")].into());
    catalog.declare(Object::from(IngressBackend { matches, ..opened() }));
    let hosts = catalog.ingress_routes_per_host(&web);
    let counts: Vec<_> = hosts.iter().map(|(host, routes)| (host.as_str(), routes.len())).collect();
    assert_eq!(counts, [("*", 1), ("one", 2), ("two", 1)]);
}

fn inbound_only(names: &[&str]) -> Affected {
    Affected { inbound: accounts(names), ..Affected::default() }
}

#[test]
fn endpoints_of_a_source_are_let_in_in_the_mesh_or_not_ready_or_not() {
    let mut catalog = Catalog::of(shop());
    assert_eq!(catalog.declare(Object::from(opened())), inbound_only(&["shop/web"]));
    assert_eq!(lets_in(&catalog), ["10.0.1.1/32"]);
    let gateway = |address: &str, readiness| {
        let pod = pod("edge/gateway", "edge/gateway", "gateway", address);
        Object::from(Workload { readiness, ..pod })
    };
    assert_eq!(
        catalog.declare(gateway("10.0.1.1", Readiness::NotReady)),
        Affected::default(),
        "it is the same"
    );
    assert_eq!(catalog.declare(gateway("10.0.1.2", Readiness::NotReady)), inbound_only(&["shop/web"]));
    assert_eq!(lets_in(&catalog), ["10.0.1.2/32"]);
    // Slices say it where there are any: a gateway may be outside of the cluster.
    catalog.declare(Object::EndpointSlice(slice(
        "edge/e",
        "edge/gateway",
        &[("p80", 80)],
        &["192.0.2.1", "fd00::1"],
    )));
    assert_eq!(lets_in(&catalog), ["192.0.2.1/32", "fd00::1/128"]);
    assert_eq!(catalog.withdraw(Kind::EndpointSlice, "edge/e"), inbound_only(&["shop/web"]));
    assert_eq!(catalog.withdraw(Kind::Service, "edge/gateway").inbound, accounts(&["shop/web"]));
    assert_eq!(lets_in(&catalog), [""; 0]);
    assert_eq!(catalog.withdraw(Kind::IngressBackend, "shop/i"), inbound_only(&["shop/web"]));
    assert_eq!(
        catalog,
        Catalog::of(shop().into_iter().filter(|object| {
            let name = object.reference().to_string();
            name != "Service edge/gateway" && name != "Pod edge/gateway"
        }))
        .and([gateway("10.0.1.2", Readiness::NotReady)])
    );
}

#[test]
fn a_namespace_that_is_in_no_mesh_has_no_sources() {
    let mut catalog = Catalog::of(shop()).and([Object::from(opened())]);
    let Object::Namespace(edge) = namespace("edge") else { unreachable!("a namespace") };
    let left = catalog.declare(Object::Namespace(Namespace { monitored: false, ..edge }));
    assert_eq!((left.inbound, lets_in(&catalog)), (accounts(&["shop/web"]), vec![]));
}

/// Each with what is found of it: the severity, the field, and words of the message.
#[test]
fn what_an_object_cannot_open_is_found_with_the_way_out() {
    use Severity::{Error, Warning};
    let with = |service: &str, port: u16, from: &[&str], ranges: &[&str]| {
        ingress("shop/i", service, port, from, ranges)
    };
    let matching = |groups: &[&str]| IngressBackend {
        matches: Some(groups.iter().map(|group| name(group)).collect()),
        ..opened()
    };
    let many: Vec<String> = (0..1024).map(|i| format!("192.0.{}.{}/32", i / 256, i % 256)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (case, object, expected) in [
        ("nothing is wrong", opened(), None),
        ("a group", matching(&["shop/g"]), None),
        (
            "no such service",
            with("shop/gone", 80, &["edge/gateway"], &[]),
            Some((Error, "spec.backends", "does not exist")),
        ),
        (
            "the Service's own port",
            with("shop/web", 80, &["edge/gateway"], &[]),
            Some((Error, "spec.backends", "here 8080")),
        ),
        (
            "no port of it",
            with("shop/web", 81, &["edge/gateway"], &[]),
            Some((Error, "spec.backends", "no target port")),
        ),
        (
            "a port without HTTP",
            with("shop/web", 7000, &["edge/gateway"], &[]),
            Some((Error, "spec.backends", "does not carry HTTP")),
        ),
        (
            "no such source",
            with("shop/web", 8080, &["edge/gone"], &["10.0.0.0/8"]),
            Some((Warning, "spec.sources", "does not exist")),
        ),
        (
            "a source of no mesh",
            with("shop/web", 8080, &["away/gateway"], &["10.0.0.0/8"]),
            Some((Warning, "spec.sources", "not in the mesh")),
        ),
        (
            "no endpoints",
            with("shop/web", 8080, &["edge/empty"], &["10.0.0.0/8"]),
            Some((Warning, "spec.sources", "no endpoints")),
        ),
        ("no such group", matching(&["shop/gone"]), Some((Error, "spec.matches", "does not exist"))),
        ("too many addresses", with("shop/web", 8080, &[], &many), Some((Error, "spec.sources", "1024"))),
    ] {
        let empty = service("edge/empty", "nothing", &[port(80, Http)]);
        let empty = Service { cluster_ips: vec!["10.96.0.8".parse().unwrap()], ..empty };
        let sound = Catalog::of(shop()).and([Object::from(empty)]);
        let known = sound.problems();
        let catalog = sound.and([Object::from(object)]);
        let mut found = catalog.problems();
        found.retain(|problem| !known.contains(problem));
        let seen: Vec<_> = found.iter().map(|problem| (problem.severity, problem.field.as_str())).collect();
        let wanted = expected.map(|(severity, field, _)| (severity, field));
        assert_eq!(seen, Vec::from_iter(wanted), "{case}: {found:?}");
        let words = expected.map_or("", |(.., words)| words);
        assert!(found.iter().all(|problem| problem.message.contains(words)), "{case}: {found:?}");
        assert_eq!(catalog.problems(), catalog.searched(), "{case}");
    }
}

#[test]
fn a_port_in_two_protocols_is_reached_in_the_first_of_them() {
    let mut other = service("shop/grpc", "web", &[port(81, Http2)]);
    other.ports[0].target = TargetPort::Number(8080);
    let catalog = Catalog::of(shop()).and([
        Object::from(other),
        Object::from(opened()),
        Object::from(ingress("shop/grpc", "shop/grpc", 8080, &[], &["192.0.2.0/24"])),
    ]);
    assert_eq!(lets_in(&catalog), ["10.0.1.1/32"]);
    let problems = catalog.problems();
    let of = |name: &str| problems.iter().filter(|problem| problem.subject.to_string() == name).count();
    assert_eq!((of("IngressBackend shop/i"), of("IngressBackend shop/grpc")), (0, 1), "{problems:?}");
}
