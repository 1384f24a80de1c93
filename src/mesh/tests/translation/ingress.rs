//! What an ingress is let in by, and what its comings and goings change.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::ForwardClientCertDetails,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use prost::Message;
use serde_json::{Value, json};
use smc_mesh::catalog::Object;
use smc_mesh::translate::Compiler;
use smc_testkit::mesh::*;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_xds::names;
use smc_xds::resource::ResourceType;

use super::{a_may_call, accepts, chain, changed, configured, get, served, shop};

/// Opens port 8080 of `shop/b` to the endpoints of `shop/db`.
fn open(protocol: &str, tls: &Value, matches: Option<Value>) -> smc_mesh::translate::Input {
    let mut backend = json!({"name": "b", "port": {"number": 8080, "protocol": protocol}});
    if tls.is_object() {
        backend["tls"] = tls.clone();
    }
    let sources = json!([
        {"kind": "Service", "name": "db", "namespace": "shop"},
        {"kind": "AuthenticatedPrincipal", "name": "gateway.example"},
    ]);
    let mut spec = json!({"backends": [backend], "sources": sources});
    if let Some(matches) = matches {
        spec["matches"] = matches;
    }
    ingress("shop/gateway", spec)
}

/// A changed listener would end connections; a changed route configuration ends none.
#[test]
fn gateways_that_come_and_go_change_routes_alone() {
    for (protocol, tls) in [
        ("http", json!(null)),
        ("https", json!({"skipClientCertValidation": true})),
        ("https", json!({"skipClientCertValidation": false})),
    ] {
        let with = |more: Vec<smc_mesh::translate::Input>| {
            let opened = [a_may_call("shop/b1"), open(protocol, &tls, None)];
            shop(opened.into_iter().chain(more))
        };
        let route = names::ingress(8080, protocol);
        let (one, two) = (with(vec![]), with(vec![pod("shop/db2", "shop/db", "db", &["10.1.0.9"])]));
        assert_eq!(changed(&one, &two), BTreeSet::from([route.clone()]), "{protocol} {tls}");
        // Nor does the last one.
        let none = with(vec![remove(ObjectRef::Namespaced(Kind::Service, "shop/db".parse().unwrap()))]);
        assert_eq!(changed(&one, &none), BTreeSet::from([route.clone()]), "{protocol} {tls}");
        // Nor do other requests.
        let groups = json!([{"kind": "HTTPRouteGroup", "name": "all-http"}]);
        let some = with(vec![open(protocol, &tls, Some(groups))]);
        assert_eq!(changed(&one, &some), BTreeSet::from([route]), "{protocol} {tls}");
    }
}

#[test]
fn calls_of_the_mesh_differ_from_an_ingress_by_transport_or_by_name() {
    let closed = shop([a_may_call("shop/b1")]);
    let clear = shop([a_may_call("shop/b1"), open("http", &json!(null), None)]);
    let tls = shop([a_may_call("shop/b1"), open("https", &json!({"skipClientCertValidation": true}), None)]);
    let own = |compiler: &Compiler| {
        chain(&view(compiler, "shop/b1").unwrap(), names::INBOUND_LISTENER, "inbound_8080_http")
    };
    assert_eq!(own(&closed), own(&clear));
    assert_eq!(own(&closed).filter_chain_match.unwrap().server_names, [""; 0]);
    assert_eq!(own(&tls).filter_chain_match.unwrap().server_names, ["*.svc.cluster.local"]);
    let route = |compiler: &Compiler| {
        let b1 = view(compiler, "shop/b1").unwrap();
        b1.get(ResourceType::Route, "inbound_8080_http").unwrap().version
    };
    assert!(route(&closed) == route(&clear) && route(&closed) == route(&tls));
    // Other listeners, and callers, do not differ at all.
    let a = |compiler: &Compiler| {
        let a = view(compiler, "shop/a").unwrap();
        ResourceType::ALL
            .map(|kind| a.all(kind).map(|one| (one.name.clone(), one.version)).collect::<Vec<_>>())
    };
    assert!(a(&closed) == a(&clear) && a(&closed) == a(&tls));
}

