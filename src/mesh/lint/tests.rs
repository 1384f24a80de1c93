//! Breaks each rule once, in an otherwise valid snapshot.

mod authorization;
mod limits;
mod logs;
mod tls_parameters;
mod tracing;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::{TransportSocket, transport_socket};
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::rbac::v3 as rbac;
use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, RouteConfiguration, header_matcher};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::{Rbac, RbacPerRoute};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_filter,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::{Message, Name};
use rbac::permission::{Rule, Set};

use super::*;
use crate::catalog::fixtures::{
    self, authorization, group, http_rule, name, namespace, pod, port, service, target, tcp_route, tcp_rule,
};
use crate::catalog::{Object, SourceEvent};
use crate::policy::fixtures::{egress, host, ingress};
use crate::translate::{Compiler, Input, Settings};
use smc_api::osm::MeshConfig;
use smc_api::osm::egress::{Egress, EgressProtocol};
use smc_api::osm::ingress_backend::{BackendPort, IngressBackend, IngressProtocol, IngressSources};
use smc_authority::pki::{ServiceCertificate, TrustBundle};
use smc_model::topology::Service;
use smc_types::ids::TrustDomain;
use smc_types::proxy_class::AppProtocol;
use smc_xds::names;

/// Port 80 of b, in clear text to addresses, over TLS to a name at these.
fn opened_to_ingress() -> IngressBackend {
    let object = ingress("shop/gateway", "shop/b", 80, &[], &["192.0.2.0/24"]);
    let mut backends = object.backends.clone();
    backends.extend(object.backends.iter().map(|backend| BackendPort {
        protocol: IngressProtocol::Https { checks_client: true, server_names: None },
        ..backend.clone()
    }));
    let principals = ["gateway.example".to_owned()].into();
    IngressBackend { backends, sources: IngressSources { principals, ..object.sources }, ..object }
}

/// A host that b may reach over HTTP and TLS, in these networks or by its name.
fn let_out(id: &str, networks: Option<&[&str]>) -> Object {
    let ports = [(80, EgressProtocol::Http), (443, EgressProtocol::Https)];
    let egress = egress(&format!("shop/{id}"), Some(&[host("h.example")]), networks, &ports);
    Object::from(Egress { sources: ["shop/b".parse().unwrap()].into(), ..egress })
}

/// The snapshot of b. It serves HTTP and TCP to a and HTTP to an ingress, and calls a, both at its cluster IP
/// and headless.
fn sound() -> View {
    let headless = Service {
        headless: true,
        cluster_ips: Vec::new(),
        ..service("shop/a-pods", "a", &[port(81, AppProtocol::Tcp)])
    };
    let grants = [http_rule("shop/some", None), tcp_rule("shop/any")];
    let objects = [
        namespace("shop"),
        Object::from(pod("shop/a", "shop/a", "a", "10.1.0.1")),
        Object::from(pod("shop/b", "shop/b", "b", "10.1.0.2")),
        Object::from(service("shop/a", "a", &[port(80, AppProtocol::Http)])),
        Object::from(headless),
        Object::from(service("shop/b", "b", &[port(80, AppProtocol::Http), port(90, AppProtocol::Tcp)])),
        group("shop/some", &["/some"]),
        tcp_route("shop/any", &[]),
        target("shop/to-a", "shop/a", &["shop/b"], &grants),
        target("shop/to-b", "shop/b", &["shop/a"], &grants),
        Object::from(opened_to_ingress()),
        fixtures::connections("shop/connections", "shop/b", 100),
        let_out("by-name", None),
        let_out("by-network", Some(&["192.0.2.0/24"])),
        Object::MeshConfig(
            name("smc-system/osm-mesh-config"),
            MeshConfig {
                external_authorization: Some(authorization("opa.example")),
                tracing: Some(fixtures::tracing("jaeger.example")),
                ..MeshConfig::default()
            },
        ),
    ];
    let mut compiler = Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()));
    let certificate = ServiceCertificate { chain_pem: "chain".to_owned(), key_pem: "key".to_owned().into() };
    compiler.apply([
        Input::Bundle(TrustBundle { pem: "roots".to_owned() }),
        Input::Certificate("shop/b".parse().unwrap(), certificate),
    ]);
    compiler.apply(objects.map(|object| Input::Source(SourceEvent::Upsert(object))));
    let view = compiler.served_state().view(&pod("shop/b", "shop/b", "b", "10.1.0.2").proxy_name()).unwrap();
    assert_eq!(lint(&view), []);
    view
}

