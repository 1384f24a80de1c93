//! Headless services, whose clients dial a pod at its own port; services that keep their callers.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::LbPolicy;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use crate::catalog::fixtures::{group, namespace, permissive, pod, port, service, slice, split};
use crate::catalog::{Object, SourceEvent};
use crate::translate::{Compiler, Input, Settings};
use smc_authority::pki::{ServiceCertificate, TrustBundle};
use smc_model::topology::{Service, ServicePort, SessionAffinity, TargetPort, Workload};
use smc_types::ids::TrustDomain;
use smc_types::proxy_class::AppProtocol;
use smc_xds::names;
use smc_xds::resource::ResourceType;
use smc_xds::served_state::View;

/// Two pods behind headless services. Only the second has a container port of the name.
fn mesh(services: Vec<Service>) -> Compiler {
    let mut named = pod("shop/p2", "shop/p2", "pods", "10.1.0.2");
    named.ports.insert("web".to_owned(), 9090);
    let pods = [pod("shop/p1", "shop/p1", "pods", "10.1.0.1"), named];
    let headless = |service| Service { headless: true, cluster_ips: Vec::new(), ..service };
    let objects = [namespace("shop"), permissive("smc-system", true)]
        .into_iter()
        .chain(pods.map(Object::from))
        .chain(services.into_iter().map(headless).map(Object::from));
    let mut compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()));
    compiler.apply([Input::Bundle(TrustBundle { pem: "roots".to_owned() })]);
    let certificate = ServiceCertificate { chain_pem: "chain".to_owned(), key_pem: "key".to_owned().into() };
    compiler.apply([Input::Certificate("shop/p1".parse().unwrap(), certificate)]);
    compiler.apply(objects.map(upsert));
    compiler
}

fn upsert(object: Object) -> Input {
    Input::Source(SourceEvent::Upsert(object))
}

fn to(target: TargetPort, number: u16) -> ServicePort {
    ServicePort { target, ..port(number, AppProtocol::Tcp) }
}

fn view(compiler: &Compiler) -> View {
    let own: Workload = pod("shop/p1", "shop/p1", "pods", "10.1.0.1");
    compiler.served_state().view(&own.proxy_name()).unwrap()
}

fn get<T: Message + Default>(view: &View, kind: ResourceType, name: &str) -> T {
    let any = Any::decode(&*view.get(kind, name).unwrap().any()).unwrap();
    T::decode(&*any.value).unwrap()
}

/// The addresses and ports that chains match, after a check that no two chains match the same.
fn dialled(compiler: &Compiler) -> BTreeSet<(String, u32)> {
    let listener: Listener = get(&view(compiler), ResourceType::Listener, names::OUTBOUND_LISTENER);
    let matches = listener.filter_chains.into_iter().filter_map(|chain| chain.filter_chain_match);
    let all: Vec<_> = matches
        .flat_map(|matched| {
            let port = matched.destination_port.unwrap().value;
            matched.prefix_ranges.into_iter().map(move |range| (range.address_prefix, port))
        })
        .collect();
    let distinct: BTreeSet<_> = all.iter().cloned().collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");
    distinct
}

fn at(expected: &[(&str, u32)]) -> BTreeSet<(String, u32)> {
    expected.iter().map(|(ip, port)| ((*ip).to_owned(), *port)).collect()
}

#[test]
fn a_headless_service_is_dialled_at_the_port_that_its_pods_listen_on() {
    let compiler = mesh(vec![service("shop/pods", "pods", &[to(TargetPort::Number(8080), 80)])]);
    assert_eq!(dialled(&compiler), at(&[("10.1.0.1", 8080), ("10.1.0.2", 8080)]));
    let cluster: Cluster = get(&view(&compiler), ResourceType::Cluster, "shop/pods|80|pod");
    assert!(cluster.lb_config.is_none(), "what was dialled is what is meant");
    assert!(cluster.transport_socket.is_some(), "mutual TLS all the same");
}

#[test]
fn a_port_by_name_is_dialled_at_the_port_that_each_pod_gives_the_name() {
    let mut compiler =
        mesh(vec![service("shop/pods", "pods", &[to(TargetPort::Name("web".to_owned()), 80)])]);
    assert_eq!(dialled(&compiler), at(&[("10.1.0.2", 9090)]));
    let mut later = pod("shop/p1", "shop/p1", "pods", "10.1.0.1");
    later.ports.insert("web".to_owned(), 7070);
    compiler.apply([upsert(Object::from(later))]);
    assert_eq!(dialled(&compiler), at(&[("10.1.0.1", 7070), ("10.1.0.2", 9090)]));
}

