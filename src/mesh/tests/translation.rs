//! The Envoy configuration that each rule of the mesh becomes.

mod application;
mod egress;
mod external_authorization;
mod ingress;
mod leaving;
mod rate_limit;
mod request_metrics;
mod tls;
mod tracing;
mod upstream;

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config::accesslog::v3::access_log;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::{address, socket_address::PortSpecifier};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, lb_endpoint::HostIdentifier};
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::rbac::v3 as rbac;
use envoy_types::pb::envoy::config::route::v3::{
    Route, RouteConfiguration, route, route_action::ClusterSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::RbacPerRoute;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, UpstreamConnectMode, tcp_proxy,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use serde_json::json;
use smc_mesh::translate::{Compiler, Input};
use smc_sidecar::bootstrap::{Bootstrap, Controllers};
use smc_testkit::mesh::*;
use smc_types::ids::ReplicaId;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::AppProtocol::{Http, Http2, Tcp, TcpServerFirst};
use smc_xds::names;
use smc_xds::resource::ResourceType;
use smc_xds::served_state::{Changed, View};
use smc_xds::session::Variant;

const ACCOUNTS: [&str; 4] = ["shop/a", "shop/b1", "shop/b2", "shop/db"];

/// a calls b (two identities behind it) and db.
fn shop(more: impl IntoIterator<Item = Input>) -> Compiler {
    let mut compiler = compiler("roots");
    compiler.apply(ACCOUNTS.map(|account| certify(account, "chain", "key")));
    compiler.apply(parts());
    compiler.apply(more);
    compiler
}

/// What of `shop/b1` differs between two states, by name.
fn changed(before: &Compiler, after: &Compiler) -> BTreeSet<String> {
    let versions = |compiler: &Compiler| {
        let b1 = view(compiler, "shop/b1").unwrap();
        let all = ResourceType::ALL.into_iter().flat_map(|kind| b1.all(kind).cloned().collect::<Vec<_>>());
        all.map(|resource| (resource.name.to_string(), resource.version)).collect::<BTreeSet<_>>()
    };
    versions(before).symmetric_difference(&versions(after)).map(|(name, _)| name.clone()).collect()
}

fn parts() -> Vec<Input> {
    vec![
        namespace("shop"),
        pod("shop/a", "shop/a", "a", &["10.1.0.1"]),
        pod("shop/b1", "shop/b1", "b", &["10.1.0.2"]),
        pod("shop/b2", "shop/b2", "b", &["10.1.0.3"]),
        pod("shop/db", "shop/db", "db", &["10.1.0.4"]),
        service("shop/b", "b", &["10.9.0.1"], &[(80, 8080, Http)]),
        service("shop/db", "db", &["10.9.0.2"], &[(3306, 3306, TcpServerFirst)]),
        group("shop/all-http", &json!([{"name": "all"}])),
        tcp("shop/all-tcp", &[]),
    ]
}

fn a_may_call(destination: &str) -> Input {
    let name = format!("shop/a-to-{}", destination.split_once('/').unwrap().1);
    target(&name, destination, &["shop/a"], &[("TCPRoute", "all-tcp")])
}

fn get<T: Message + Default>(view: &View, kind: ResourceType, name: &str) -> T {
    let resource = view.get(kind, name).unwrap_or_else(|| panic!("{} {name} is served", kind.short()));
    T::decode(&*Any::decode(&*resource.any()).unwrap().value).unwrap()
}

fn served(view: &View, kind: ResourceType) -> Vec<String> {
    view.all(kind).map(|resource| resource.name.to_string()).collect()
}

/// The identities that a validation context accepts.
fn accepts(view: &View, name: &str) -> Vec<MatchPattern> {
    let Some(secret::Type::ValidationContext(context)) =
        get::<Secret>(view, ResourceType::Secret, name).r#type
    else {
        panic!("{name} is no validation context");
    };
    context
        .match_typed_subject_alt_names
        .into_iter()
        .map(|san| san.matcher.unwrap().match_pattern.unwrap())
        .collect()
}

fn exactly(ids: &[&str]) -> Vec<MatchPattern> {
    ids.iter().map(|id| MatchPattern::Exact((*id).to_owned())).collect()
}

/// The addresses of a load assignment; several of one host are joined by `+`.
fn hosts(view: &View, name: &str) -> Vec<String> {
    let assignment: ClusterLoadAssignment = get(view, ResourceType::Endpoint, name);
    let text =
        |address: Option<envoy_types::pb::envoy::config::core::v3::Address>| match address.unwrap().address {
            Some(address::Address::SocketAddress(socket)) => socket.address,
            other => panic!("{other:?}"),
        };
    let hosts = assignment.endpoints.into_iter().flat_map(|locality| locality.lb_endpoints);
    hosts
        .map(|host| match host.host_identifier {
            Some(HostIdentifier::Endpoint(endpoint)) => {
                let more = endpoint.additional_addresses.into_iter().map(|more| text(more.address));
                std::iter::once(text(endpoint.address)).chain(more).collect::<Vec<_>>().join("+")
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

fn chain(view: &View, listener: &str, name: &str) -> FilterChain {
    let listener: Listener = get(view, ResourceType::Listener, listener);
    listener
        .filter_chains
        .into_iter()
        .find(|chain| chain.name == name)
        .unwrap_or_else(|| panic!("no chain {name}"))
}

/// The configuration of a chain's filter of this type.
fn configured<T: Message + Name + Default>(chain: &FilterChain) -> Option<T> {
    chain.filters.iter().find_map(|filter| match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(any)) if any.type_url == T::type_url() => {
            Some(T::decode(&*any.value).unwrap())
        }
        _ => None,
    })
}

/// The routes: the header of the match, and the clusters with weights.
fn routes(view: &View, name: &str) -> Vec<(String, Vec<(String, u32)>)> {
    let routes: RouteConfiguration = get(view, ResourceType::Route, name);
    let [host] = routes.virtual_hosts.try_into().unwrap();
    assert_eq!(host.domains, ["*"]);
    let describe = |route: Route| {
        let matched = route.r#match.unwrap();
        let headers: BTreeSet<_> = matched.headers.iter().map(|header| &*header.name).collect();
        let headers: Vec<_> = headers.into_iter().collect();
        let Some(route::Action::Route(action)) = route.action else { panic!("not a route") };
        let clusters = match action.cluster_specifier.unwrap() {
            ClusterSpecifier::Cluster(cluster) => vec![(cluster, 1)],
            ClusterSpecifier::WeightedClusters(split) => {
                split.clusters.into_iter().map(|part| (part.name, part.weight.unwrap().value)).collect()
            }
            other => panic!("{other:?}"),
        };
        (headers.join(","), clusters)
    };
    host.routes.into_iter().map(describe).collect()
}

/// The RBAC rules of requests to an inbound port.
fn request_rules(view: &View, name: &str) -> rbac::Rbac {
    let routes: RouteConfiguration = get(view, ResourceType::Route, name);
    let [host] = routes.virtual_hosts.try_into().unwrap();
    let config = &host.typed_per_filter_config["envoy.filters.http.rbac"];
    assert_eq!(config.type_url, RbacPerRoute::type_url());
    RbacPerRoute::decode(&*config.value).unwrap().rbac.unwrap().rules.unwrap()
}

#[test]
fn a_service_is_matched_by_address_and_port_and_has_its_endpoints() {
    let compiler = shop([a_may_call("shop/b1"), a_may_call("shop/b2")]);
    let a = view(&compiler, "shop/a").unwrap();
    let chain = chain(&a, names::OUTBOUND_LISTENER, "outbound_shop/b_80_http");
    let matched = chain.filter_chain_match.unwrap();
    assert_eq!(matched.destination_port.unwrap().value, 80);
    assert_eq!(matched.prefix_ranges.len(), 1);
    assert_eq!(matched.prefix_ranges[0].address_prefix, "10.9.0.1");
    assert_eq!(routes(&a, "outbound_shop/b_80"), [(String::new(), vec![("shop/b|80".to_owned(), 1)])]);
    let cluster: Cluster = get(&a, ResourceType::Cluster, "shop/b|80");
    assert_eq!(cluster.eds_cluster_config.unwrap().service_name, "shop/b|80");
    assert_eq!(hosts(&a, "shop/b|80"), ["10.1.0.2", "10.1.0.3"]);
}

#[test]
fn a_service_that_may_not_be_called_has_no_resources() {
    let compiler = shop([]);
    let a = view(&compiler, "shop/a").unwrap();
    for kind in [ResourceType::Endpoint, ResourceType::Route] {
        assert_eq!(served(&a, kind), Vec::<String>::new());
    }
}

#[test]
fn an_identity_without_grants_has_a_listener_that_closes_everything() {
    let a = view(&shop([]), "shop/a").unwrap();
    assert_eq!(served(&a, ResourceType::Listener), [names::PROMETHEUS_LISTENER, names::OUTBOUND_LISTENER]);
    let listener: Listener = get(&a, ResourceType::Listener, names::OUTBOUND_LISTENER);
    assert_eq!(listener.default_filter_chain, None);
    let chains: Vec<_> = listener.filter_chains.iter().map(|chain| &*chain.name).collect();
    assert_eq!(chains, ["loop-guard"]);
    let without: Vec<_> = listener.listener_filters;
    let with: Listener =
        get(&view(&shop([a_may_call("shop/db")]), "shop/a").unwrap(), ResourceType::Listener, &listener.name);
    assert_eq!(with.listener_filters, without, "what is not allowed fails like where something else is");
}

#[test]
fn a_server_that_speaks_first_is_not_kept_waiting() {
    let compiler = shop([a_may_call("shop/db")]);
    let a = view(&compiler, "shop/a").unwrap();
    let listener: Listener = get(&a, ResourceType::Listener, names::OUTBOUND_LISTENER);
    let filters: Vec<_> = listener.listener_filters.iter().map(|filter| &*filter.name).collect();
    assert_eq!(filters, ["envoy.filters.listener.original_dst"], "nothing reads before connecting");
    let chain = chain(&a, names::OUTBOUND_LISTENER, "outbound_shop/db_3306_tcp-server-first");
    let proxy: TcpProxy = configured(&chain).unwrap();
    assert_eq!(
        proxy.cluster_specifier,
        Some(tcp_proxy::ClusterSpecifier::Cluster("shop/db|3306".to_owned()))
    );
}

#[test]
fn a_client_accepts_only_the_identities_that_it_may_call() {
    let mut compiler = shop([a_may_call("shop/b1"), a_may_call("shop/b2")]);
    let name = "root-cert-for-mtls-outbound:shop/b";
    let a = view(&compiler, "shop/a").unwrap();
    let both = ["spiffe://cluster.local/ns/shop/sa/b1", "spiffe://cluster.local/ns/shop/sa/b2"];
    assert_eq!(accepts(&a, name), exactly(&both));
    compiler.apply([remove(ObjectRef::Namespaced(Kind::TrafficTarget, "shop/a-to-b2".parse().unwrap()))]);
    let a = view(&compiler, "shop/a").unwrap();
    assert_eq!(accepts(&a, name), exactly(&both[..1]));
    let cluster: Cluster = get(&a, ResourceType::Cluster, "shop/b|80");
    let endpoints = cluster.eds_cluster_config.unwrap().service_name;
    assert!(endpoints.starts_with("shop/b|80#"), "{endpoints}");
    assert_eq!(hosts(&a, &endpoints), ["10.1.0.2"]);
}

#[test]
fn the_handshake_of_a_tcp_port_admits_only_allowed_identities() {
    let name = "root-cert-for-mtls-inbound:3306_tcp-server-first";
    let db = |compiler: &Compiler| accepts(&view(compiler, "shop/db").unwrap(), name);
    let mut compiler = shop([]);
    assert_eq!(
        db(&compiler),
        exactly(&["spiffe://cluster.local/nobody"]),
        "an empty list would admit anyone"
    );
    compiler.apply([a_may_call("shop/db")]);
    assert_eq!(db(&compiler), exactly(&["spiffe://cluster.local/ns/shop/sa/a"]));
    compiler.apply([mesh_config(true, false)]);
    assert_eq!(db(&compiler), [MatchPattern::Prefix("spiffe://cluster.local/ns/".to_owned())]);
}

#[test]
fn a_tcp_application_gets_a_connection_only_after_the_handshake() {
    let db = view(&shop([a_may_call("shop/db")]), "shop/db").unwrap();
    let chain = chain(&db, names::INBOUND_LISTENER, "inbound_3306_tcp-server-first");
    let proxy: TcpProxy = configured(&chain).unwrap();
    assert_eq!(proxy.upstream_connect_mode(), UpstreamConnectMode::OnDownstreamTlsHandshake);
}

#[test]
fn an_http_port_admits_the_mesh_and_authorises_each_request() {
    let mut compiler = shop([
        group("shop/buy", &json!([{"name": "buy", "pathRegex": "/buy/.*", "methods": ["GET", "HEAD"]}])),
        target("shop/one", "shop/b1", &["shop/a"], &[("HTTPRouteGroup", "buy")]),
        target("shop/two", "shop/b1", &["shop/db", "shop/b2"], &[("HTTPRouteGroup", "all-http")]),
    ]);
    let b1 = view(&compiler, "shop/b1").unwrap();
    assert_eq!(
        accepts(&b1, names::INBOUND_VALIDATION),
        [MatchPattern::Prefix("spiffe://cluster.local/ns/".to_owned())]
    );
    let rules = request_rules(&b1, "inbound_8080_http");
    assert_eq!(rules.action, i32::from(rbac::rbac::Action::Allow));
    assert_eq!(
        rules.policies.keys().collect::<BTreeSet<_>>(),
        BTreeSet::from([&"shop/one".into(), &"shop/two".into()])
    );
    let one = &rules.policies["shop/one"];
    assert_eq!(one.principals.len(), 1);
    let Some(rbac::permission::Rule::AndRules(all)) = &one.permissions[0].rule else { panic!("not an AND") };
    assert_eq!(all.rules.len(), 3, "path, no encoded slash in it, and method");
    assert!(matches!(all.rules[1].rule, Some(rbac::permission::Rule::NotRule(_))), "{:?}", all.rules[1]);
    let two = &rules.policies["shop/two"];
    assert_eq!(two.principals.len(), 2);
    assert_eq!(two.permissions[0].rule, Some(rbac::permission::Rule::Any(true)));

    compiler.apply([mesh_config(true, false)]);
    let rules = request_rules(&view(&compiler, "shop/b1").unwrap(), "inbound_8080_http");
    assert_eq!(rules.policies.len(), 1, "permissive: one policy for the whole mesh");
}

#[test]
fn a_service_that_leads_to_a_port_of_the_sidecar_is_left_out() {
    let compiler = shop([
        service("shop/admin", "b", &["10.96.0.9"], &[(80, 15000, Http), (81, 15001, Tcp)]),
        mesh_config(true, false),
    ]);
    let view = view(&compiler, "shop/b1").unwrap();
    let listener: Listener = get(&view, ResourceType::Listener, names::INBOUND_LISTENER);
    let ports: BTreeSet<u32> = listener
        .filter_chains
        .iter()
        .filter_map(|chain| chain.filter_chain_match.as_ref()?.destination_port.map(|port| port.value))
        .collect();
    assert!(!ports.is_empty() && ports.is_disjoint(&BTreeSet::from([15000, 15001])), "{ports:?}");
    assert!(compiler.problems().iter().any(|problem| problem.message.contains("the sidecar's own")));
}

#[test]
fn a_caller_can_set_neither_retries_nor_log_fields_of_the_callee() {
    let b1 = view(&shop([a_may_call("shop/b1")]), "shop/b1").unwrap();
    let chain = chain(&b1, names::INBOUND_LISTENER, "inbound_8080_http");
    let manager: HttpConnectionManager = configured(&chain).unwrap();
    // With any, even an empty one, there are addresses that a caller may claim to have in x-forwarded-for.
    assert_eq!(manager.internal_address_config, None);
    let cluster: Cluster = get(&b1, ResourceType::Cluster, "local|8080|http");
    let [limits] = cluster.circuit_breakers.unwrap().thresholds.try_into().unwrap();
    assert_eq!(limits.max_retries.unwrap().value, 0);
    let [log] = manager.access_log.try_into().unwrap();
    let Some(access_log::ConfigType::TypedConfig(config)) = log.config_type else { panic!("no config") };
    assert!(!String::from_utf8_lossy(&config.value).to_lowercase().contains("x-envoy-"));
}

#[test]
fn the_statistics_come_from_the_admin_address_in_the_bootstrap() {
    let compiler = shop([]);
    let a = view(&compiler, "shop/a").unwrap();
    let cluster: Cluster = get(&a, ResourceType::Cluster, names::ADMIN_CLUSTER);
    let host = cluster.load_assignment.unwrap().endpoints.remove(0).lb_endpoints.remove(0);
    let Some(HostIdentifier::Endpoint(endpoint)) = host.host_identifier else { panic!("no endpoint") };
    let Some(address::Address::SocketAddress(source)) = endpoint.address.unwrap().address else { panic!() };
    let bootstrap = Bootstrap {
        proxy: &proxy_name("shop/a"),
        account: &a.class.account,
        controllers: &Controllers::new([(ReplicaId(0), "controller:15128".parse().unwrap())].into()),
        controller_name: "controller",
        chain_pem: "",
        key_pem: "",
        roots_pem: "",
        variant: Variant::Delta,
        inbound_connections: 1,
    };
    let admin = &serde_json::to_value(bootstrap).unwrap()["admin"]["address"]["socket_address"];
    assert_eq!(admin["address"], source.address);
    let Some(PortSpecifier::PortValue(port)) = source.port_specifier else { panic!("no port") };
    assert_eq!(admin["port_value"], port);
}

#[test]
fn access_is_denied_by_default() {
    let b1 = view(&shop([]), "shop/b1").unwrap();
    let rules = request_rules(&b1, "inbound_8080_http");
    assert!(rules.policies.is_empty());
    assert_eq!(rules.action, i32::from(rbac::rbac::Action::Allow), "ALLOW without a policy denies all");
}

#[test]
fn a_new_http_policy_changes_routes_and_no_listener_of_the_destination() {
    let mut compiler = shop([]);
    let before = compiler.served_state();
    compiler.apply([a_may_call("shop/b1")]);
    let after = compiler.served_state();
    let b1 = view(&compiler, "shop/b1").unwrap();
    let Changed::Names(names) = after.changed_since(before.generation, &b1.class) else {
        panic!("remembered")
    };
    let own: Vec<_> = names.iter().filter(|(kind, _)| *kind != ResourceType::Endpoint).collect();
    assert_eq!(own, [&(ResourceType::Route, Arc::from("inbound_8080_http"))]);
}

#[test]
fn a_split_goes_to_the_leaves_by_weight_matches_first() {
    let compiler = shop([
        service("shop/b-v1", "b", &["10.9.0.3"], &[(80, 8080, Http)]),
        group("shop/beta", &json!([{"name": "beta", "headers": [{"x-beta": "yes"}]}])),
        split("shop/s1", "b", &[("b-v1", 1)], &["beta"]),
        split("shop/s2", "b", &[("b-v1", 90), ("db", 5), ("b", 10)], &[]),
        service("shop/db", "db", &["10.9.0.2"], &[(80, 8080, Http)]),
        a_may_call("shop/b1"),
    ]);
    let a = view(&compiler, "shop/a").unwrap();
    let [beta, rest] = routes(&a, "outbound_shop/b_80").try_into().unwrap();
    assert_eq!(beta, ("x-beta".to_owned(), vec![("shop/b-v1|80".to_owned(), 1)]));
    let parts = [("shop/b-v1|80", 90), ("shop/b|80", 10), ("shop/db|80", 5)];
    assert_eq!(rest, (String::new(), parts.map(|(name, weight)| (name.to_owned(), weight)).to_vec()));
    // a may not call db: its share fails, and does not go to the others.
    let cluster: Cluster = get(&a, ResourceType::Cluster, "shop/db|80");
    assert_eq!(hosts(&a, &cluster.eds_cluster_config.unwrap().service_name), Vec::<String>::new());
    assert_eq!(
        accepts(&a, "root-cert-for-mtls-outbound:shop/db"),
        exactly(&["spiffe://cluster.local/nobody"])
    );
    // A leaf stays directly reachable.
    chain(&a, names::OUTBOUND_LISTENER, "outbound_shop/b-v1_80_http");
}

#[test]
fn a_tcp_split_is_in_the_proxy_itself() {
    let compiler = shop([
        service("shop/root", "none", &["10.9.0.4"], &[(3306, 3306, Tcp)]),
        service("shop/other", "b", &["10.9.0.5"], &[(3306, 3306, Tcp)]),
        split("shop/s", "root", &[("db", 3), ("other", 1)], &[]),
        a_may_call("shop/db"),
        a_may_call("shop/b1"),
    ]);
    let a = view(&compiler, "shop/a").unwrap();
    let proxy: TcpProxy =
        configured(&chain(&a, names::OUTBOUND_LISTENER, "outbound_shop/root_3306_tcp")).unwrap();
    let Some(tcp_proxy::ClusterSpecifier::WeightedClusters(split)) = proxy.cluster_specifier else {
        panic!("no split")
    };
    let weights: Vec<_> = split.clusters.iter().map(|part| (&*part.name, part.weight)).collect();
    assert_eq!(weights, [("shop/db|3306", 3), ("shop/other|3306", 1)]);
}

#[test]
fn only_egress_passes_unknown_destinations_and_never_in_a_loop() {
    let mut compiler = shop([a_may_call("shop/db")]);
    let listener = |compiler: &Compiler| -> Listener {
        get(&view(compiler, "shop/a").unwrap(), ResourceType::Listener, names::OUTBOUND_LISTENER)
    };
    assert_eq!(listener(&compiler).default_filter_chain, None);
    compiler.apply([mesh_config(false, true)]);
    let with = listener(&compiler);
    assert_eq!(with.default_filter_chain.unwrap().name, names::PASSTHROUGH_CLUSTER);
    let guard = with.filter_chains.iter().find(|chain| chain.name == "loop-guard").unwrap();
    assert_eq!(guard.filter_chain_match.as_ref().unwrap().destination_port.unwrap().value, 15001);
}

#[test]
fn a_headless_service_is_reached_at_the_pod_that_was_dialled() {
    let compiler = shop([service("shop/pods", "b", &[], &[(80, 8080, Http)]), mesh_config(true, false)]);
    let a = view(&compiler, "shop/a").unwrap();
    let chain = chain(&a, names::OUTBOUND_LISTENER, "outbound_shop/pods_80_http_8080");
    let addresses: Vec<_> = chain
        .filter_chain_match
        .unwrap()
        .prefix_ranges
        .into_iter()
        .map(|range| range.address_prefix)
        .collect();
    assert_eq!(addresses, ["10.1.0.2", "10.1.0.3"]);
    assert_eq!(
        routes(&a, "outbound_shop/pods_80"),
        [(String::new(), vec![("shop/pods|80|pod".to_owned(), 1)])]
    );
    let cluster: Cluster = get(&a, ResourceType::Cluster, "shop/pods|80|pod");
    assert!(cluster.transport_socket.is_some(), "mutual TLS all the same");
}

#[test]
fn of_two_services_with_one_address_and_port_the_first_matches() {
    let compiler =
        shop([service("shop/z", "b", &["10.9.0.1"], &[(80, 8080, Http)]), mesh_config(true, false)]);
    let a = view(&compiler, "shop/a").unwrap();
    let listener: Listener = get(&a, ResourceType::Listener, names::OUTBOUND_LISTENER);
    let chains: Vec<_> = listener.filter_chains.iter().map(|chain| &*chain.name).collect();
    assert_eq!(chains, ["outbound_shop/b_80_http", "outbound_shop/db_3306_tcp-server-first", "loop-guard"]);
    assert!(compiler.problems().iter().any(|problem| problem.subject.to_string() == "Service shop/z"));
}

#[test]
fn protocols_that_share_a_port_are_matched_by_sni() {
    let compiler = shop([
        service("shop/b-grpc", "b", &["10.9.0.3"], &[(80, 8080, Http2)]),
        service("shop/db-too", "db", &["10.9.0.4"], &[(80, 3306, TcpServerFirst)]),
    ]);
    let names = |pod: &str, name: &str| {
        chain(&view(&compiler, pod).unwrap(), names::INBOUND_LISTENER, name)
            .filter_chain_match
            .unwrap()
            .server_names
    };
    assert_eq!(names("shop/b1", "inbound_8080_http"), ["b.shop.svc.cluster.local"]);
    assert_eq!(names("shop/b1", "inbound_8080_http2"), ["b-grpc.shop.svc.cluster.local"]);
    assert_eq!(names("shop/db", "inbound_3306_tcp-server-first"), Vec::<String>::new());
}

#[test]
fn a_pod_of_both_families_listens_on_both_and_is_one_host() {
    let compiler = shop([
        pod("shop/a", "shop/a", "a", &["10.1.0.1", "fd00::1"]),
        pod("shop/b1", "shop/b1", "b", &["10.1.0.2", "fd00::2"]),
        pod("shop/b2", "shop/b2", "b", &["fd00::3"]),
        service("shop/b", "b", &["10.9.0.1", "fd00:9::1"], &[(80, 8080, Http)]),
        mesh_config(true, false),
    ]);
    let a = view(&compiler, "shop/a").unwrap();
    let listener: Listener = get(&a, ResourceType::Listener, names::OUTBOUND_LISTENER);
    assert_eq!(listener.additional_addresses.len(), 1);
    assert_eq!(hosts(&a, "shop/b|80"), ["10.1.0.2+fd00::2", "fd00::3"]);
    let b2 = view(&compiler, "shop/b2").unwrap();
    let listener: Listener = get(&b2, ResourceType::Listener, names::OUTBOUND_LISTENER);
    assert!(listener.additional_addresses.is_empty());
    let Some(address::Address::SocketAddress(socket)) = listener.address.unwrap().address else { panic!() };
    assert_eq!(socket.address, "::");
}

#[test]
fn an_endpoint_change_changes_that_service_and_nothing_else() {
    let mut compiler = shop([a_may_call("shop/b1"), a_may_call("shop/b2"), a_may_call("shop/db")]);
    let before = compiler.served_state();
    assert!(compiler.apply([pod_that("shop/b2", "shop/b2", "b", &["10.1.0.3"], false)]));
    let after = compiler.served_state();
    assert!(before.snapshots.ptr_eq(&after.snapshots), "no snapshot changed");
    let a = view(&compiler, "shop/a").unwrap();
    let changed = after.changed_since(before.generation, &a.class);
    assert_eq!(changed, Changed::Names(BTreeSet::from([(ResourceType::Endpoint, Arc::from("shop/b|80"))])));
    assert_eq!(hosts(&a, "shop/b|80"), ["10.1.0.2"]);
    assert!(!compiler.apply([pod_that("shop/b2", "shop/b2", "b", &["10.1.0.3"], false)]), "nothing new");
}

#[test]
fn a_proxy_waits_for_its_certificate_and_renewal_changes_only_the_secret() {
    let mut compiler = compiler("roots");
    compiler.apply([namespace("shop"), pod("shop/a", "shop/a", "a", &["10.1.0.1"])]);
    assert!(view(&compiler, "shop/a").is_none());
    compiler.apply([certify("shop/a", "first", "key")]);
    let a = view(&compiler, "shop/a").unwrap();
    let before = compiler.served_state();
    compiler.apply([certify("shop/a", "second", "key")]);
    let changed = compiler.served_state().changed_since(before.generation, &a.class);
    let name = (ResourceType::Secret, Arc::from(names::SERVICE_CERTIFICATE));
    assert_eq!(changed, Changed::Names(BTreeSet::from([name])));
}

#[test]
fn identities_that_call_the_same_services_share_the_bytes() {
    let compiler = shop([mesh_config(true, false)]);
    let (a, db) = (view(&compiler, "shop/a").unwrap(), view(&compiler, "shop/db").unwrap());
    for (kind, name) in [(ResourceType::Cluster, "shop/b|80"), (ResourceType::Route, "outbound_shop/b_80")] {
        assert!(Arc::ptr_eq(a.get(kind, name).unwrap(), db.get(kind, name).unwrap()), "{name}");
    }
    let listener =
        |view: &View| Arc::clone(view.get(ResourceType::Listener, names::OUTBOUND_LISTENER).unwrap());
    assert!(Arc::ptr_eq(&listener(&a), &listener(&db)));
    let secret = |view: &View| view.get(ResourceType::Secret, names::SERVICE_CERTIFICATE).unwrap().version;
    assert_eq!(secret(&a), secret(&db), "both certificates are the same text in this test");
}
