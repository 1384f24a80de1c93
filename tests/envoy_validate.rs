//! Every kind of snapshot that SMC can serve, given to a real Envoy to judge.
//!
//! A snapshot is turned into a static bootstrap and `envoy --mode validate` must take it. Only the places
//! where Envoy gets things from are changed (inline instead of ADS), nothing of what it gets: filters,
//! matches, RBAC rules, regular expressions, TLS contexts and certificates go through Envoy's own checks.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../src/mesh/tests/fixture/mod.rs"]
mod fixture;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use envoy_types::pb::envoy::config::bootstrap::v3::{
    Bootstrap, LayeredRuntime, RuntimeLayer, bootstrap::StaticResources, runtime_layer::LayerSpecifier,
};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3::{TransportSocket, transport_socket};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::google::protobuf::{Any, Struct, Value, value};
use envoy_types::util::pack_any;
use fixture::*;
use prost::{Message, Name};
use serde_json::json;
use smc_mesh::catalog::AppProtocol::{Http, Http2, Https, Tcp, TcpServerFirst};
use smc_mesh::lint;
use smc_mesh::resource::ResourceType;
use smc_mesh::translate::{Compiler, Input};
use smc_mesh::world::View;

/// The snapshot as a bootstrap without a control plane.
fn static_bootstrap(view: &View) -> Bootstrap {
    let routes: BTreeMap<String, RouteConfiguration> =
        decode::<RouteConfiguration>(view, ResourceType::Route)
            .map(|route| (route.name.clone(), route))
            .collect();
    let mut clusters: Vec<Cluster> = decode(view, ResourceType::Cluster).collect();
    for cluster in &mut clusters {
        if let Some(eds) = cluster.eds_cluster_config.take() {
            let resource = view.get(ResourceType::Endpoint, &eds.service_name).expect("EDS name is served");
            let any = Any::decode(&*resource.any).unwrap();
            cluster.cluster_discovery_type =
                Some(cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Static.into()));
            cluster.load_assignment = Some(ClusterLoadAssignment::decode(&*any.value).unwrap());
        }
        local_secrets::<tls::UpstreamTlsContext>(cluster.transport_socket.as_mut(), |context| {
            &mut context.common_tls_context
        });
    }
    let mut listeners: Vec<Listener> = decode(view, ResourceType::Listener).collect();
    for listener in &mut listeners {
        for chain in listener.filter_chains.iter_mut().chain(listener.default_filter_chain.as_mut()) {
            local_secrets::<tls::DownstreamTlsContext>(chain.transport_socket.as_mut(), |context| {
                &mut context.common_tls_context
            });
            inline_routes(chain, &routes);
        }
    }
    let secrets = decode(view, ResourceType::Secret).collect();
    Bootstrap {
        static_resources: Some(StaticResources { listeners, clusters, secrets }),
        layered_runtime: Some(LayeredRuntime { layers: vec![runtime()] }),
        ..Bootstrap::default()
    }
}

/// What SMC's bootstraps set: the reader of patterns bounds their size, Envoy's own bound is far lower.
fn runtime() -> RuntimeLayer {
    let value = Value { kind: Some(value::Kind::NumberValue(10_000.0)) };
    RuntimeLayer {
        name: "static".to_owned(),
        layer_specifier: Some(LayerSpecifier::StaticLayer(Struct {
            fields: [("re2.max_program_size.error_level".to_owned(), value)].into_iter().collect(),
        })),
    }
}

fn decode<T: Message + Default>(view: &View, kind: ResourceType) -> impl Iterator<Item = T> {
    view.all(kind).map(|resource| {
        let any = Any::decode(&*resource.any).unwrap();
        T::decode(&*any.value).unwrap()
    })
}

