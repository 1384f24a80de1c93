//! What the catalog answers and what events affect, rule by rule.

mod batches;
mod ingress;
mod last_resort;
mod machines;

use std::collections::BTreeSet;

use super::fixtures::{
    account, accounts, ip, name, namespace, open_namespace, permissive, pod, port, service, service_id,
    slice, split, target, tcp_route, tcp_rule,
};
use super::{Affected, Catalog, Endpoint, Object, SourceEvent};
use AppProtocol::{Http, Tcp};
use smc_model::topology::{Namespace, Readiness, Service, ServicePort, TargetPort, Workload};
use smc_types::ids::{MeshNamespace, ServiceAccountId, ServiceId, TrustDomain};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::{AppProtocol, InboundPort};

/// Namespace `shop` with service `web` on port 80, behind it pods `w1` and `w2` of account `shop/web`, and
/// a pod of account `shop/client` that may reach it.
fn shop() -> Vec<Object> {
    vec![
        namespace("shop"),
        Object::from(service("shop/web", "web", &[port(80, Http)])),
        Object::from(pod("shop/w1", "shop/web", "web", "10.0.0.1")),
        Object::from(pod("shop/w2", "shop/web", "web", "10.0.0.2")),
        Object::from(pod("shop/c1", "shop/client", "client", "10.0.0.9")),
        target("shop/t", "shop/web", &["shop/client"], &[tcp_rule("shop/any")]),
        tcp_route("shop/any", &[]),
    ]
}

fn endpoints(catalog: &Catalog, service: &str, port: u16) -> Vec<(String, u16)> {
    let service = service_id(service);
    let declared = ServicePort { name: None, port, target: TargetPort::Number(port), protocol: Http };
    let endpoints = catalog.endpoints(&service, &declared);
    endpoints.map(|endpoint| (endpoint.ip.to_string(), endpoint.port)).collect()
}

fn at(addresses: &[(&str, u16)]) -> Vec<(String, u16)> {
    addresses.iter().map(|&(ip, port)| (ip.to_owned(), port)).collect()
}

fn inbound(port: u16, protocol: AppProtocol, services: &[&str]) -> InboundPort {
    InboundPort { port, protocol, services: services.iter().map(|id| service_id(id)).collect() }
}

#[test]
fn endpoints_are_the_ready_pods_that_match_in_the_services_namespace() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(namespace("other"));
    catalog.declare(Object::from(pod("other/w", "other/web", "web", "10.0.1.1")));
    let unready =
        Workload { readiness: Readiness::NotReady, ..pod("shop/w3", "shop/web", "web", "10.0.0.3") };
    catalog.declare(Object::from(unready));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.1", 80), ("10.0.0.2", 80)]));
    let first = catalog.endpoints(&service_id("shop/web"), &port(80, Http)).next().cloned().unwrap();
    let expected = Endpoint {
        ip: ip("10.0.0.1"),
        port: 80,
        workload: "shop/w1".parse().unwrap(),
        service_account: account("shop/web"),
    };
    assert_eq!(first, expected);
    assert_eq!(catalog.workloads_behind(&service_id("shop/web")).count(), 3, "ready or not");
}

/// The pod's annotation decides, or else the namespace's.
#[test]
fn a_monitored_namespace_and_an_annotation_put_a_pod_into_the_mesh() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(Object::from(Workload {
        injection: Some(false),
        ..pod("shop/w1", "shop/web", "web", "10.0.0.1")
    }));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.2", 80)]));
    catalog.declare(Object::Namespace(Namespace {
        name: "shop".to_owned(),
        monitored: false,
        injection: None,
        metrics: false,
        permissive: false,
        access_log: None,
    }));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[]));
    assert_eq!(catalog.accounts().count(), 0);
    catalog.declare(Object::from(Workload {
        injection: Some(true),
        ..pod("shop/w1", "shop/web", "web", "10.0.0.1")
    }));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[]), "a pod cannot bring itself in");
    let refusing = Namespace {
        name: "shop".to_owned(),
        monitored: true,
        injection: Some(false),
        metrics: false,
        permissive: false,
        access_log: None,
    };
    catalog.declare(Object::Namespace(refusing));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.1", 80)]), "its own annotation wins");
}

