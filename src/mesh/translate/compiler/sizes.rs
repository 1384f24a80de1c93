//! Meshes in which a few objects stand for very much policy.

use std::collections::BTreeMap;

use super::*;
use crate::catalog::Object;
use crate::catalog::fixtures::{
    asking, extension_service, group, http_rule, limits as rate_limits, logging, longest_tls, namespace, pod,
    port, sent_to, service, target, tcp_route, tcp_rule, telemetry, traced,
};
use crate::policy::fixtures::wide_ingress;
use crate::policy::{MAX_IDENTITY, MAX_NAMESPACE};
use smc_model::access_log::Logged;
use smc_model::log_format::MAX_FORMAT;
use smc_model::rate_limit::{LocalRateLimits, Rate, RateUnit, RequestLimit, RouteLimit};
use smc_model::regex::Pattern;
use smc_model::topology::ServicePort;
use smc_types::ids::TrustDomain;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::AppProtocol::{Http, Tcp};

fn upsert(object: Object) -> Input {
    Input::Source(SourceEvent::Upsert(object))
}

fn remove(kind: Kind, name: &str) -> Input {
    Input::Source(SourceEvent::Remove(ObjectRef::Namespaced(kind, name.parse().unwrap())))
}

/// A pod of its own identity behind a service of its own, at 10.`at`.
fn workload(id: &str, at: &str, ports: &[ServicePort]) -> Vec<Input> {
    let name = id.split_once('/').unwrap().1;
    let mut service = service(id, name, ports);
    service.cluster_ips = vec![format!("10.9.{at}").parse().unwrap()];
    let certificate = ServiceCertificate { chain_pem: "chain".to_owned(), key_pem: "key".to_owned().into() };
    vec![
        upsert(Object::from(pod(id, id, name, &format!("10.1.{at}")))),
        upsert(Object::from(service)),
        Input::Certificate(id.parse().unwrap(), certificate),
    ]
}

/// The longest format of a log, for all pods of `shop`.
fn longest_log() -> Input {
    upsert(longest_format())
}

fn longest_format() -> Object {
    telemetry("shop/log", None, Some(&"x".repeat(MAX_FORMAT - 17)))
}