/// A secret without a source is looked for among the static ones.
fn local_secrets<T: Message + Name + Default>(
    socket: Option<&mut TransportSocket>,
    common: impl Fn(&mut T) -> &mut Option<tls::CommonTlsContext>,
) {
    let Some(transport_socket::ConfigType::TypedConfig(any)) = socket.and_then(|s| s.config_type.as_mut())
    else {
        return;
    };
    let mut context = T::decode(&*any.value).unwrap();
    let common = common(&mut context).as_mut().unwrap();
    common.tls_certificate_sds_secret_configs.iter_mut().for_each(|secret| secret.sds_config = None);
    match common.validation_context_type.as_mut().unwrap() {
        tls::common_tls_context::ValidationContextType::ValidationContextSdsSecretConfig(secret) => {
            secret.sds_config = None;
        }
        other => panic!("unexpected validation: {other:?}"),
    }
    *any = pack_any(context);
}

fn inline_routes(chain: &mut FilterChain, routes: &BTreeMap<String, RouteConfiguration>) {
    for filter in &mut chain.filters {
        let Some(filter::ConfigType::TypedConfig(any)) = filter.config_type.as_mut() else { continue };
        if any.type_url != HttpConnectionManager::type_url() {
            continue;
        }
        let mut manager = HttpConnectionManager::decode(&*any.value).unwrap();
        if let Some(RouteSpecifier::Rds(rds)) = &manager.route_specifier {
            let route = routes.get(&rds.route_config_name).expect("RDS name is served").clone();
            manager.route_specifier = Some(RouteSpecifier::RouteConfig(route));
        }
        *any = pack_any(manager);
    }
}

/// The certificate of a root and of a leaf that it signed, with the leaf's key.
#[expect(clippy::disallowed_methods, reason = "a key of this test's own, which decides nothing")]
fn certificates() -> (String, String, String) {
    let root_key = rcgen::KeyPair::generate().unwrap();
    let mut root = rcgen::CertificateParams::default();
    root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root_certificate = root.self_signed(&root_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(root, root_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut leaf = rcgen::CertificateParams::default();
    leaf.subject_alt_names =
        vec![rcgen::SanType::URI("spiffe://cluster.local/ns/shop/sa/a".try_into().unwrap())];
    let chain = leaf.signed_by(&key, &issuer).unwrap().pem();
    (root_certificate, chain, key.serialize_pem())
}

/// A compiled mesh in which these identities have certificates.
fn compile(accounts: &[&str], inputs: Vec<Input>) -> Compiler {
    let (root, chain, key) = certificates();
    let mut compiler = compiler(&root);
    compiler.apply(accounts.iter().map(|account| certify(account, &chain, &key)));
    compiler.apply(inputs);
    compiler
}

/// What Envoy says of each of these pods' snapshots; all must be taken.
fn validate(compiler: &Compiler, pods: &[&str]) {
    #[allow(clippy::disallowed_methods, reason = "where make put Envoy")]
    let envoy: PathBuf =
        std::env::var_os("SMC_ENVOY").expect("SMC_ENVOY names the Envoy binary (make sets it)").into();
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(compiler.problems().iter().filter(|p| p.message.contains("stays in force")).count(), 0);
    for pod in pods {
        let view = view(compiler, pod).unwrap_or_else(|| panic!("{pod} has a snapshot"));
        assert_eq!(lint::lint(&view), []);
        let path = directory.path().join("bootstrap.pb");
        std::fs::write(&path, static_bootstrap(&view).encode_to_vec()).unwrap();
        let output = Command::new(&envoy)
            .args(["--mode", "validate", "--log-level", "warn", "-c"])
            .arg(&path)
            .output()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", envoy.display()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "Envoy refuses the snapshot of {pod}:\n{said}");
    }
}

fn shop() -> Vec<Input> {
    vec![
        namespace("shop"),
        pod("shop/a", "shop/a", "a", &["10.1.0.1"]),
        pod("shop/b1", "shop/b1", "b", &["10.1.0.2"]),
        pod("shop/b2", "shop/b2", "b", &["10.1.0.3"]),
        pod("shop/db", "shop/db", "db", &["10.1.0.4"]),
    ]
}

const ACCOUNTS: [&str; 4] = ["shop/a", "shop/b1", "shop/b2", "shop/db"];
const PODS: [&str; 4] = ACCOUNTS;

#[test]
fn envoy_takes_http_routes_and_tcp_ports() {
    let mut mesh = shop();
    mesh.extend([
        service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (81, 8081, Http2)]),
        service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst), (5432, 5432, Tcp), (443, 8443, Https)]),
        group(
            "shop/routes",
            &json!([
                {"name": "buy", "pathRegex": "/buy/[a-z]+(/.*)?", "methods": ["GET", "HEAD"]},
                {"name": "user", "pathRegex": "/", "headers": [{"user-agent": "curl/.*"}, {"host": "b(\\.shop)?"}]},
                {"name": "any", "methods": ["*"]},
                {"name": "large", "pathRegex": "/([a-z0-9]{1,20}/){5}[^/]+"},
            ]),
        ),
        tcp("shop/mysql", &[3306]),
        tcp("shop/all", &[]),
        target("shop/to-b1", "shop/b1", &["shop/a", "shop/db"], &[("HTTPRouteGroup", "routes")]),
        target("shop/to-db", "shop/db", &["shop/a"], &[("TCPRoute", "mysql")]),
        target("shop/to-db-too", "shop/db", &["shop/b1"], &[("TCPRoute", "all")]),
    ]);
    validate(&compile(&ACCOUNTS, mesh), &PODS);
}