/// The faults of the resource after `change`.
#[track_caller]
fn broken<T: Message + Default>(kind: ResourceType, name: &str, change: impl FnOnce(&mut T)) -> String {
    let view = sound();
    let resource = view.get(kind, name).unwrap_or_else(|| panic!("{name} is served"));
    let any = Any::decode(&*resource.any()).unwrap();
    let mut message = T::decode(&*any.value).unwrap();
    change(&mut message);
    let resource = Resource::encode(kind, name, &message);
    assert_ne!(resource.any(), view.get(kind, name).unwrap().any(), "nothing was broken");
    Facts::of(&resource).faults.join("; ")
}

fn inbound(change: impl FnOnce(&mut FilterChain), name: &str) -> String {
    broken(ResourceType::Listener, names::INBOUND_LISTENER, |listener: &mut Listener| {
        change(listener.filter_chains.iter_mut().find(|chain| chain.name == name).unwrap());
    })
}

/// Changes the packed filter of this type.
fn unpacked<T: Message + Name + Default>(chain: &mut FilterChain, change: impl FnOnce(&mut T)) {
    let any = chain.filters.iter_mut().find_map(|filter| match &mut filter.config_type {
        Some(filter::ConfigType::TypedConfig(any)) if any.type_url == T::type_url() => Some(any),
        _ => None,
    });
    let any = any.unwrap();
    let mut message = T::decode(&*any.value).unwrap();
    change(&mut message);
    *any = pack_any(message);
}

fn inbound_http(change: impl FnOnce(&mut HttpConnectionManager)) -> String {
    inbound(|chain| unpacked(chain, change), "inbound_80_http")
}

fn inbound_routes(change: impl FnOnce(&mut RouteConfiguration)) -> String {
    broken(ResourceType::Route, "inbound_80_http", change)
}

/// Changes the rules that stand in the route configuration.
fn inbound_rules(change: impl FnOnce(&mut RbacPerRoute)) -> String {
    rules_in("inbound_80_http", change)
}

fn rules_in(name: &str, change: impl FnOnce(&mut RbacPerRoute)) -> String {
    broken(ResourceType::Route, name, |routes: &mut RouteConfiguration| {
        let any = routes.virtual_hosts[0].typed_per_filter_config.values_mut().next().unwrap();
        let mut rules = RbacPerRoute::decode(&*any.value).unwrap();
        change(&mut rules);
        *any = pack_any(rules);
    })
}

fn cluster(name: &str, change: impl FnOnce(&mut Cluster)) -> String {
    broken(ResourceType::Cluster, name, change)
}

fn validation(name: &str, pattern: MatchPattern) -> String {
    broken(ResourceType::Secret, name, |secret: &mut tls::Secret| {
        let Some(tls::secret::Type::ValidationContext(context)) = &mut secret.r#type else {
            panic!("{name}")
        };
        context.match_typed_subject_alt_names[0].matcher =
            Some(StringMatcher { match_pattern: Some(pattern), ignore_case: false });
    })
}

fn empty_expression() -> MatchPattern {
    MatchPattern::SafeRegex(RegexMatcher::default())
}

fn raw_socket() -> TransportSocket {
    TransportSocket { name: "envoy.transport_sockets.raw_buffer".to_owned(), config_type: None }
}

fn without_rules(manager: &mut HttpConnectionManager) {
    let filter = &mut manager.http_filters[0];
    assert_eq!(filter.name, "envoy.filters.http.rbac");
    filter.config_type = Some(http_filter::ConfigType::TypedConfig(pack_any(Rbac::default())));
}

#[test]
fn no_client_connects_in_clear_text() {
    for name in ["inbound_80_http", "inbound_90_tcp"] {
        for found in [
            inbound(|chain| chain.transport_socket = None, name),
            inbound(|chain| chain.transport_socket = Some(raw_socket()), name),
        ] {
            assert!(found.contains("in clear text"), "{name}: {found:?}");
        }
    }
    let found = broken(ResourceType::Listener, names::INBOUND_LISTENER, |listener: &mut Listener| {
        listener.default_filter_chain =
            Some(FilterChain { transport_socket: None, ..listener.filter_chains[0].clone() });
    });
    assert!(found.contains("in clear text"), "{found:?}");
}

