//! Each finding, once; and a sound mesh that has none.

use crate::catalog::fixtures::{
    group, http_rule, ip, name, namespace, pod, port, service, slice, split, target, tcp_route, tcp_rule,
};
use crate::catalog::{Catalog, Object, SourceEvent};
use AppProtocol::{Http, Tcp};
use Severity::{Error, Warning};
use smc_api::smi::{Rule, RuleKind, UdpRoute};
use smc_authority::ledger::MAX_SERVICE_ACCOUNTS_PER_NAMESPACE;
use smc_model::topology::{Readiness, Service, ServicePort, SliceEndpoint, TargetPort, Workload};
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Severity;
use smc_types::proxy_class::AppProtocol;

/// Severity, object and field of what is to be found.
type Finding = (Severity, &'static str, &'static str);

/// A mesh with a split, access by route and by port, and nothing wrong with it.
fn sound() -> Vec<Object> {
    let at =
        |service: Service, address: &str| Object::from(Service { cluster_ips: vec![ip(address)], ..service });
    vec![
        namespace("shop"),
        at(service("shop/root", "nothing", &[port(80, Http)]), "10.96.0.1"),
        at(service("shop/v1", "v1", &[port(80, Http)]), "10.96.0.2"),
        at(service("shop/v2", "v2", &[port(80, Http)]), "10.96.0.3"),
        Object::from(pod("shop/v1", "shop/v1", "v1", "10.0.0.1")),
        Object::from(pod("shop/v2", "shop/v2", "v2", "10.0.0.2")),
        Object::ServiceAccount("shop/client".parse().unwrap()),
        target(
            "shop/t1",
            "shop/v1",
            &["shop/client"],
            &[http_rule("shop/g", Some(&["/a"])), tcp_rule("shop/p")],
        ),
        target("shop/t2", "shop/v2", &["shop/client"], &[http_rule("shop/g", None)]),
        group("shop/g", &["/a", "/b"]),
        tcp_route("shop/p", &[80]),
        split("shop/s", "shop/root", &[("shop/v1", 1), ("shop/v2", 0)], &["shop/g"]),
    ]
}

#[test]
fn a_sound_mesh_has_no_problems() {
    assert_eq!(Catalog::of(sound()).problems(), []);
    assert_eq!(Catalog::default().problems(), []);
}

/// Faults in policy, each with the findings that it causes.
fn faults_in_policy() -> Vec<(Object, &'static [Finding])> {
    let udp = Rule { kind: RuleKind::UdpRoute, ..tcp_rule("shop/u") };
    let both: &[(&str, u32)] = &[("shop/v1", 1), ("shop/v2", 1)];
    vec![
        (
            target("shop/x", "away/v1", &["shop/client"], &[tcp_rule("shop/p")]),
            &[
                (Error, "TrafficTarget shop/x", "spec.destination.namespace"),
                (Warning, "TrafficTarget shop/x", "spec.destination"),
            ],
        ),
        (
            target(
                "shop/x",
                "shop/v1",
                &["shop/ghost"],
                &[http_rule("shop/gone", None), tcp_rule("shop/gone")],
            ),
            &[
                (Error, "TrafficTarget shop/x", "spec.rules[0].name"),
                (Error, "TrafficTarget shop/x", "spec.rules[1].name"),
                (Warning, "TrafficTarget shop/x", "spec.sources"),
            ],
        ),
        (
            target("shop/x", "shop/v1", &["shop/client"], &[http_rule("shop/g", Some(&["/a", "/z"])), udp]),
            &[
                (Error, "TrafficTarget shop/x", "spec.rules[0].matches"),
                (Warning, "TrafficTarget shop/x", "spec.rules[1]"),
            ],
        ),
        (
            target("shop/x", "shop/v2", &["shop/client"], &[http_rule("shop/g", None)]),
            &[(Warning, "TrafficTarget shop/x", "")],
        ),
        (
            Object::UdpRoute(UdpRoute { id: name("shop/u"), ports: [53].into() }),
            &[(Warning, "UDPRoute shop/u", "")],
        ),
        (split("shop/x", "shop/gone", both, &[]), &[(Error, "TrafficSplit shop/x", "spec.service")]),
        (
            split("shop/x", "shop/root", &[("shop/v1", 0), ("shop/gone", 0)], &[]),
            &[
                (Error, "TrafficSplit shop/x", "spec.backends"),
                (Warning, "TrafficSplit shop/x", "spec.backends[1].service"),
            ],
        ),
        (
            split("shop/x", "shop/root", both, &["shop/gone"]),
            &[(Error, "TrafficSplit shop/x", "spec.matches")],
        ),
    ]
}