#[test]
fn of_two_headless_ports_to_one_pod_port_the_first_matches() {
    let ports = [to(TargetPort::Number(8080), 80), to(TargetPort::Number(8080), 81)];
    let compiler = mesh(vec![service("shop/pods", "pods", &ports)]);
    assert_eq!(dialled(&compiler), at(&[("10.1.0.1", 8080), ("10.1.0.2", 8080)]));
    assert!(view(&compiler).get(ResourceType::Cluster, "shop/pods|81|pod").is_none());
}

/// The clusters of all routes of the service port `shop/pods:8080`, in the order of the routes.
fn routed(compiler: &Compiler) -> Vec<Vec<String>> {
    let name = names::outbound_route(&"shop/pods".parse().unwrap(), 8080);
    let routes: RouteConfiguration = get(&view(compiler), ResourceType::Route, &name);
    let routes = routes.virtual_hosts.into_iter().flat_map(|host| host.routes);
    let clusters = routes.map(|route| {
        let Some(Action::Route(action)) = route.action else { panic!("a route leads to clusters") };
        match action.cluster_specifier.unwrap() {
            ClusterSpecifier::Cluster(cluster) => vec![cluster],
            ClusterSpecifier::WeightedClusters(split) => {
                split.clusters.into_iter().map(|part| part.name).collect()
            }
            other => panic!("{other:?}"),
        }
    });
    clusters.collect()
}

/// SMI: the rest goes to the root. Of a headless root that is the pod that was dialled.
#[test]
fn what_a_split_leaves_with_a_headless_root_stays_with_the_dialled_pod() {
    let http = [port(8080, AppProtocol::Http)];
    let (leaf, dialled) = ("shop/leaf|8080", "shop/pods|8080|pod");
    for (backends, matches, expected) in [
        (&[("shop/leaf", 1)][..], &["shop/canary"][..], vec![vec![leaf], vec![dialled]]),
        (&[("shop/leaf", 1), ("shop/pods", 1)], &[], vec![vec![leaf, dialled]]),
        (&[("shop/leaf", 1), ("shop/pods", 0)], &[], vec![vec![leaf]]),
        (&[("shop/pods", 1)], &[], vec![vec![dialled]]),
    ] {
        let mut compiler =
            mesh(vec![service("shop/pods", "pods", &http), service("shop/leaf", "pods", &http)]);
        let split = split("shop/s", "shop/pods", backends, matches);
        compiler.apply([group("shop/canary", &["/canary"]), split].map(upsert));
        // `leaf` is the first by name, and would take the connections.
        let other = Service { headless: false, ..service("shop/leaf", "pods", &http) };
        compiler.apply([upsert(Object::from(other))]);
        assert_eq!(routed(&compiler), expected, "{backends:?} {matches:?}");
        assert_eq!(compiler.problems(), []);
    }
}

#[test]
fn a_slice_says_where_the_pods_of_a_headless_service_are_dialled() {
    let mut compiler = mesh(vec![service("shop/other", "nothing", &[port(80, AppProtocol::Tcp)])]);
    assert_eq!(dialled(&compiler), at(&[]));
    let slice = slice("shop/s", "shop/other", &[("p80", 6060)], &["10.1.0.2"]);
    compiler.apply([upsert(Object::EndpointSlice(slice))]);
    assert_eq!(dialled(&compiler), at(&[("10.1.0.2", 6060)]));
}

/// A pod of another namespace whose status has the virtual address of a service.
#[test]
fn a_callers_connections_stay_with_the_service_that_has_the_address() {
    let mut compiler = mesh(Vec::new());
    let evil = Service {
        headless: true,
        cluster_ips: Vec::new(),
        ..service("aaa/evil", "evil", &[to(TargetPort::Number(80), 80)])
    };
    let web = service("shop/web", "pods", &[to(TargetPort::Number(80), 80)]);
    assert_eq!(web.cluster_ips, ["10.96.0.1".parse::<std::net::IpAddr>().unwrap()]);
    let whose = |compiler: &Compiler| {
        let listener: Listener = get(&view(compiler), ResourceType::Listener, names::OUTBOUND_LISTENER);
        let chains = listener.filter_chains.into_iter().filter(|chain| {
            let mut ranges = chain.filter_chain_match.iter().flat_map(|matched| &matched.prefix_ranges);
            ranges.any(|range| range.address_prefix == "10.96.0.1")
        });
        chains.map(|chain| chain.name).collect::<Vec<_>>()
    };
    compiler.apply([namespace("aaa"), Object::from(web)].map(upsert));
    let before = whose(&compiler);
    assert_eq!(before.len(), 1);
    let pod = Object::from(pod("aaa/evil", "aaa/evil", "evil", "10.96.0.1"));
    compiler.apply([pod, Object::from(evil)].map(upsert));
    assert_eq!(whose(&compiler), before);
    let problems = compiler.problems();
    let report = problems.iter().find(|problem| problem.subject.to_string() == "Service aaa/evil").unwrap();
    assert!(report.message.contains("10.96.0.1") && report.message.contains("shop/web"), "{report}");
}