#[test]
fn nothing_of_the_mesh_goes_out_in_clear_text() {
    for name in ["shop/a|80", "shop/a-pods|81|pod"] {
        for found in [
            cluster(name, |cluster| cluster.transport_socket = None),
            cluster(name, |cluster| cluster.transport_socket = Some(raw_socket())),
        ] {
            assert!(found.contains("in clear text"), "{name}: {found:?}");
        }
    }
}

#[test]
fn clear_text_to_the_application_stays_in_the_pod() {
    let found = cluster("local|80|http", |cluster| {
        use envoy_types::pb::envoy::config::core::v3::address::Address;
        use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
        let assignment = cluster.load_assignment.as_mut().unwrap();
        let host = assignment.endpoints[0].lb_endpoints[0].host_identifier.as_mut().unwrap();
        let HostIdentifier::Endpoint(endpoint) = host else { panic!("no endpoint") };
        let address = endpoint.address.as_mut().unwrap().address.as_mut().unwrap();
        let Address::SocketAddress(socket) = address else { panic!("no socket") };
        socket.address = "10.1.0.1".to_owned();
    });
    assert!(found.contains("leaves the pod"), "{found:?}");
}

/// The kernel sends nothing that comes from a loopback address out of the pod.
#[test]
fn clear_text_to_the_original_destination_comes_from_loopback() {
    use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
    use envoy_types::pb::envoy::config::core::v3::{BindConfig, ExtraSourceAddress, SocketAddress};
    let from = |sources: &[&str]| {
        cluster("local|80|http", |cluster| {
            let mut addresses = sources
                .iter()
                .map(|ip| SocketAddress { address: (*ip).to_owned(), ..SocketAddress::default() });
            cluster.load_assignment = None;
            let original = DiscoveryType::OriginalDst.into();
            cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(original));
            cluster.upstream_bind_config = (!sources.is_empty()).then(|| BindConfig {
                source_address: addresses.next(),
                extra_source_addresses: addresses
                    .map(|address| ExtraSourceAddress { address: Some(address), ..Default::default() })
                    .collect(),
                ..BindConfig::default()
            });
        })
    };
    assert_eq!(from(&["127.0.0.1", "::1"]), "");
    for sources in [&[][..], &["127.0.0.1"], &["::1"], &["10.1.0.1", "::1"], &["127.0.0.1", "::1", "fd00::1"]]
    {
        assert!(from(sources).contains("leaves the pod"), "{sources:?}");
    }
}

#[test]
fn no_request_reaches_the_application_unauthorised() {
    for found in [
        inbound_http(|manager| drop(manager.http_filters.remove(0))),
        inbound_http(|manager| manager.http_filters.reverse()),
        inbound_http(|manager| manager.http_filters[0].disabled = true),
        inbound_http(without_rules),
        inbound_http(|manager| manager.route_specifier = None),
    ] {
        assert!(found.contains("HTTP"), "{found:?}");
    }
    let found = inbound(|chain| drop(chain.filters.remove(1)), "inbound_90_tcp");
    assert!(found.contains("authorised"), "{found:?}");
}

#[test]
fn a_route_to_the_application_has_rules_that_deny_by_default() {
    for (what, found) in [
        ("none", inbound_routes(|routes| routes.virtual_hosts[0].typed_per_filter_config.clear())),
        ("switched off", inbound_rules(|rules| rules.rbac = None)),
        ("empty", inbound_rules(|rules| rules.rbac.as_mut().unwrap().rules = None)),
        (
            "of denial",
            inbound_rules(|rules| {
                let rules = rules.rbac.as_mut().unwrap().rules.as_mut().unwrap();
                rules.action = rbac::rbac::Action::Deny.into();
            }),
        ),
        (
            "for every client",
            inbound_rules(|rules| {
                let rules = rules.rbac.as_mut().unwrap().rules.as_mut().unwrap();
                let policy = rules.policies.values_mut().next().unwrap();
                let any = rbac::principal::Identifier::Any(true);
                policy.principals.push(rbac::Principal { identifier: Some(any) });
            }),
        ),
        (
            "overridden",
            inbound_routes(|routes| {
                let host = &mut routes.virtual_hosts[0];
                host.routes[0].typed_per_filter_config = host.typed_per_filter_config.clone();
            }),
        ),
    ] {
        assert!(found.contains("rules"), "{what}: {found:?}");
    }
}