/// Faults in services, pods and endpoints, each with the findings that it causes.
fn faults_in_services() -> Vec<(Object, &'static [Finding])> {
    let unnamed = ServicePort { target: TargetPort::Name("web".to_owned()), ..port(80, Http) };
    let v1 = |address: &str| Service {
        cluster_ips: vec![ip(address)],
        ..service("shop/v1", "v1", &[port(80, Http)])
    };
    let foreign =
        SliceEndpoint { addresses: vec![ip("192.0.2.1")], readiness: Readiness::Ready, workload: None };
    let with_stranger = |mut slice: smc_model::topology::EndpointSlice| {
        slice.endpoints.push(foreign.clone());
        Object::EndpointSlice(slice)
    };
    vec![
        (
            Object::from(Service {
                cluster_ips: vec![ip("10.96.0.1")],
                ..service("shop/x", "v1", &[unnamed.clone(), port(80, Tcp), port(80, Tcp)])
            }),
            &[
                (Error, "Service shop/x", "spec.clusterIPs"),
                (Error, "Service shop/x", "spec.ports[1].port"),
                (Error, "Service shop/x", "spec.ports[2].port"),
                (Warning, "Service shop/v1", "spec.ports"),
                (Warning, "Service shop/x", "spec.ports"),
                (Warning, "Service shop/x", "spec.ports[0].targetPort"),
            ],
        ),
        (
            Object::from(Service { cluster_ips: vec![], headless: true, ..service("shop/x", "none", &[]) }),
            &[(Warning, "Service shop/x", "spec.ports"), (Warning, "Service shop/x", "spec.selector")],
        ),
        (
            Object::from(Service {
                cluster_ips: vec![ip("10.96.0.2")],
                ..service("shop/a", "v1", &[port(80, Http)])
            }),
            &[(Error, "Service shop/v1", "spec.clusterIPs")],
        ),
        (
            Object::from(Workload { injection: Some(false), ..pod("shop/x", "shop/v1", "v1", "10.0.0.7") }),
            &[(Warning, "Service shop/v1", "spec.selector")],
        ),
        (
            Object::from(Service { ports: vec![port(80, Tcp), port(81, Http)], ..v1("10.96.0.2") }),
            &[(Warning, "TrafficSplit shop/s", "spec.backends[0].service")],
        ),
        (
            with_stranger(slice("shop/x", "shop/v1", &[("other", 1)], &["10.0.0.1"])),
            &[
                (Warning, "EndpointSlice shop/x", "endpoints"),
                (Warning, "EndpointSlice shop/x", "ports[0].name"),
            ],
        ),
        (
            Object::EndpointSlice(slice("shop/x", "away/v1", &[], &[])),
            &[(Error, "EndpointSlice shop/x", "metadata.labels.kubernetes.io/service-name")],
        ),
        (
            Object::EndpointSlice(slice("shop/x", "shop/gone", &[], &[])),
            &[(Warning, "EndpointSlice shop/x", "metadata.labels.kubernetes.io/service-name")],
        ),
    ]
}

#[test]
fn every_finding_names_the_object_and_the_field() {
    for (object, expected) in faults_in_policy().into_iter().chain(faults_in_services()) {
        let shown = format!("{object:?}");
        let mut catalog = Catalog::of(sound());
        catalog.declare(object);
        let problems = catalog.problems();
        let found: Vec<_> =
            problems.iter().map(|p| (p.severity, p.subject.to_string(), p.field.as_str())).collect();
        let expected: Vec<_> =
            expected.iter().map(|&(s, subject, field)| (s, subject.to_owned(), field)).collect();
        assert_eq!(found, expected, "{shown}\n{problems:#?}");
    }
}

#[test]
fn matches_on_a_root_port_that_is_not_http_are_reported() {
    let mut catalog = Catalog::of(sound());
    let root = service("shop/root", "nothing", &[port(80, Http), port(90, Tcp)]);
    catalog.declare(Object::from(root));
    let fields: Vec<_> = catalog.problems().into_iter().map(|p| p.field).collect();
    assert_eq!(fields, ["spec.backends[0].service", "spec.backends[1].service", "spec.matches"]);
}

#[test]
fn a_namespace_with_too_many_identities_is_named_and_no_other() {
    let pods = |namespace: &str, count: usize| -> Vec<Object> {
        let pod_of = |n| {
            let id = format!("{namespace}/p{n}");
            Object::from(pod(&id, &id, "app", &format!("10.0.{}.{}", n / 250, n % 250)))
        };
        (0..count).map(pod_of).collect()
    };
    let most = MAX_SERVICE_ACCOUNTS_PER_NAMESPACE;
    let mut objects = vec![namespace("shop"), namespace("many")];
    objects.extend(pods("shop", 3).into_iter().chain(pods("many", most)));
    let named = |objects: &[Object]| {
        let problems = Catalog::of(objects.to_vec()).problems();
        let errors = problems.into_iter().filter(|problem| problem.severity == Error);
        errors.map(|problem| problem.subject.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(named(&objects), Vec::<String>::new());
    objects.push(Object::from(pod("many/one-more", "many/one-more", "app", "10.1.0.1")));
    assert_eq!(named(&objects), ["Namespace many"]);
}

/// What was found is kept until a change makes its check due: with each fault, with each object that is
/// missing, and when all is well again.
#[test]
fn what_is_kept_of_the_problems_is_what_a_search_finds() {
    let sound_again = |reference: &ObjectRef| {
        let object = sound().into_iter().find(|object| object.reference() == *reference);
        object.map_or_else(|| SourceEvent::Remove(reference.clone()), SourceEvent::Upsert)
    };
    let faults = faults_in_policy().into_iter().chain(faults_in_services());
    let faults = faults.map(|(object, _)| SourceEvent::Upsert(object));
    let missing = sound().into_iter().map(|object| SourceEvent::Remove(object.reference()));
    let mut catalog = Catalog::of(sound());
    catalog.recheck();
    for event in faults.chain(missing) {
        let reference = match &event {
            SourceEvent::Upsert(object) => object.reference(),
            SourceEvent::Remove(reference) => reference.clone(),
        };
        catalog.apply(event);
        assert_eq!(catalog.problems(), catalog.searched(), "{reference}");
        catalog.recheck();
        assert_eq!(catalog.problems(), catalog.searched(), "{reference}");
        catalog.apply(sound_again(&reference));
        assert_eq!(catalog.problems(), [], "without {reference}");
        catalog.recheck();
    }
}