/// A pod without a port of that name has no endpoint.
#[test]
fn a_named_target_port_is_resolved_for_each_pod() {
    let mut catalog = Catalog::of(shop());
    let named = ServicePort { target: TargetPort::Name("http".to_owned()), ..port(80, Http) };
    catalog.declare(Object::from(service("shop/web", "web", &[named])));
    for (id, address, number) in [("shop/w1", "10.0.0.1", 8080), ("shop/w2", "10.0.0.2", 9090)] {
        let mut pod = pod(id, "shop/web", "web", address);
        pod.ports.insert("http".to_owned(), number);
        catalog.declare(Object::from(pod));
    }
    catalog.declare(Object::from(pod("shop/w3", "shop/web", "web", "10.0.0.3")));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.1", 8080), ("10.0.0.2", 9090)]));
    let ports = |id: &str| catalog.inbound_ports(&id.parse().unwrap());
    assert_eq!(ports("shop/w1"), [inbound(8080, Http, &["shop/web"])]);
    assert_eq!(ports("shop/w3"), []);
    assert_eq!(catalog.classes(&account("shop/web")).count(), 3);
}

#[test]
fn a_dual_stack_service_has_an_endpoint_per_family_it_has_an_address_in() {
    let mut catalog = Catalog::of([namespace("shop")]);
    let mut web = pod("shop/w1", "shop/web", "web", "10.0.0.1");
    web.ips.push(ip("fd00::1"));
    catalog.declare(Object::from(web));
    let mut with = |ips: &[&str], headless: bool| {
        let cluster_ips = ips.iter().map(|text| ip(text)).collect();
        let service = service("shop/web", "web", &[port(80, Http)]);
        catalog.declare(Object::from(super::Service { cluster_ips, headless, ..service }));
        (
            endpoints(&catalog, "shop/web", 80),
            catalog.headless_addresses(&service_id("shop/web"), &port(80, Http)),
        )
    };
    let (four, six) = (at(&[("10.0.0.1", 80)]), at(&[("fd00::1", 80)]));
    let both = at(&[("10.0.0.1", 80), ("fd00::1", 80)]);
    assert_eq!(with(&["10.96.0.1"], false), (four, vec![]));
    assert_eq!(with(&["fd01::1"], false), (six, vec![]));
    assert_eq!(with(&["10.96.0.1", "fd01::1"], false).0, both);
    assert_eq!(with(&[], true), (both, vec![(ip("10.0.0.1"), 80), (ip("fd00::1"), 80)]));
    let class = catalog.class(&"shop/w1".parse().unwrap()).unwrap();
    assert!(class.ipv4 && class.ipv6);
}

#[test]
fn endpoint_slices_take_precedence_over_the_selector() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(Object::EndpointSlice(slice(
        "shop/s",
        "shop/web",
        &[("p80", 8080)],
        &["10.0.0.2", "192.0.2.7"],
    )));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.2", 8080)]));
    let stranger =
        catalog.problems().into_iter().find(|p| p.subject.to_string() == "EndpointSlice shop/s").unwrap();
    assert!(stranger.message.contains("192.0.2.7"), "{stranger}");
    catalog.withdraw(Kind::EndpointSlice, "shop/s");
    assert_eq!(endpoints(&catalog, "shop/web", 80).len(), 2);
}

#[test]
fn a_slice_serves_a_service_without_selector_and_opens_inbound_ports() {
    let mut catalog = Catalog::of(shop());
    let bare = super::Service { selector: [].into(), ..service("shop/bare", "", &[port(90, Tcp)]) };
    catalog.declare(Object::from(bare));
    catalog.declare(Object::EndpointSlice(slice("shop/s", "shop/bare", &[("p90", 9090)], &["10.0.0.9"])));
    assert_eq!(endpoints(&catalog, "shop/bare", 90), at(&[("10.0.0.9", 9090)]));
    assert_eq!(catalog.inbound_ports(&"shop/c1".parse().unwrap()), [inbound(9090, Tcp, &["shop/bare"])]);
    assert_eq!(catalog.accounts_behind(&service_id("shop/bare")), accounts(&["shop/client"]));
}