/// The balancer of `shop/pods:8080`, the hashes of its routes, and whether chains note the caller or hash it.
fn kept(compiler: &Compiler, protocol: AppProtocol) -> (LbPolicy, Vec<usize>, bool) {
    let view = view(compiler);
    let cluster: Cluster = get(&view, ResourceType::Cluster, "shop/pods|8080");
    let mut hashes = Vec::new();
    if protocol == AppProtocol::Http {
        let name = names::outbound_route(&"shop/pods".parse().unwrap(), 8080);
        let routes: RouteConfiguration = get(&view, ResourceType::Route, &name);
        for route in routes.virtual_hosts.into_iter().flat_map(|host| host.routes) {
            let Some(Action::Route(action)) = route.action else { panic!("a route leads to clusters") };
            hashes.push(action.hash_policy.len());
        }
    }
    let listener: Listener = get(&view, ResourceType::Listener, names::OUTBOUND_LISTENER);
    let mut filters = listener.filter_chains.into_iter().flat_map(|chain| chain.filters);
    let by_caller = filters.any(|filter| {
        let Some(ConfigType::TypedConfig(any)) = filter.config_type else { panic!("no configuration") };
        filter.name == "envoy.filters.network.set_filter_state"
            || filter.name == "envoy.filters.network.tcp_proxy"
                && !TcpProxy::decode(&*any.value).unwrap().hash_policy.is_empty()
    });
    (cluster.lb_policy(), hashes, by_caller)
}

#[test]
fn a_caller_stays_at_one_pod_where_a_service_that_is_balanced_says_so() {
    use AppProtocol::{Http, Tcp};
    use LbPolicy::{Maglev, RoundRobin};
    // Whether the service keeps its callers, is headless, and whether a backend of its split keeps them.
    for (sentence, keeps, headless, leaf, expected) in [
        ("any pod is picked by default", false, false, None, (RoundRobin, vec![0], false)),
        ("the caller decides if the service says so", true, false, None, (Maglev, vec![1], true)),
        ("a pod that is dialled is meant", true, true, None, (Maglev, vec![0], false)),
        ("a backend keeps its share of the callers", false, false, Some(true), (RoundRobin, vec![1], true)),
        ("a split of others has no affinity", true, false, Some(false), (Maglev, vec![0], false)),
    ] {
        for protocol in [Http, Tcp] {
            let affinity = |keeps| if keeps { SessionAffinity::ClientIp } else { SessionAffinity::None };
            let ports = [port(8080, protocol)];
            let root = service("shop/pods", "pods", &ports);
            let cluster_ips = if headless { Vec::new() } else { root.cluster_ips.clone() };
            let mut compiler = mesh(Vec::new());
            let root = Service { affinity: affinity(keeps), headless, cluster_ips, ..root };
            compiler.apply([upsert(Object::from(root))]);
            if let Some(leaf_keeps) = leaf {
                let other = service("shop/z-leaf", "pods", &ports);
                let other = Service {
                    affinity: affinity(leaf_keeps),
                    cluster_ips: vec!["10.96.0.2".parse().unwrap()],
                    ..other
                };
                let split = split("shop/s", "shop/pods", &[("shop/z-leaf", 1)], &[]);
                compiler.apply([Object::from(other), split].map(upsert));
            }
            let (balancer, hashes, by_caller) = expected.clone();
            let hashes = if protocol == Http { hashes } else { Vec::new() };
            // The chain of the leaf itself notes its callers as well.
            let by_caller = by_caller || leaf == Some(true);
            assert_eq!(kept(&compiler, protocol), (balancer, hashes, by_caller), "{sentence} {protocol:?}");
            let lost = compiler.problems().iter().any(|problem| problem.message.contains("sessionAffinity"));
            assert_eq!(lost, leaf == Some(false), "{sentence}: of a split that loses it a problem says so");
        }
    }
}