#[test]
fn envoy_takes_every_form_of_expression_that_is_read() {
    let mut mesh = shop();
    let forms = [
        "",
        "()",
        "^$",
        "(?:)*|b",
        "[[:alpha:]_]*?",
        r"[^/\d\x7f]+",
        r"\x41\x{41}\a\t\.\/\_",
        "(?P<name>a){2,3}",
        "(?i:a)b",
        r"^\Aa\bb\Bc\z$",
        "(a|b||c)?",
    ];
    let matches: Vec<_> = forms
        .iter()
        .enumerate()
        .map(|(i, form)| json!({"name": i.to_string(), "pathRegex": form, "headers": [{"x-value": form}]}))
        .collect();
    mesh.extend([
        service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
        group("shop/forms", &json!(matches)),
        split("shop/s", "b", &[("b", 1)], &["forms"]),
        target("shop/to-b1", "shop/b1", &["shop/a"], &[("HTTPRouteGroup", "forms")]),
    ]);
    let compiler = compile(&ACCOUNTS, mesh);
    let routes = compiler.catalog().http_route_group(&"shop/forms".parse().unwrap()).unwrap();
    assert_eq!(routes.matches.len(), forms.len(), "none of them was refused");
    validate(&compiler, &PODS);
}

#[test]
fn envoy_takes_a_mesh_in_which_nobody_may_do_anything() {
    let mut mesh = shop();
    mesh.push(service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (90, 9090, Tcp)]));
    validate(&compile(&ACCOUNTS, mesh), &PODS);
}

#[test]
fn envoy_takes_permissive_mode_with_egress() {
    let mut mesh = shop();
    mesh.extend([
        service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (90, 9090, Tcp)]),
        service("shop/nobody", "nobody", &["10.9.0.3"], &[(80, 8080, Http)]),
        mesh_config(true, true),
    ]);
    validate(&compile(&ACCOUNTS, mesh), &PODS);
}

