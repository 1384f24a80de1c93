//! What the sidecars of a namespace that leaves the mesh are served, until their pods are replaced.

use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3::Listener;
use smc_mesh::catalog::{Object, SourceEvent};
use smc_mesh::translate::{Compiler, Input};
use smc_model::topology::Namespace;
use smc_testkit::mesh::*;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_xds::names;
use smc_xds::resource::ResourceType;
use smc_xds::served_state::View;

use super::{ACCOUNTS, get, hosts, parts, served};

/// The namespace: in the mesh or not, and with a word about sidecars for its new pods.
fn shop_is(monitored: bool, injection: Option<bool>) -> Input {
    upsert(Object::Namespace(Namespace {
        name: "shop".to_owned(),
        monitored,
        injection,
        metrics: false,
        permissive: false,
        access_log: None,
    }))
}

/// The pod that this input adds, with a sidecar that it has and keeps.
fn injected(input: Input) -> Input {
    let Input::Source(SourceEvent::Upsert(Object::Workload(mut pod))) = input else { return input };
    Arc::make_mut(&mut pod).injection = Some(true);
    upsert(Object::Workload(pod))
}

/// The mesh of the other tests, whose pods have their sidecars.
fn shop(permissive: bool, egress: bool) -> Compiler {
    let mut compiler = compiler("roots");
    compiler.apply(ACCOUNTS.map(|account| certify(account, "chain", "key")));
    compiler.apply(parts().into_iter().map(injected));
    compiler.apply([mesh_config(permissive, egress)]);
    compiler
}

fn gone(pod: &str) -> Input {
    remove(ObjectRef::Namespaced(Kind::Pod, pod.parse().unwrap()))
}

/// The services that a connection is matched to, and whether others pass.
fn matched(view: &View) -> (Vec<String>, bool) {
    let listener: Listener = get(view, ResourceType::Listener, names::OUTBOUND_LISTENER);
    let chains = listener.filter_chains.into_iter().map(|chain| chain.name);
    (chains.filter(|name| name != "loop-guard").collect(), listener.default_filter_chain.is_some())
}

/// What "smc namespace remove" does first.
#[test]
fn a_namespace_that_injects_no_more_keeps_the_sidecars_that_it_has() {
    let mut compiler = shop(true, true);
    assert!(!compiler.apply([shop_is(true, Some(false))]), "no proxy is sent anything");
    assert_eq!(hosts(&view(&compiler, "shop/a").unwrap(), "shop/b|80"), ["10.1.0.2", "10.1.0.3"]);
}

#[test]
fn remaining_sidecars_never_speak_tls_to_a_pod_without_one() {
    for egress in [true, false] {
        let mut compiler = shop(true, egress);
        compiler.apply([shop_is(true, Some(false))]);
        let b = |name: &str, ip: &str| pod(name, "shop/b1", "b", &[ip]);
        // Both pods of b restart, one after the other; the new ones have no sidecar.
        compiler.apply([b("shop/new1", "10.1.0.12"), gone("shop/b1")]);
        let a = view(&compiler, "shop/a").unwrap();
        assert_eq!(hosts(&a, "shop/b|80"), ["10.1.0.3"], "the pod with a sidecar takes all");
        compiler.apply([b("shop/new2", "10.1.0.13"), gone("shop/b2")]);
        let a = view(&compiler, "shop/a").unwrap();
        let expected = vec!["outbound_shop/db_3306_tcp-server-first".to_owned()];
        assert_eq!(matched(&a), (expected, egress), "it is a service outside of the mesh");
        assert_eq!(served(&a, ResourceType::Endpoint), ["shop/db|3306"]);
        assert!(view(&compiler, "shop/new1").is_none());
        let reported = compiler.problems().into_iter().find(|p| p.subject.to_string() == "Service shop/b");
        let says = if egress { "in clear text" } else { "are refused" };
        assert!(reported.unwrap().message.contains(says));
    }
}

/// Without its label nothing is known of a namespace, so this is what may be done last.
#[test]
fn a_namespace_without_its_label_has_no_proxies_whatever_its_pods_have() {
    let mut compiler = shop(true, true);
    compiler.apply([shop_is(false, None)]);
    for pod in ACCOUNTS {
        assert!(view(&compiler, pod).is_none(), "{pod}");
    }
}

#[test]
fn policy_of_a_namespace_outside_of_the_mesh_says_that_it_has_no_effect() {
    let mut compiler = shop(false, false);
    compiler.apply([super::a_may_call("shop/b1"), split("shop/s", "b", &[("b", 1)], &["all-http"])]);
    let without_effect = |compiler: &Compiler| -> Vec<String> {
        let problems = compiler.problems().into_iter();
        let named = problems.filter(|problem| problem.field == "metadata.namespace");
        named.map(|problem| problem.subject.to_string()).collect()
    };
    assert_eq!(without_effect(&compiler), Vec::<String>::new());
    compiler.apply([shop_is(false, None)]);
    let expected = [
        "TrafficTarget shop/a-to-b1",
        "HTTPRouteGroup shop/all-http",
        "TCPRoute shop/all-tcp",
        "TrafficSplit shop/s",
    ];
    let mut found = without_effect(&compiler);
    found.sort_by_key(|name| expected.iter().position(|expected| expected == name));
    assert_eq!(found, expected);
}