#[test]
fn an_expression_is_never_empty() {
    let by_header = || HeaderMatcher {
        name: "x".to_owned(),
        header_match_specifier: Some(header_matcher::HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(empty_expression()),
            ignore_case: false,
        })),
        ..HeaderMatcher::default()
    };
    let permission = |rule| rbac::Permission { rule: Some(rule) };
    for found in [
        inbound_routes(|routes| {
            use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
            let matched = routes.virtual_hosts[0].routes[0].r#match.as_mut().unwrap();
            matched.path_specifier = Some(PathSpecifier::SafeRegex(RegexMatcher::default()));
        }),
        inbound_routes(|routes| {
            routes.virtual_hosts[0].routes[0].r#match.as_mut().unwrap().headers.push(by_header());
        }),
        inbound_rules(|rules| {
            let rules = rules.rbac.as_mut().unwrap().rules.as_mut().unwrap();
            let policy = rules.policies.values_mut().next().unwrap();
            let not = Rule::NotRule(Box::new(permission(Rule::Header(by_header()))));
            policy.permissions.push(permission(Rule::AndRules(Set { rules: vec![permission(not)] })));
        }),
    ] {
        assert!(found.contains("empty expression"), "{found:?}");
    }
}

#[test]
fn a_validation_context_names_identities() {
    let name = names::INBOUND_VALIDATION;
    for pattern in [
        MatchPattern::Prefix(String::new()),
        MatchPattern::Prefix("spiffe://".to_owned()),
        MatchPattern::Prefix("spiffe://cluster.local".to_owned()),
        MatchPattern::Exact(String::new()),
        MatchPattern::Suffix("/sa/a".to_owned()),
        MatchPattern::Contains("a".to_owned()),
        empty_expression(),
    ] {
        let found = validation(name, pattern.clone());
        assert!(found.contains("identities"), "{pattern:?}: {found:?}");
    }
}

#[test]
fn only_the_statistics_are_served_in_clear_text() {
    let found = broken(ResourceType::Listener, names::PROMETHEUS_LISTENER, |listener: &mut Listener| {
        use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
        use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
        unpacked(&mut listener.filter_chains[0], |manager: &mut HttpConnectionManager| {
            let Some(RouteSpecifier::RouteConfig(routes)) = &mut manager.route_specifier else {
                panic!("none")
            };
            let matched = routes.virtual_hosts[0].routes[0].r#match.as_mut().unwrap();
            matched.path_specifier = Some(PathSpecifier::Prefix("/".to_owned()));
        });
    });
    assert!(found.contains("statistics"), "{found:?}");
}

