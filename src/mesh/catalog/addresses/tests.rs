//! Two namespaces that claim one address.

use super::*;
use crate::catalog::Object;
use crate::catalog::fixtures::{
    account, ip, namespace, pod, port, service, service_id, target, tcp_route, tcp_rule,
};
use smc_types::object_ref::Kind;
use smc_types::proxy_class::AppProtocol::Http;

/// A service at a virtual address.
fn at(id: &str, address: &str) -> Service {
    Service { cluster_ips: vec![ip(address)], ..service(id, "app", &[port(80, Http)]) }
}

fn headless(id: &str) -> Service {
    Service { cluster_ips: Vec::new(), headless: true, ..service(id, "app", &[port(80, Http)]) }
}

fn mesh(services: impl IntoIterator<Item = Service>, pods: &[(&str, &str)]) -> Catalog {
    let pods = pods.iter().map(|(id, address)| Object::from(pod(id, id, "app", address)));
    let services = services.into_iter().map(Object::from);
    Catalog::of([namespace("shop"), namespace("aaa")].into_iter().chain(pods).chain(services))
}

/// The addresses of a service, and what is reported of it.
fn dialled(catalog: &Catalog, id: &str) -> (Vec<String>, Vec<String>) {
    let service = catalog.service(&service_id(id)).unwrap();
    let ports = service.ports.iter().flat_map(|port| catalog.dialled(service, port));
    let subject = format!("Service {id}");
    let problems = catalog.problems().into_iter().filter(|problem| {
        problem.subject.to_string() == subject
            && (problem.field == "spec.clusterIPs" || problem.field == "spec.selector")
    });
    (
        ports.map(|(ip, port)| format!("{ip}:{port}")).collect(),
        problems.map(|problem| problem.message).collect(),
    )
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn the_status_of_a_pod_does_not_take_the_address_of_a_service() {
    let both = [("shop/web", "10.1.0.1"), ("aaa/evil", "10.96.0.1")];
    let catalog = mesh([at("shop/web", "10.96.0.1"), headless("aaa/evil")], &both);
    assert_eq!(dialled(&catalog, "shop/web"), (texts(&["10.96.0.1:80"]), vec![]));
    let report =
        "matches a pod at 10.96.0.1, which is an address of Service shop/web; it is not reached there";
    assert_eq!(dialled(&catalog, "aaa/evil"), (vec![], texts(&[report])));
}

#[test]
fn an_address_that_two_namespaces_claim_leads_to_neither() {
    let both = [("shop/web", "10.1.0.1"), ("aaa/evil", "10.1.0.2")];
    let catalog = mesh([at("shop/web", "10.96.0.1"), at("aaa/evil", "10.96.0.1")], &both);
    let report =
        |other: &str| format!("has 10.96.0.1, which is Service {other}'s too: callers reach neither there");
    assert_eq!(dialled(&catalog, "shop/web"), (vec![], vec![report("aaa/evil")]));
    assert_eq!(dialled(&catalog, "aaa/evil"), (vec![], vec![report("shop/web")]));

    let both = [("shop/db", "10.1.0.1"), ("aaa/evil", "10.1.0.1"), ("shop/other", "10.1.0.2")];
    let mut catalog = mesh([headless("shop/db"), headless("aaa/evil")], &both);
    let report = |other: &str| {
        format!("matches a pod at 10.1.0.1, which is an address of Service {other}; it is not reached there")
    };
    assert_eq!(dialled(&catalog, "shop/db"), (texts(&["10.1.0.2:80"]), vec![report("aaa/evil")]));
    assert_eq!(dialled(&catalog, "aaa/evil"), (vec![], vec![report("shop/db")]));
    // Once one of them is gone, the other has the address.
    catalog.withdraw(Kind::Service, "aaa/evil");
    assert_eq!(dialled(&catalog, "shop/db"), (texts(&["10.1.0.1:80", "10.1.0.2:80"]), vec![]));
}

#[test]
fn services_of_one_namespace_may_share_an_address() {
    let catalog = mesh([at("shop/a", "10.96.0.1"), at("shop/b", "10.96.0.1")], &[("shop/web", "10.1.0.1")]);
    assert_eq!(dialled(&catalog, "shop/a"), (texts(&["10.96.0.1:80"]), vec![]));
    let report = "has 10.96.0.1, which is Service shop/a's: callers cannot tell them apart";
    assert_eq!(dialled(&catalog, "shop/b"), (texts(&["10.96.0.1:80"]), texts(&[report])));
}

#[test]
fn who_loses_or_regains_an_address_is_named() {
    let pods = [("shop/web", "10.1.0.1"), ("aaa/evil", "10.1.0.1")];
    let mut catalog = mesh([headless("shop/web")], &pods);
    catalog.declare(tcp_route("shop/all", &[]));
    catalog.declare(target("shop/t", "shop/web", &["shop/caller"], &[tcp_rule("shop/all")]));
    for step in [
        Object::from(headless("aaa/evil")),
        Object::from(at("aaa/evil", "10.1.0.1")),
        Object::from(at("aaa/evil", "10.96.0.9")),
    ] {
        let text = format!("{step:?}");
        assert!(catalog.declare(step).accounts.contains(&account("shop/caller")), "{text}");
    }
}