#[test]
fn a_slice_reaches_neither_pods_nor_services_of_another_namespace() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(namespace("evil"));
    let bait = super::Service { selector: [].into(), ..service("evil/bait", "", &[port(80, Http)]) };
    catalog.declare(Object::from(bait));
    catalog.declare(Object::EndpointSlice(slice("evil/s", "evil/bait", &[("p80", 80)], &["10.0.0.1"])));
    catalog.declare(Object::EndpointSlice(slice("evil/t", "shop/web", &[("p80", 6666)], &["10.0.0.1"])));
    assert_eq!(endpoints(&catalog, "evil/bait", 80), at(&[]));
    assert_eq!(endpoints(&catalog, "shop/web", 80).len(), 2);
    assert_eq!(catalog.services_of(&"shop/w1".parse().unwrap()), BTreeSet::from([service_id("shop/web")]));
}

#[test]
fn of_two_pods_at_one_address_the_only_ready_one_is_meant() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(Object::EndpointSlice(slice("shop/s", "shop/web", &[("p80", 80)], &["10.0.0.1"])));
    let finished =
        Workload { readiness: Readiness::NotReady, ..pod("shop/job", "shop/job", "job", "10.0.0.1") };
    catalog.declare(Object::from(finished));
    assert_eq!(
        catalog.endpoints(&service_id("shop/web"), &port(80, Http)).next().unwrap().service_account,
        account("shop/web")
    );
    catalog.declare(Object::from(pod("shop/job", "shop/job", "job", "10.0.0.1")));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[]), "two ready ones are a conflict");
    assert!(
        catalog
            .problems()
            .iter()
            .any(|p| p.subject.to_string() == "Pod shop/job" && p.field == "status.podIPs")
    );
}

#[test]
fn a_pod_of_several_services_lists_each_also_when_protocols_disagree() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(Object::from(service("shop/also", "web", &[port(80, Http), port(81, Http)])));
    catalog.declare(Object::from(service("shop/raw", "web", &[port(80, Tcp)])));
    let ports = catalog.inbound_ports(&"shop/w1".parse().unwrap());
    let expected = [
        inbound(80, Http, &["shop/also", "shop/web"]),
        inbound(80, Tcp, &["shop/raw"]),
        inbound(81, Http, &["shop/also"]),
    ];
    assert_eq!(ports, expected);
    let reported =
        catalog.problems().into_iter().filter(|p| p.field == "spec.ports").map(|p| p.subject.to_string());
    assert_eq!(reported.collect::<Vec<_>>(), ["Service shop/also", "Service shop/raw", "Service shop/web"]);
}

#[test]
fn a_sidecar_that_two_pods_of_a_namespace_claim_is_nobody_s() {
    let mut catalog = Catalog::of(shop());
    let original = pod("shop/w1", "shop/web", "web", "10.0.0.1");
    let name = original.proxy_name();
    assert_eq!(catalog.workload_by_proxy(&name).map(|w| &w.id), Some(&original.id));
    let thief = Workload { proxy: original.proxy, ..pod("shop/x", "shop/thief", "x", "10.0.0.66") };
    let affected = catalog.declare(Object::from(thief));
    assert!(affected.proxies.contains(&name));
    assert_eq!(catalog.workload_by_proxy(&name), None);
    let reported: Vec<_> = catalog
        .problems()
        .into_iter()
        .filter(|p| p.subject.to_string().starts_with("Pod"))
        .map(|p| p.subject.to_string())
        .collect();
    assert_eq!(reported, ["Pod shop/w1", "Pod shop/x"]);
    catalog.withdraw(Kind::Pod, "shop/x");
    assert!(catalog.workload_by_proxy(&name).is_some());
}

#[test]
fn a_uuid_copied_in_another_namespace_changes_nothing_for_the_first() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(namespace("evil"));
    let problems = catalog.problems();
    let original = pod("shop/w1", "shop/web", "web", "10.0.0.1");
    let thief = Workload { proxy: original.proxy, ..pod("evil/x", "evil/thief", "x", "10.0.0.66") };
    let affected = catalog.declare(Object::from(thief.clone()));
    assert_eq!(affected.proxies, [thief.proxy_name()].into());
    for pod in [&original, &thief] {
        assert_eq!(catalog.workload_by_proxy(&pod.proxy_name()).map(|found| &found.id), Some(&pod.id));
    }
    assert_eq!(catalog.problems(), problems);
    let affected = catalog.withdraw(Kind::Pod, "evil/x");
    assert_eq!(affected.proxies, [thief.proxy_name()].into());
    assert!(catalog.workload_by_proxy(&original.proxy_name()).is_some());
}