/// What lets an ingress in lets in no more than what policy names.
#[test]
fn an_ingress_is_let_in_by_address_or_name() {
    use rbac::principal::{Authenticated, Identifier, Set};
    let exact = |text: &str| {
        let pattern = MatchPattern::Exact(text.to_owned());
        StringMatcher { match_pattern: Some(pattern), ignore_case: false }
    };
    let named =
        |name: Option<StringMatcher>| Identifier::Authenticated(Authenticated { principal_name: name });
    let prefix = |text: &str| StringMatcher {
        match_pattern: Some(MatchPattern::Prefix(text.to_owned())),
        ignore_case: false,
    };
    let range = || envoy_types::pb::envoy::config::core::v3::CidrRange {
        address_prefix: "192.0.2.0".to_owned(),
        prefix_len: Some(envoy_types::pb::google::protobuf::UInt32Value { value: 24 }),
    };
    for name in ["ingress_80_http", "ingress_80_https"] {
        for identifier in [
            Identifier::Any(true),
            // It believes x-forwarded-for.
            Identifier::RemoteIp(range()),
            Identifier::NotId(Box::new(rbac::Principal {
                identifier: Some(Identifier::DirectRemoteIp(range())),
            })),
            Identifier::OrIds(Set::default()),
            Identifier::AndIds(Set::default()),
            named(None),
            named(Some(exact(""))),
            named(Some(exact("spiffe://cluster.local/ns/shop/sa/a"))),
            named(Some(exact("CN=gateway.example"))),
            named(Some(prefix("gateway"))),
        ] {
            let found = rules_in(name, |rules| {
                let rules = rules.rbac.as_mut().unwrap().rules.as_mut().unwrap();
                let policy = rules.policies.values_mut().next().unwrap();
                policy.principals.push(rbac::Principal { identifier: Some(identifier.clone()) });
            });
            assert!(found.contains("rules"), "{name} {identifier:?}: {found:?}");
        }
        let found = rules_in(name, |rules| rules.rbac = None);
        assert!(found.contains("rules"), "{name}: {found:?}");
        for found in [
            inbound(|chain| unpacked(chain, without_rules), name),
            inbound(|chain| chain.filters.clear(), name),
            inbound(|chain| chain.filters.push(chain.filters[0].clone()), name),
            // The routes of the mesh know nothing of addresses.
            inbound(|chain| unpacked(chain, |manager| routes_by(manager, "inbound_80_http")), name),
            inbound(|chain| unpacked(chain, |manager| routes_by(manager, "outbound_shop/a_80")), name),
        ] {
            assert!(found.contains("HTTP"), "{name}: {found:?}");
        }
        for found in [
            inbound(|chain| chain.filter_chain_match = None, name),
            inbound(|chain| chain.filter_chain_match.as_mut().unwrap().destination_port = None, name),
            inbound(|chain| chain.filter_chain_match.as_mut().unwrap().transport_protocol.clear(), name),
        ] {
            assert!(found.contains("others than an ingress"), "{name}: {found:?}");
        }
    }
    // Requests of the mesh are no less strict for it.
    let found = inbound_http(|manager| routes_by(manager, "ingress_80_http"));
    assert!(found.contains("HTTP"), "{found:?}");
}

/// Over TLS, what a certificate says is believed only where it is checked.
#[test]
fn a_certificate_of_an_ingress_is_checked_where_it_is_wanted() {
    let unchecked = inbound(|chain| validated_by(chain, None), "ingress_80_https");
    assert!(unchecked.contains("does not check"), "{unchecked:?}");
    for pattern in [
        MatchPattern::Exact(String::new()),
        MatchPattern::Prefix("gateway".to_owned()),
        MatchPattern::Suffix(".example".to_owned()),
    ] {
        let found = validation("root-cert-for-ingress:80", pattern.clone());
        assert!(found.contains("DNS names"), "{pattern:?}: {found:?}");
    }
    // A context for clients that need no certificate accepts more, and no chain that requires one has it; nor
    // has one of the mesh any for an ingress.
    for (name, validation) in [
        ("ingress_80_https", "root-cert-for-optional-ingress:80"),
        ("ingress_80_https", "root-cert-for-mtls-inbound"),
        ("inbound_80_http", "root-cert-for-optional-ingress:80"),
        ("inbound_80_http", "root-cert-for-ingress:80"),
    ] {
        let found = inbound(|chain| validated_by(chain, Some(validation)), name);
        assert!(found.contains("certificates that"), "{name} {validation}: {found:?}");
    }
}

fn routes_by(manager: &mut HttpConnectionManager, name: &str) {
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
    let Some(RouteSpecifier::Rds(rds)) = &mut manager.route_specifier else { panic!("by RDS") };
    rds.route_config_name = name.to_owned();
}

/// Changes the validation context of a chain.
fn validated_by(chain: &mut FilterChain, name: Option<&str>) {
    use tls::common_tls_context::ValidationContextType;
    let secret =
        |name: &str| tls::SdsSecretConfig { name: name.to_owned(), ..tls::SdsSecretConfig::default() };
    with_tls(chain.transport_socket.as_mut(), |context: &mut tls::DownstreamTlsContext| {
        context.common_tls_context.as_mut().unwrap().validation_context_type =
            name.map(|name| ValidationContextType::ValidationContextSdsSecretConfig(secret(name)));
    });
}