/// A group of so many matches of 900 bytes, which differ between editions.
fn large_group(id: &str, matches: usize, edition: usize) -> Input {
    let paths: Vec<_> = (0..matches).map(|i| format!("/{edition}/{i}/{}", "x".repeat(890))).collect();
    upsert(group(id, &paths.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// The mesh of a security review, with so many targets for `shop/server` and so many service ports, beside a
/// neighbour in another namespace.
fn greedy(targets: usize, ports: u16, matches: usize) -> Compiler {
    let mut compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()));
    let ports: Vec<_> = (0..ports).map(|i| port(8000 + i, Http)).collect();
    let mut inputs = vec![
        Input::Bundle(TrustBundle { pem: "roots".to_owned() }),
        upsert(namespace("shop")),
        upsert(namespace("calm")),
    ];
    inputs.extend(workload("calm/server", "1.1", &[port(80, Http)]));
    inputs.extend(workload("calm/client", "1.2", &[]));
    inputs.push(upsert(group("calm/all", &["/"])));
    inputs.push(upsert(target("calm/t", "calm/server", &["calm/client"], &[http_rule("calm/all", None)])));
    inputs.extend(workload("shop/server", "2.1", &ports));
    inputs.push(large_group("shop/large", matches, 0));
    inputs.extend((0..targets).map(|i| {
        let (id, source) = (format!("shop/t{i:03}"), format!("shop/client-{i}"));
        upsert(target(&id, "shop/server", &[&source], &[http_rule("shop/large", None)]))
    }));
    compiler.apply(inputs);
    compiler
}

/// The encoded bytes of all distinct resources that are served, in both forms.
fn served_bytes(compiler: &Compiler) -> usize {
    let served = compiler.served_state();
    let all = served.snapshots.values().flat_map(|snapshot| snapshot.resources());
    let distinct: BTreeMap<_, _> =
        all.map(|one| (Arc::as_ptr(one), one.any_len() + one.delta_len())).collect();
    distinct.values().sum()
}

fn snapshot(compiler: &Compiler, account: &str) -> Arc<Snapshot> {
    let served = compiler.served_state();
    let mut snapshots = served.snapshots.iter();
    let found = snapshots.find(|(class, _)| class.account.to_string() == account);
    Arc::clone(found.unwrap_or_else(|| panic!("{account} is served")).1)
}

fn left_out(compiler: &Compiler) -> Vec<String> {
    let problems =
        compiler.problems().into_iter().filter(|problem| problem.message.contains("take more than"));
    problems.map(|problem| problem.subject.to_string()).collect()
}

/// The bytes that a class's ports and policy take: routes, the inbound listener, and its validation contexts.
fn written(snapshot: &Snapshot) -> usize {
    let inbound = |resource: &&Arc<Resource>| {
        !resource.name.starts_with("outbound") && !resource.name.contains("outbound:")
    };
    snapshot.resources().filter(inbound).map(|resource| resource.any_len()).sum()
}

#[test]
fn a_few_objects_do_not_stand_for_gigabytes() {
    let compiler = greedy(200, 100, 256);
    let bytes = served_bytes(&compiler);
    let bound = 2 * usize::try_from(MAX_IDENTITY).unwrap() + 64 * 1024;
    assert!(bytes <= bound, "{bytes} bytes are served");
    let names = left_out(&compiler);
    assert_eq!(names.len(), 200, "each target takes more than there is");
    assert_eq!(names[0], "TrafficTarget shop/t000");
    // The offender's ports are there, and closed. Its neighbour is served.
    let server = snapshot(&compiler, "shop/server");
    assert_eq!(server.routes.keys().filter(|name| name.starts_with("inbound_")).count(), 100);
    assert!(server.routes.values().all(|route| route.any_len() < 1024), "nothing is allowed");
    let calm = greedy(0, 1, 1);
    assert_eq!(snapshot(&compiler, "calm/server"), snapshot(&calm, "calm/server"));
    assert_eq!(snapshot(&compiler, "calm/client"), snapshot(&calm, "calm/client"));
}

#[test]
fn targets_with_the_same_rules_share_one_policy() {
    let one = written(&snapshot(&greedy(1, 1, 256), "shop/server"));
    let compiler = greedy(100, 1, 256);
    let hundred = written(&snapshot(&compiler, "shop/server"));
    assert!(hundred < one + 100 * 100, "{one} bytes of one target, {hundred} of a hundred");
    assert_eq!(left_out(&compiler), [""; 0]);
}

#[test]
fn memory_goes_back_when_policy_goes() {
    let mut compiler = greedy(50, 4, 1);
    let before = compiler.interner.size();
    for edition in 1..=14 {
        compiler.apply([large_group("shop/large", 256, edition)]);
        assert_eq!(left_out(&compiler), [""; 0]);
        let (_, _, encoded) = compiler.interner.size();
        assert!(encoded < 3 << 20, "{encoded} bytes are held after {edition} edits");
    }
    compiler.apply([large_group("shop/large", 1, 0)]);
    assert_eq!(compiler.interner.size(), before);
    compiler.apply((0..50).map(|i| remove(Kind::TrafficTarget, &format!("shop/t{i:03}"))));
    compiler.apply([remove(Kind::HttpRouteGroup, "shop/large")]);
    let (_, bytes, encoded) = compiler.interner.size();
    assert!(bytes < before.1 + (256 << 10) && encoded < before.2, "{bytes} and {encoded}, before {before:?}");
}

#[test]
fn a_namespace_is_cut_to_its_bound_and_given_back_what_it_frees() {
    let mut compiler = greedy(0, 1, 1);
    let identities = 12;
    let account = |i: usize| format!("shop/a{i:02}");
    let mut inputs = vec![large_group("shop/large", 256, 0)];
    for i in 0..identities {
        // Seven ports of 230 KB each; twelve identities of that are more than a namespace may have.
        let ports: Vec<_> = (0..7).map(|number| port(8000 + number, Http)).collect();
        inputs.extend(workload(&account(i), &format!("3.{i}"), &ports));
        let source = format!("shop/client-{i}");
        let rules = [http_rule("shop/large", None)];
        inputs.push(upsert(target(&format!("shop/t{i:02}"), &account(i), &[&source], &rules)));
    }
    compiler.apply(inputs);
    let cut = left_out(&compiler);
    assert_eq!(cut.len(), identities, "all want the same");
    let bytes = served_bytes(&compiler);
    assert!(bytes <= 2 * usize::try_from(MAX_NAMESPACE).unwrap() + 64 * 1024, "{bytes}");
    assert!(!snapshot(&compiler, "calm/server").routes.is_empty());
    // Without one half, the other half is within the bound.
    compiler.apply((0..identities / 2).map(|i| remove(Kind::Pod, &account(i))));
    assert_eq!(left_out(&compiler), [""; 0]);
    let served = written(&snapshot(&compiler, &account(identities - 1)));
    assert!(served > 7 * 256 * 900, "{served}");
}

#[test]
fn what_an_ingress_takes_is_estimated_too_and_left_out_last() {
    let opened =
        |id: &str, many, tls| upsert(Object::from(wide_ingress(id, "shop/server", &[8000, 8001], many, tls)));
    // In clear text, over TLS, over mutual TLS with 30 names.
    let protocols = [None, Some((false, 0)), Some((true, 30))];
    for (many, matches) in [(1, 1), (200, 1), (200, 50)] {
        let mut compiler = greedy(2, 3, matches);
        for (i, protocol) in protocols.into_iter().enumerate() {
            compiler.apply([opened(&format!("shop/i{i}"), many, protocol)]);
            assert_eq!(left_out(&compiler), [""; 0]);
            let served = compiler.served_state();
            let (class, snapshot) = served
                .snapshots
                .iter()
                .find(|(class, _)| class.account.to_string() == "shop/server")
                .expect("it is served");
            let demand = usize::try_from(compiler.catalog().inbound_estimate(class).demand()).unwrap();
            let written = written(snapshot).saturating_sub(2048);
            assert!(written <= demand, "{many} {matches} {protocol:?}: {written} bytes, {demand} estimated");
            assert!(demand <= 3 * written + 8192, "{many} {matches} {protocol:?}: {written}, {demand}");
            compiler.apply([longest_log()]);
        }
    }
    // 40 of them with 250 matches each on two ports do not fit; what does is served, and the target is.
    let mut compiler = greedy(1, 2, 250);
    let many = (0..40).map(|i| opened(&format!("shop/i{i:02}"), 1, None));
    compiler.apply(many);
    let names = left_out(&compiler);
    assert!((30..40).contains(&names.len()), "{names:?}");
    assert_eq!(names.first().map(String::as_str), Some("IngressBackend shop/i03"), "{names:?}");
    let bytes = served_bytes(&compiler);
    assert!(bytes <= 2 * usize::try_from(MAX_IDENTITY).unwrap() + 64 * 1024, "{bytes} bytes are served");
}

/// What the server's inbound half is estimated to take, and what is written of it.
fn demand(compiler: &Compiler) -> (usize, usize) {
    let served = compiler.served_state();
    let class = served.snapshots.iter().find(|(class, _)| class.account.to_string() == "shop/server");
    let (class, snapshot) = class.expect("it is served");
    let demand = compiler.catalog().inbound_estimate(class).demand();
    (usize::try_from(demand).unwrap(), written(snapshot))
}

/// Each limit has an answer, and thus a filter, of its own.
#[test]
fn what_limits_take_is_estimated_from_above() {
    let limit = |place: u16, headers: usize| {
        let rate = Rate { amount: u32::MAX, unit: RateUnit::Hour, burst: u32::from(place) };
        let header = |other: usize| (format!("x-{place}-{other}"), "%".repeat(40));
        RequestLimit { rate, status: 429, headers: (0..headers).map(header).collect() }
    };
    let route = |place: u16, headers| RouteLimit {
        path: Pattern::prefix(&format!("/{place}/{}", "x".repeat(usize::from(place)))).unwrap(),
        limit: limit(place, headers),
    };
    for (connections, service, routes, headers) in [
        (true, false, 0, 0),
        (false, true, 0, 0),
        (true, true, 0, 30),
        (false, false, 60, 0),
        (true, true, 60, 1),
        (false, true, 20, 5),
    ] {
        let limits = LocalRateLimits {
            connections: connections.then(|| limit(1000, 0).rate),
            requests: service.then(|| limit(1000, headers)),
            routes: (0..routes).map(|place| route(place, headers)).collect(),
        };
        let mut compiler = greedy(2, 3, 1);
        // Both ways in from outside of the first two ports, beside the mesh.
        for (id, tls) in [("shop/clear", None), ("shop/tls", Some((false, 0)))] {
            compiler.apply([upsert(Object::from(wide_ingress(id, "shop/server", &[8000, 8001], 1, tls)))]);
        }
        let (demanded, wrote) = demand(&compiler);
        compiler.apply([upsert(rate_limits("shop/u", "shop/server", limits))]);
        assert_eq!(left_out(&compiler), [""; 0]);
        let (demands, writes) = demand(&compiler);
        let (demanded, wrote) = (demands - demanded, writes - wrote);
        assert!(
            wrote > 0 && wrote <= demanded,
            "{connections} {service} {routes} {headers}: {wrote}, {demanded} estimated"
        );
        assert!(
            demanded <= 5 * wrote,
            "{connections} {service} {routes} {headers}: {wrote}, {demanded} estimated"
        );
    }
}

/// A kilobyte for the server and the filter's configuration is the same for any number of ports.
#[test]
fn what_servers_are_asked_and_sent_is_estimated_from_above() {
    for (ports, config) in [1, 20].into_iter().flat_map(|n| [(n, asking("opa.example")), (n, traced())]) {
        let mut compiler = greedy(2, ports, 1);
        for (id, tls) in [("shop/clear", None), ("shop/tls", Some((false, 0)))] {
            compiler.apply([upsert(Object::from(wide_ingress(id, "shop/server", &[8000], 1, tls)))]);
        }
        let (demanded, wrote) = demand(&compiler);
        compiler.apply([upsert(config)]);
        let (demands, writes) = demand(&compiler);
        let (demanded, wrote) = (demands - demanded, (writes - wrote).saturating_sub(1024));
        assert!(wrote <= demanded && demanded <= 5 * wrote + 1024, "{ports}: {wrote}, {demanded} estimated");
    }
}

/// Half a kilobyte for the collector's cluster is the same for any number of ports.
#[test]
fn what_collectors_of_logs_are_sent_is_estimated_from_above() {
    let long = "%".repeat(2).repeat(MAX_FORMAT / 2 - 20);
    let numbers = format!("{{\"a\":[0{}]}}", ",-1.7976931348623157e308".repeat(61));
    let numbers = telemetry("shop/log", None, Some(&numbers));
    for (ports, format, attribute) in [
        (1, telemetry("shop/log", None, None), "x"),
        (20, telemetry("shop/log", None, None), &*long),
        (1, longest_format(), &*long),
        (20, longest_format(), "x"),
        (20, numbers, "x"),
    ] {
        let mut compiler = greedy(2, ports, 1);
        for (id, tls) in [("shop/clear", None), ("shop/tls", Some((false, 0)))] {
            compiler.apply([upsert(Object::from(wide_ingress(id, "shop/server", &[8000], 1, tls)))]);
        }
        // The filter that says which records are sent stands there twice.
        compiler.apply([upsert(logging(Logged::Failures)), upsert(format.clone())]);
        let (demanded, wrote) = demand(&compiler);
        compiler.apply([upsert(extension_service("shop/otel", "otel.example"))]);
        compiler.apply([upsert(sent_to(format, "shop/otel", attribute))]);
        let (demands, writes) = demand(&compiler);
        let (demanded, wrote) = (demands - demanded, (writes - wrote).saturating_sub(512));
        assert!(wrote > 0 && wrote <= demanded, "{ports}: {wrote}, {demanded} estimated");
        assert!(demanded <= 3 * wrote + 2048, "{ports}: {wrote}, {demanded} estimated");
    }
}

#[test]
fn what_tls_takes_is_estimated_from_above() {
    for ports in [1, 20] {
        let mut compiler = greedy(2, ports, 1);
        for (id, tls) in [("shop/clear", None), ("shop/tls", Some((false, 0)))] {
            compiler.apply([upsert(Object::from(wide_ingress(id, "shop/server", &[8000], 1, tls)))]);
        }
        compiler.apply(workload("shop/server", "2.1", &[port(8000, Tcp), port(8001, Http)]));
        let (demanded, wrote) = demand(&compiler);
        compiler.apply([upsert(longest_tls())]);
        let (demands, writes) = demand(&compiler);
        let (demanded, wrote) = (demands - demanded, writes - wrote);
        assert!(wrote > 0 && wrote <= demanded, "{ports}: {wrote}, {demanded} estimated");
        assert!(demanded <= 3 * wrote, "{ports}: {wrote}, {demanded} estimated");
    }
}

#[test]
fn the_estimate_is_not_below_what_is_written() {
    for (targets, ports, matches) in [(0, 1, 1), (1, 1, 1), (1, 8, 3), (40, 1, 1), (40, 3, 20), (3, 9, 100)] {
        let mut compiler = greedy(targets, ports, matches);
        let sources: Vec<_> = (0..50).map(|i| format!("shop/{i}")).collect();
        let sources: Vec<_> = sources.iter().map(String::as_str).collect();
        let mut extra = vec![
            upsert(tcp_route("shop/tcp", &[8000])),
            upsert(target("shop/tcp", "shop/server", &sources, &[tcp_rule("shop/tcp")])),
        ];
        extra.extend(workload("shop/server", "2.1", &[port(8000, Tcp), port(8001, Http)]));
        for step in [vec![], extra, vec![longest_log()]] {
            compiler.apply(step);
            assert_eq!(left_out(&compiler), [""; 0]);
            for (class, snapshot) in &compiler.served_state().snapshots {
                let demand = usize::try_from(compiler.catalog().inbound_estimate(class).demand()).unwrap();
                // Two kilobytes do not depend on policy: certificate, statistics.
                let written = written(snapshot).saturating_sub(2048);
                assert!(written <= demand, "{}: {written} bytes, {demand} estimated", class.account);
                assert!(demand <= 3 * written + 4096, "{}: {written}, {demand}", class.account);
            }
        }
    }
}