#[test]
fn the_mesh_config_of_another_namespace_opens_and_shuts_nothing() {
    let mut catalog = Catalog::of([permissive("tenant", true)]);
    assert!(!catalog.mesh_config().permissive);
    assert!(catalog.declare(permissive("smc-system", true)).everything);
    assert_eq!(catalog.declare(permissive("tenant", false)), Affected::default());
    assert!(catalog.mesh_config().permissive);
    let problems: Vec<_> =
        catalog.problems().into_iter().map(|problem| problem.subject.to_string()).collect();
    assert_eq!(problems, ["MeshConfig tenant/osm-mesh-config"]);
    catalog.declare(permissive("tenant", true));
    assert!(catalog.withdraw(Kind::MeshConfig, "smc-system/osm-mesh-config").everything);
    assert!(!catalog.mesh_config().permissive, "gone, or refused, it opens nothing");

    let mut elsewhere = Catalog::new(MeshNamespace::new("tenant").unwrap(), TrustDomain::new("x").unwrap());
    assert!(elsewhere.declare(permissive("tenant", true)).everything);
    assert!(elsewhere.mesh_config().permissive);
}

// What an event affects.

fn endpoints_only(services: &[&str]) -> Affected {
    Affected { endpoints: services.iter().map(|id| service_id(id)).collect(), ..Affected::default() }
}

fn accounts_only(names: &[&str]) -> Affected {
    Affected { accounts: accounts(names), ..Affected::default() }
}

#[test]
fn an_unchanged_object_affects_nothing() {
    let mut catalog = Catalog::of(shop());
    for object in shop() {
        assert_eq!(catalog.declare(object), Affected::default());
    }
    for kind in [Kind::Pod, Kind::Service, Kind::TrafficTarget, Kind::TrafficSplit, Kind::MeshConfig] {
        assert_eq!(catalog.withdraw(kind, "shop/missing"), Affected::default());
    }
}

#[test]
fn a_pod_that_turns_unready_touches_endpoints_only() {
    let mut catalog = Catalog::of(shop());
    let unready =
        Workload { readiness: Readiness::NotReady, ..pod("shop/w1", "shop/web", "web", "10.0.0.1") };
    assert_eq!(catalog.declare(Object::from(unready)), endpoints_only(&["shop/web"]));
}

#[test]
fn a_pod_that_changes_its_address_touches_endpoints_only() {
    let mut catalog = Catalog::of(shop());
    let moved = pod("shop/w1", "shop/web", "web", "10.0.0.77");
    assert_eq!(catalog.declare(Object::from(moved)), endpoints_only(&["shop/web"]));
}

#[test]
fn another_pod_of_a_class_touches_endpoints_and_its_own_sidecar_only() {
    let mut catalog = Catalog::of(shop());
    let third = pod("shop/w3", "shop/web", "web", "10.0.0.3");
    let expected = Affected { proxies: [third.proxy_name()].into(), ..endpoints_only(&["shop/web"]) };
    assert_eq!(catalog.declare(Object::from(third)), expected);
    assert_eq!(catalog.withdraw(Kind::Pod, "shop/w3"), expected);
}

#[test]
fn a_pod_of_a_new_account_touches_that_account_and_the_callers() {
    let mut catalog = Catalog::of(shop());
    let canary = pod("shop/w3", "shop/canary", "web", "10.0.0.3");
    let expected = Affected {
        accounts: accounts(&["shop/canary", "shop/client"]),
        proxies: [canary.proxy_name()].into(),
        ..endpoints_only(&["shop/web"])
    };
    assert_eq!(catalog.declare(Object::from(canary)), expected);
}

#[test]
fn an_address_behind_a_headless_service_touches_its_callers_too() {
    let mut catalog = Catalog::of(shop());
    let headless = super::Service {
        cluster_ips: vec![],
        headless: true,
        ..service("shop/web", "web", &[port(80, Http)])
    };
    catalog.declare(Object::from(headless));
    let moved = pod("shop/w1", "shop/web", "web", "10.0.0.77");
    let expected = Affected { accounts: accounts(&["shop/client"]), ..endpoints_only(&["shop/web"]) };
    assert_eq!(catalog.declare(Object::from(moved)), expected);
}