/// Changes the TLS of a socket.
fn with_tls<T: Message + Name + Default>(socket: Option<&mut TransportSocket>, change: impl FnOnce(&mut T)) {
    let Some(transport_socket::ConfigType::TypedConfig(any)) = &mut socket.unwrap().config_type else {
        panic!("not typed")
    };
    let mut context = T::decode(&*any.value).unwrap();
    change(&mut context);
    *any = pack_any(context);
}

fn outbound(name: &str, change: impl FnOnce(&mut FilterChain)) -> String {
    broken(ResourceType::Listener, names::OUTBOUND_LISTENER, |listener: &mut Listener| {
        change(listener.filter_chains.iter_mut().find(|chain| chain.name == name).unwrap());
    })
}

#[test]
fn nothing_leaves_the_mesh_but_to_names_and_networks_that_an_egress_names() {
    use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
    use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
    let original = || Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into()));
    let named = "egress|h.example|443|tcp";
    let to = |chain: &'static str, cluster: &'static str| {
        outbound(chain, |chain| {
            unpacked(chain, |proxy: &mut TcpProxy| {
                proxy.cluster_specifier = Some(tcp_proxy::ClusterSpecifier::Cluster(cluster.to_owned()));
            });
        })
    };
    let without_networks = |chain: &'static str| {
        outbound(chain, |chain| chain.filter_chain_match.as_mut().unwrap().prefix_ranges.clear())
    };
    let route_to = |routes: &'static str, cluster: &'static str| {
        use envoy_types::pb::envoy::config::route::v3::{route, route_action::ClusterSpecifier};
        broken(ResourceType::Route, routes, |routes: &mut RouteConfiguration| {
            let Some(route::Action::Route(action)) = &mut routes.virtual_hosts[0].routes[0].action else {
                panic!("no route")
            };
            action.cluster_specifier = Some(ClusterSpecifier::Cluster(cluster.to_owned()));
        })
    };
    let with_routes_of_another = outbound("egress_80_192.0.2.0/24", |chain| {
        unpacked(chain, |manager: &mut HttpConnectionManager| {
            let Some(RouteSpecifier::Rds(rds)) = &mut manager.route_specifier else { panic!("no routes") };
            rds.route_config_name = "egress_80_0.0.0.0/0".to_owned();
        });
    });
    for (case, found, words) in [
        (
            "a name that is not resolved",
            cluster(named, |c| c.cluster_discovery_type = original()),
            "clear text",
        ),
        (
            "another name",
            cluster(named, |c| c.name = "egress|other.example|443|tcp".to_owned()),
            "clear text",
        ),
        (
            "two addresses",
            cluster(named, |c| {
                let locality = &mut c.load_assignment.as_mut().unwrap().endpoints[0];
                locality.lb_endpoints.push(locality.lb_endpoints[0].clone());
            }),
            "clear text",
        ),
        (
            "another host",
            to("egress_443_0.0.0.0/0_h.example", "egress|other.example|443|tcp"),
            "not asked for",
        ),
        ("no networks", without_networks("egress_443_192.0.2.0/24_h.example"), "whatever is dialled"),
        ("no networks for HTTP", without_networks("egress_80_192.0.2.0/24"), "whatever is dialled"),
        ("the routes of another chain", with_routes_of_another, "routes of another one"),
        (
            "another host over HTTP",
            route_to("egress_80_0.0.0.0/0", "egress|other.example|80|http"),
            "not asked for",
        ),
        (
            "a chain of a service",
            to("outbound_shop/a-pods_81_tcp_81", "egress-dialled|tcp"),
            "out of the mesh",
        ),
        (
            "routes of a service",
            route_to("outbound_shop/a_80", "egress|h.example|80|http"),
            "out of the mesh",
        ),
    ] {
        assert!(found.contains(words), "{case}: {found:?}");
    }
}

#[test]
fn tls_of_the_application_is_looked_at_on_single_ports() {
    let found = broken(ResourceType::Listener, names::OUTBOUND_LISTENER, |listener: &mut Listener| {
        for filter in &mut listener.listener_filters {
            filter.filter_disabled = None;
        }
    });
    assert!(found.contains("waits for the first bytes"), "{found:?}");
}
