//! Which objects each resource is made of: what a rejection of the resource is reported on.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use smc_mesh::translate::Compiler;
use smc_testkit::mesh::*;
use smc_types::proxy_class::AppProtocol::{Http, Tcp};
use smc_xds::names;
use smc_xds::resource::{Resource, ResourceType};
use smc_xds::served_state::{Changed, View};

/// a calls b over HTTP, split by matches and by weight, and over TCP, split by weight.
fn shop() -> Compiler {
    let mut compiler = compiler("roots");
    compiler.apply(["shop/a", "shop/b"].map(|account| certify(account, "chain", "key")));
    let ports = [(80, 8080, Http), (90, 9090, Tcp)];
    compiler.apply([
        namespace("shop"),
        pod("shop/a", "shop/a", "a", &["10.1.0.1"]),
        pod("shop/b", "shop/b", "b", &["10.1.0.2"]),
        service("shop/b", "b", &["10.9.0.1"], &ports),
        service("shop/b-v1", "b", &["10.9.0.2"], &ports),
        service("shop/pods", "b", &[], &ports),
        group("shop/beta", &json!([{"name": "beta", "headers": [{"x-beta": "yes"}]}])),
        group("shop/buy", &json!([{"name": "buy", "pathRegex": "/buy"}])),
        tcp("shop/all", &[]),
        split("shop/by-match", "b", &[("b-v1", 1)], &["beta", "missing"]),
        split("shop/by-weight", "b", &[("b-v1", 1), ("b", 9)], &[]),
        target(
            "shop/buyers",
            "shop/b",
            &["shop/a"],
            &[("HTTPRouteGroup", "buy"), ("HTTPRouteGroup", "gone")],
        ),
        target("shop/everything", "shop/b", &["shop/a"], &[("TCPRoute", "all")]),
    ]);
    compiler
}

fn resource(view: &View, kind: ResourceType, name: &str) -> Arc<Resource> {
    Arc::clone(view.get(kind, name).unwrap_or_else(|| panic!("{name} is served")))
}

#[test]
fn every_resource_names_the_objects_that_it_is_made_of() {
    use ResourceType::{Cluster, Endpoint, Listener, Route, Secret};
    let compiler = shop();
    let behind_b = ["Service shop/b", "Service shop/b-v1", "Service shop/pods"];
    for (pod, kind, name, expected) in [
        ("shop/a", Cluster, "shop/b|80", vec!["Service shop/b"]),
        ("shop/a", Endpoint, "shop/b|80", vec!["Service shop/b"]),
        ("shop/a", Cluster, "shop/pods|90|pod", vec!["Service shop/pods"]),
        ("shop/a", Secret, "root-cert-for-mtls-outbound:shop/b", vec![]),
        ("shop/a", Secret, names::SERVICE_CERTIFICATE, vec![]),
        ("shop/a", Cluster, names::ADMIN_CLUSTER, vec![]),
        ("shop/a", Route, "outbound_shop/b-v1_80", vec!["Service shop/b-v1"]),
        (
            "shop/a",
            Route,
            "outbound_shop/b_80",
            vec![
                "Service shop/b",
                "HTTPRouteGroup shop/beta",
                "TrafficSplit shop/by-match",
                "TrafficSplit shop/by-weight",
            ],
        ),
        // Of the splits only the one that applies to TCP is in the listener.
        (
            "shop/a",
            Listener,
            names::OUTBOUND_LISTENER,
            [&behind_b[..], &["TrafficSplit shop/by-weight"]].concat(),
        ),
        ("shop/b", Cluster, "local|8080|http", behind_b.to_vec()),
        (
            "shop/b",
            Route,
            "inbound_8080_http",
            [
                &behind_b[..],
                &["TrafficTarget shop/buyers", "TrafficTarget shop/everything"],
                &["HTTPRouteGroup shop/buy", "TCPRoute shop/all"],
            ]
            .concat(),
        ),
        // Routes have the rules of HTTP, so only the target that applies to TCP is in the listener.
        (
            "shop/b",
            Listener,
            names::INBOUND_LISTENER,
            [&behind_b[..], &["TrafficTarget shop/everything", "TCPRoute shop/all"]].concat(),
        ),
    ] {
        let resource = resource(&view(&compiler, pod).unwrap(), kind, name);
        let objects: Vec<_> = resource.made_of.iter().map(ToString::to_string).collect();
        assert_eq!(objects, expected, "{pod}: {name}");
        let distinct: BTreeSet<_> = resource.made_of.iter().collect();
        assert!(distinct.into_iter().eq(&*resource.made_of), "{name}: sorted, without duplicates");
    }
}

#[test]
fn resources_of_the_same_objects_share_one_list_of_them() {
    let view = view(&shop(), "shop/a").unwrap();
    let cluster = resource(&view, ResourceType::Cluster, "shop/b|80");
    for (kind, name) in [(ResourceType::Cluster, "shop/b|90"), (ResourceType::Endpoint, "shop/b|80")] {
        assert!(Arc::ptr_eq(&resource(&view, kind, name).made_of, &cluster.made_of), "{name}");
    }
}

#[test]
fn another_object_of_equal_content_changes_no_version_and_is_named() {
    let mut compiler = shop();
    let route = |compiler: &Compiler| {
        resource(&view(compiler, "shop/b").unwrap(), ResourceType::Route, "inbound_8080_http")
    };
    let (before, generation) = (route(&compiler), compiler.served_state().generation);
    // A rule named it all along, and it allows what another group allows already.
    let same = json!([{"name": "same", "pathRegex": "/buy"}]);
    assert!(compiler.apply([group("shop/gone", &same)]), "it is served");
    let after = route(&compiler);
    assert_eq!((after.version, &after.any()), (before.version, &before.any()));
    let named =
        |resource: &Resource| resource.made_of.iter().any(|o| o.to_string() == "HTTPRouteGroup shop/gone");
    assert_eq!((named(&before), named(&after)), (false, true));
    let class = view(&compiler, "shop/b").unwrap().class;
    assert_eq!(
        compiler.served_state().changed_since(generation, &class),
        Changed::Names(BTreeSet::new()),
        "no proxy is sent anything"
    );
}