#[test]
fn a_service_that_begins_to_keep_its_callers_touches_them_alone() {
    let keeping = |id: &str, app: &str| {
        let affinity = smc_model::topology::SessionAffinity::ClientIp;
        Object::from(super::Service { affinity, ..service(id, app, &[port(80, Http)]) })
    };
    let mut catalog = Catalog::of(shop());
    assert_eq!(catalog.declare(keeping("shop/web", "web")), accounts_only(&["shop/client"]));
    // As a backend of a split, too, of which its callers dial the root alone.
    let mut catalog = Catalog::of(shop());
    catalog.declare(Object::from(service("shop/root", "none", &[port(80, Http)])));
    catalog.declare(split("shop/s", "shop/root", &[("shop/web", 1)], &[]));
    assert_eq!(catalog.declare(keeping("shop/web", "web")), accounts_only(&["shop/client"]));
}

#[test]
fn a_target_touches_its_destination_and_the_sources_it_had_and_has() {
    let mut catalog = Catalog::of(shop());
    let affected = catalog.declare(target("shop/t", "shop/web", &["shop/other"], &[tcp_rule("shop/any")]));
    assert_eq!(affected, accounts_only(&["shop/client", "shop/other", "shop/web"]));
}

#[test]
fn a_target_touches_no_source_that_keeps_what_it_may_call() {
    let mut catalog = Catalog::of(shop());
    let rules = [tcp_rule("shop/any")];
    let both = || target("shop/t", "shop/web", &["shop/client", "shop/other"], &rules);
    assert_eq!(catalog.declare(both()), accounts_only(&["shop/other", "shop/web"]));
    let narrower = target("shop/t", "shop/web", &["shop/client", "shop/other"], &[tcp_rule("shop/late")]);
    let all = accounts_only(&["shop/client", "shop/other", "shop/web"]);
    assert_eq!(catalog.declare(narrower), all, "it grants nothing any more");
    let dangling = target("shop/t", "shop/web", &["shop/client"], &[tcp_rule("shop/late")]);
    assert_eq!(catalog.declare(dangling), Affected::default(), "it grants nothing yet");
    assert_eq!(catalog.declare(both()), all);
}

/// A source depends on it if all that it may call hangs on the route.
#[test]
fn a_route_touches_its_destinations_and_sources_that_depend_on_it() {
    let mut catalog = Catalog::of(shop());
    assert_eq!(catalog.declare(tcp_route("shop/any", &[80])), accounts_only(&["shop/web"]));
    assert_eq!(catalog.declare(tcp_route("shop/unused", &[80])), Affected::default());
    assert_eq!(catalog.withdraw(Kind::TcpRoute, "shop/any"), accounts_only(&["shop/client", "shop/web"]));
}

#[test]
fn a_split_touches_those_who_can_reach_its_root_or_a_leaf() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(Object::from(service("shop/root", "nothing", &[port(80, Http)])));
    catalog.declare(Object::from(pod("shop/x", "shop/bystander", "x", "10.0.0.8")));
    let affected = catalog.declare(split("shop/s", "shop/root", &[("shop/web", 1)], &[]));
    assert_eq!(affected, accounts_only(&["shop/client"]));
}

#[test]
fn a_service_touches_its_callers_and_those_behind_it() {
    let mut catalog = Catalog::of(shop());
    let affected = catalog.declare(Object::from(service("shop/web", "web", &[port(81, Http)])));
    assert_eq!(affected.accounts, accounts(&["shop/client", "shop/web"]));
    assert_eq!(affected.endpoints, BTreeSet::<ServiceId>::from([service_id("shop/web")]));
    assert_eq!(affected.proxies.len(), 2);
}

/// The policy meant is access policy.
#[test]
fn in_permissive_mode_policy_touches_nothing_and_a_service_all() {
    let mut catalog = Catalog::of(shop());
    assert!(catalog.declare(permissive("smc-system", true)).everything);
    assert_eq!(catalog.withdraw(Kind::TrafficTarget, "shop/t"), Affected::default());
    let affected = catalog.declare(Object::from(service("shop/new", "web", &[port(82, Http)])));
    let everybody: BTreeSet<ServiceAccountId> = catalog.accounts().cloned().collect();
    assert_eq!(affected.accounts, everybody);
}