#[test]
fn a_certificate_is_wanted_by_principals_and_its_names_are_passed_on() {
    for (protocol, tls, wanted) in [
        ("http", json!(null), None),
        ("https", json!({"skipClientCertValidation": true}), Some((false, false))),
        ("https", json!({"skipClientCertValidation": false}), Some((true, true))),
    ] {
        let compiler = shop([a_may_call("shop/b1"), open(protocol, &tls, None)]);
        let b1 = view(&compiler, "shop/b1").unwrap();
        let chain = chain(&b1, names::INBOUND_LISTENER, &names::ingress(8080, protocol));
        let manager: HttpConnectionManager = configured(&chain).unwrap();
        let found = chain.transport_socket.map(|socket| {
            use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType::TypedConfig;
            let Some(TypedConfig(any)) = socket.config_type else { panic!("not typed") };
            let context = DownstreamTlsContext::decode(&*any.value).unwrap();
            let checked = context.common_tls_context.unwrap().validation_context_type.is_some();
            (context.require_client_certificate.unwrap().value, checked)
        });
        assert_eq!(found, wanted, "{protocol} {tls}");
        let secrets = served(&b1, ResourceType::Secret);
        let checks = wanted.is_some_and(|(_, checked)| checked);
        assert_eq!(secrets.contains(&names::ingress_validation(8080)), checks, "{secrets:?}");
        // What a client says of itself there is never passed on.
        let forward = manager.forward_client_cert_details();
        let expected = match wanted {
            None => ForwardClientCertDetails::Sanitize,
            Some(_) => ForwardClientCertDetails::SanitizeSet,
        };
        assert_eq!(forward, expected);
    }
}

/// Where names are to be matched, Envoy refuses a client without a certificate, whatever it requires.
#[test]
fn a_port_for_both_kinds_of_clients_leaves_the_names_to_the_rules() {
    let both = [
        a_may_call("shop/b1"),
        open("https", &json!({"skipClientCertValidation": false}), None),
        ingress(
            "shop/anonymous",
            json!({
                "backends": [{"name": "b", "port": {"number": 8080, "protocol": "https"},
                    "tls": {"skipClientCertValidation": true}}],
                "sources": [{"kind": "IPRange", "name": "192.0.2.0/24"}],
            }),
        ),
    ];
    let b1 = view(&shop(both), "shop/b1").unwrap();
    let secret = names::optional_ingress_validation(8080);
    assert!(served(&b1, ResourceType::Secret).contains(&secret));
    assert_eq!(accepts(&b1, &secret), []);
    assert!(!served(&b1, ResourceType::Secret).contains(&names::ingress_validation(8080)));
}

#[test]
fn a_port_is_closed_again_with_its_ingress_and_where_the_mesh_ignores_all() {
    let chains = |compiler: &Compiler| {
        let listener: Listener =
            get(&view(compiler, "shop/b1").unwrap(), ResourceType::Listener, names::INBOUND_LISTENER);
        listener.filter_chains.into_iter().map(|chain| chain.name).collect::<Vec<_>>()
    };
    let mut compiler = shop([a_may_call("shop/b1"), open("http", &json!(null), None)]);
    assert_eq!(chains(&compiler), ["inbound_8080_http", "ingress_8080_http"]);
    let config = |ignores_ingress| {
        use smc_api::osm::MeshConfig;
        let name = "smc-system/osm-mesh-config".parse().unwrap();
        upsert(Object::MeshConfig(name, MeshConfig { ignores_ingress, ..MeshConfig::default() }))
    };
    for (ignored, expected) in
        [(true, &["inbound_8080_http"][..]), (false, &["inbound_8080_http", "ingress_8080_http"])]
    {
        compiler.apply([config(ignored)]);
        assert_eq!(chains(&compiler), expected, "{ignored}");
    }
    compiler.apply([remove(ObjectRef::Namespaced(Kind::IngressBackend, "shop/gateway".parse().unwrap()))]);
    assert_eq!(chains(&compiler), ["inbound_8080_http"]);
}