#[test]
fn envoy_takes_splits_by_weight_and_by_match() {
    let mut mesh = shop();
    mesh.extend([
        service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http), (90, 9090, Tcp)]),
        service("shop/b-v1", "b", &["10.9.0.2"], &[(80, 8080, Http), (90, 9090, Tcp)]),
        service("shop/db", "db", &["10.9.0.3"], &[(80, 8080, Http), (90, 9090, Tcp)]),
        group("shop/beta", &json!([{"name": "beta", "headers": [{"x-beta": "yes|true"}]}])),
        tcp("shop/all", &[]),
        split("shop/s1", "b", &[("b-v1", 1_000_000), ("db", 1_000_000)], &["beta"]),
        split("shop/s2", "b", &[("b-v1", 90), ("db", 10), ("gone", 5), ("b", 0)], &[]),
        // db is a leaf that a may not reach.
        target("shop/to-b1", "shop/b1", &["shop/a"], &[("TCPRoute", "all")]),
    ]);
    validate(&compile(&ACCOUNTS, mesh), &PODS);
}

#[test]
fn envoy_takes_both_address_families_and_headless_services() {
    let mesh = vec![
        namespace("shop"),
        pod("shop/a", "shop/a", "a", &["10.1.0.1", "fd00::1"]),
        pod("shop/b1", "shop/b1", "b", &["fd00::2"]),
        pod("shop/b2", "shop/b2", "b", &["10.1.0.3", "fd00::3"]),
        pod_that("shop/db", "shop/db", "db", &[], false),
        service("shop/b", "b", &["10.9.0.1", "fd00:9::1"], &[(80, 8080, Http), (90, 9090, Tcp)]),
        service("shop/b-pods", "b", &[], &[(8080, 8080, Http), (90, 9090, Tcp)]),
        service("shop/db", "db", &["fd00:9::2"], &[(80, 8080, Http2)]),
        mesh_config(true, false),
    ];
    validate(&compile(&ACCOUNTS, mesh), &PODS);
}

#[test]
fn envoy_takes_several_protocols_on_one_port_and_shared_addresses() {
    let mut mesh = shop();
    mesh.extend([
        service("shop/b-http", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
        service("shop/b-grpc", "b", &["10.9.0.2"], &[(80, 8080, Http2), (81, 8080, Tcp)]),
        service("shop/b-tcp", "b", &["10.9.0.3"], &[(80, 8080, Tcp)]),
        service("shop/b-same", "b", &["10.9.0.3"], &[(80, 8080, Http)]),
        mesh_config(true, true),
    ]);
    validate(&compile(&ACCOUNTS, mesh), &PODS);
}

#[test]
fn envoy_takes_the_longest_names() {
    let long = "x".repeat(63);
    let (ns, name) = (long.clone(), format!("{long}.{long}.{long}"));
    let mesh = vec![
        namespace(&ns),
        pod(&format!("{ns}/p"), &format!("{ns}/{name}"), "a", &["10.1.0.1"]),
        service(
            &format!("{ns}/{name}"),
            "a",
            &["10.9.0.1"],
            &[(65535, 65535, TcpServerFirst), (80, 8080, Http)],
        ),
        mesh_config(true, true),
    ];
    validate(&compile(&[&format!("{ns}/{name}")], mesh), &[&format!("{ns}/p")]);
}

#[test]
fn envoy_refuses_what_it_should() {
    // The harness itself: were everything accepted, the tests above would say nothing.
    let mut mesh = shop();
    mesh.extend([service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http)]), mesh_config(true, false)]);
    let compiler = compile(&ACCOUNTS, mesh);
    let mut bootstrap = static_bootstrap(&view(&compiler, "shop/a").unwrap());
    bootstrap.static_resources.as_mut().unwrap().clusters.clear();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bootstrap.pb");
    std::fs::write(&path, bootstrap.encode_to_vec()).unwrap();
    #[allow(clippy::disallowed_methods, reason = "where make put Envoy")]
    let envoy = std::env::var_os("SMC_ENVOY").expect("SMC_ENVOY names the Envoy binary (make sets it)");
    let output = Command::new(envoy).args(["--mode", "validate", "-c"]).arg(&path).output().unwrap();
    assert!(!output.status.success());
}