/// All may call what opens, and lose it when it closes or leaves.
#[test]
fn a_namespace_that_opens_or_closes_touches_all_identities() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(namespace("away"));
    catalog.declare(Object::from(pod("away/p", "away/bystander", "p", "10.0.9.1")));
    let everybody: BTreeSet<ServiceAccountId> = catalog.accounts().cloned().collect();
    assert_eq!(catalog.declare(open_namespace("shop")).accounts, everybody);
    assert_eq!(catalog.withdraw(Kind::TrafficTarget, "shop/t"), Affected::default(), "it has no effect");
    assert_eq!(catalog.declare(namespace("shop")).accounts, everybody);
    catalog.declare(open_namespace("shop"));
    let left = catalog.apply(SourceEvent::Remove(ObjectRef::Namespace("shop".to_owned())));
    assert!(left.accounts.contains(&account("away/bystander")));
    assert_eq!(catalog.declare(open_namespace("empty")), Affected::default(), "nothing runs there");
}

#[test]
fn splits_are_listed_by_root_in_the_order_of_their_names() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(split("shop/b", "shop/web", &[("shop/v1", 1)], &[]));
    catalog.declare(split("shop/a", "shop/web", &[("shop/v2", 1)], &[]));
    let names: Vec<_> = catalog.splits_of(&service_id("shop/web")).iter().map(|s| s.id.clone()).collect();
    assert_eq!(names, [name("shop/a"), name("shop/b")]);
}

/// Issue 31, finding 6: half a megabyte of YAML stood for minutes of processor time and gigabytes.
#[test]
fn a_product_of_workloads_services_and_ports_is_counted_before_it_is_made() {
    let ports: Vec<_> = (0..200).map(|number| port(1000 + number, Http)).collect();
    let services: Vec<_> = (0..32).map(|number| format!("shop/s{number}")).collect();
    let mut catalog = Catalog::of([namespace("shop"), namespace("next")]);
    for id in &services {
        catalog.declare(Object::from(Service { ports: ports.clone(), ..service(id, "many", &[]) }));
    }
    catalog.declare(Object::from(service("shop/small", "many", &[port(80, Http)])));
    catalog.declare(Object::from(service("next/web", "web", &[port(80, Http)])));
    catalog.declare(Object::from(pod("next/web", "next/web", "web", "10.9.0.1")));
    for number in 0..1000 {
        let (id, ip) = (format!("shop/p{number}"), format!("10.0.{}.{}", number / 250, number % 250 + 1));
        catalog.declare(Object::from(pod(&id, "shop/many", "many", &ip)));
    }
    let endpoints = |catalog: &Catalog, id: &str| {
        let id = service_id(id);
        let ports = catalog.service(&id).unwrap().ports.clone();
        ports.iter().map(|port| catalog.endpoints(&id, port).count()).sum::<usize>()
    };
    let all: usize = services.iter().map(|id| endpoints(&catalog, id)).sum();
    assert_eq!(all, 0, "each alone is over the budget");
    assert_eq!(endpoints(&catalog, "shop/small"), 1000, "the one that costs least is not cut");
    assert_eq!(endpoints(&catalog, "next/web"), 1, "nor is a neighbour");
    // Callers are refused, as where nothing is ready, and never sent out of the mesh.
    assert_eq!(catalog.accounts_behind(&service_id("shop/s0")), accounts(&["shop/many"]));
    let cut = |catalog: &Catalog| {
        let mut problems = catalog.problems();
        problems.retain(|problem| problem.message.starts_with("stands for"));
        problems
    };
    let problems = cut(&catalog);
    assert_eq!(problems.len(), 32);
    assert_eq!(problems[0].subject.to_string(), "Service shop/s0");
    assert!(problems[0].message.starts_with("stands for 200000 endpoints"), "{}", problems[0].message);
    // Fewer pods, and all have theirs again.
    for number in 20..1000 {
        catalog.withdraw(Kind::Pod, &format!("shop/p{number}"));
    }
    assert_eq!(endpoints(&catalog, "shop/s0"), 20 * 200);
    assert_eq!(cut(&catalog), []);
}
