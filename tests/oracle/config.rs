//! The sidecars of many meshes as the static configuration of one Envoy.
//!
//! Owns what is changed of it, which is where things are, and nothing that decides: names are prefixed,
//! listeners are Unix sockets, the PROXY protocol replaces the kernel's redirection, routes and secrets
//! are inline, and what passes is answered by Envoy itself with what its clusters lead to. Connections
//! that servers let in and that are not HTTP end at one application.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use envoy_types::pb::envoy::config::bootstrap::v3::{
    Bootstrap, LayeredRuntime, RuntimeLayer, bootstrap::StaticResources, runtime_layer::LayerSpecifier,
};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3::{
    Address, DataSource, Pipe, SocketAddress, TransportSocket, address, data_source, socket_address,
    transport_socket,
};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
};
use envoy_types::pb::envoy::config::listener::v3::{
    FilterChain, Listener, ListenerFilter, filter, listener_filter,
};
use envoy_types::pb::envoy::config::rbac::v3::{Permission, Policy, Principal, permission, principal};
use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, HeaderMatcher, RouteConfiguration, header_matcher::HeaderMatchSpecifier, route,
    route_action::ClusterSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::RbacPerRoute;
use envoy_types::pb::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol;
use envoy_types::pb::envoy::extensions::filters::network::direct_response::v3 as direct_response;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::google::protobuf::{Any, Duration, Struct, Value, value};
use envoy_types::util::pack_any;
use prost::{Message, Name};
use smc_sidecar::bootstrap;
use smc_testkit::held_port::HeldPort;
use smc_xds::names;
use smc_xds::resource::ResourceType;
use smc_xds::served_state::View;

use crate::clusters::Clusters;
use crate::judge::Emission;

/// The cluster of every application that does not speak HTTP.
const APPLICATION: &str = "application";

/// The configuration of one Envoy, while sidecars are added.
pub(crate) struct Config {
    directory: PathBuf,
    emission: Emission,
    /// Whether servers listen at addresses, at which the connection's own address can be seen.
    at_addresses: bool,
    resources: StaticResources,
}

/// Where one sidecar listens.
pub(crate) struct Sidecar {
    pub(crate) inbound: Option<PathBuf>,
    /// In the place of a socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) outbound: PathBuf,
    _port: Option<HeldPort>,
}

impl Config {
    /// Without sidecars. All sockets are in `directory`.
    pub(crate) fn new(directory: &Path, emission: Emission, at_addresses: bool) -> Self {
        let resources =
            StaticResources { clusters: vec![application(directory)], ..StaticResources::default() };
        Self { directory: directory.to_owned(), emission, at_addresses, resources }
    }

    /// The socket on which the application is to listen.
    pub(crate) fn application(directory: &Path) -> PathBuf {
        directory.join(APPLICATION)
    }

    /// Adds what a pod is served, under a prefix of its own.
    pub(crate) fn add(&mut self, prefix: &str, view: &View) -> Sidecar {
        let routes = decode::<RouteConfiguration>(view, ResourceType::Route);
        let routes: BTreeMap<_, _> = routes.map(|routes| (routes.name.clone(), routes)).collect();
        for mut secret in decode::<tls::Secret>(view, ResourceType::Secret) {
            secret.name = format!("{prefix}/{}", secret.name);
            self.resources.secrets.push(secret);
        }
        let clusters = Clusters::of(view);
        let (mut sockets, mut held) = (BTreeMap::new(), None);
        for mut listener in decode::<Listener>(view, ResourceType::Listener) {
            if listener.name == names::PROMETHEUS_LISTENER {
                continue;
            }
            let socket = self.directory.join(format!("{prefix}-{}", listener.name));
            let outbound = listener.name == names::OUTBOUND_LISTENER;
            sockets.insert(listener.name.clone(), socket.clone());
            listener.name = format!("{prefix}/{}", listener.name);
            listener.address = Some(pipe(&socket));
            if self.at_addresses && !outbound {
                let port: &HeldPort = held.insert(HeldPort::loopback());
                listener.address = Some(tcp(port.address));
            }
            listener.additional_addresses.clear();
            for filter in &mut listener.listener_filters {
                if filter.name == "envoy.filters.listener.original_dst" {
                    *filter = destination_from_the_client();
                }
            }
            if self.emission == Emission::ServerNamesExchanged {
                exchange_server_names(&mut listener.filter_chains);
            }
            for chain in listener.filter_chains.iter_mut().chain(listener.default_filter_chain.as_mut()) {
                self.move_chain(prefix, chain, outbound, &routes, &clusters);
            }
            self.resources.listeners.push(listener);
        }
        Sidecar {
            inbound: sockets.remove(names::INBOUND_LISTENER),
            address: held.as_ref().map(|port| port.address),
            outbound: sockets.remove(names::OUTBOUND_LISTENER).expect("every sidecar has one"),
            _port: held,
        }
    }

    fn move_chain(
        &self,
        prefix: &str,
        chain: &mut FilterChain,
        outbound: bool,
        routes: &BTreeMap<String, RouteConfiguration>,
        clusters: &Clusters,
    ) {
        local_secrets(prefix, chain.transport_socket.as_mut());
        for filter in &mut chain.filters {
            let Some(filter::ConfigType::TypedConfig(any)) = filter.config_type.as_mut() else { continue };
            if any.type_url == HttpConnectionManager::type_url() {
                let mut manager = HttpConnectionManager::decode(&*any.value).unwrap();
                manager.access_log.clear();
                // Envoy keeps the connection of a malformed request for a second, which decides nothing.
                manager.delayed_close_timeout = Some(Duration { seconds: 0, nanos: 10_000_000 });
                if let Some(RouteSpecifier::Rds(rds)) = &manager.route_specifier {
                    let routes = routes.get(&rds.route_config_name).expect("RDS name is served").clone();
                    manager.route_specifier =
                        Some(RouteSpecifier::RouteConfig(self.answering(routes, clusters)));
                }
                *any = pack_any(manager);
            } else if any.type_url == TcpProxy::type_url() {
                let mut proxy = TcpProxy::decode(&*any.value).unwrap();
                if outbound {
                    "envoy.filters.network.direct_response".clone_into(&mut filter.name);
                    let answer = clusters.answer(clusters_of(&proxy));
                    *any = pack_any(direct_response::Config { response: Some(inline(&answer)) });
                    continue;
                }
                proxy.access_log.clear();
                proxy.cluster_specifier = Some(tcp_proxy::ClusterSpecifier::Cluster(APPLICATION.to_owned()));
                *any = pack_any(proxy);
            }
        }
    }

    /// Routes that answer with what the clusters lead to that they go to.
    fn answering(&self, mut routes: RouteConfiguration, clusters: &Clusters) -> RouteConfiguration {
        for host in &mut routes.virtual_hosts {
            for route in &mut host.routes {
                let Some(route::Action::Route(action)) = &route.action else { continue };
                let answer = match action.cluster_specifier.as_ref().unwrap() {
                    ClusterSpecifier::Cluster(cluster) => clusters.answer([&**cluster]),
                    ClusterSpecifier::WeightedClusters(split) => {
                        let parts =
                            split.clusters.iter().filter(|part| part.weight.is_some_and(|w| w.value > 0));
                        clusters.answer(parts.map(|part| &*part.name))
                    }
                    other => panic!("{other:?}"),
                };
                route.action = Some(route::Action::DirectResponse(DirectResponseAction {
                    status: 200,
                    body: Some(inline(&answer)),
                    ..DirectResponseAction::default()
                }));
            }
            let rules = host.typed_per_filter_config.values_mut();
            match self.emission {
                Emission::AsServed | Emission::ServerNamesExchanged => {}
                Emission::AnyHeaderValueSuffices => rules.for_each(without_excluded_values),
                Emission::Http2Passes => rules.for_each(with_all_without_length),
                Emission::ClaimedAddressesDecide
                | Emission::AddressesForgotten
                | Emission::ServerNamesForgotten => {
                    rules.for_each(|any| without_a_condition(any, self.emission));
                }
            }
        }
        routes
    }

    /// The bootstrap, and the socket that is listened on last.
    pub(crate) fn finish(self) -> (Vec<u8>, PathBuf) {
        let last = self.resources.listeners.last().and_then(|listener| listener.address.clone());
        let Some(address::Address::Pipe(last)) = last.and_then(|address| address.address) else {
            panic!("there is a listener")
        };
        let bootstrap = Bootstrap {
            static_resources: Some(self.resources),
            layered_runtime: Some(LayeredRuntime { layers: vec![runtime()] }),
            ..Bootstrap::default()
        };
        (bootstrap.encode_to_vec(), PathBuf::from(last.path))
    }
}

/// Gives each chain of a port the names of the next one.
fn exchange_server_names(chains: &mut [FilterChain]) {
    let mut by_port: BTreeMap<u32, Vec<&mut Vec<String>>> = BTreeMap::new();
    for found in chains.iter_mut().filter_map(|chain| chain.filter_chain_match.as_mut()) {
        if let (Some(port), false) = (&found.destination_port, found.server_names.is_empty()) {
            by_port.entry(port.value).or_default().push(&mut found.server_names);
        }
    }
    for mut names in by_port.into_values() {
        let mut next: Vec<_> = names.iter().map(|names| (*names).clone()).collect();
        next.rotate_left(1);
        names.iter_mut().zip(next).for_each(|(names, next)| **names = next);
    }
}

/// Admits every request without a length, chunks or an upgrade, of which this test's requests of HTTP/1.1
/// have one.
fn with_all_without_length(any: &mut Any) {
    let mut config = RbacPerRoute::decode(&*any.value).unwrap();
    let rules = config.rbac.as_mut().and_then(|rbac| rbac.rules.as_mut()).unwrap();
    let without = |name: &str| Permission {
        rule: Some(permission::Rule::Header(HeaderMatcher {
            name: name.to_owned(),
            invert_match: true,
            header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(true)),
            ..HeaderMatcher::default()
        })),
    };
    let names = ["content-length", "transfer-encoding", "upgrade"];
    let all = permission::Set { rules: names.map(without).to_vec() };
    let policy = Policy {
        permissions: vec![Permission { rule: Some(permission::Rule::AndRules(all)) }],
        principals: vec![Principal { identifier: Some(principal::Identifier::Any(true)) }],
        ..Policy::default()
    };
    rules.policies.insert("http2".to_owned(), policy);
    *any = pack_any(config);
}

/// Puts the old fault back: leaves out the rules that no value of a header may match.
fn without_excluded_values(any: &mut Any) {
    let mut config = RbacPerRoute::decode(&*any.value).unwrap();
    let rules = config.rbac.as_mut().and_then(|rbac| rbac.rules.as_mut()).unwrap();
    for permission in rules.policies.values_mut().flat_map(|policy| &mut policy.permissions) {
        if let Some(permission::Rule::AndRules(all)) = &mut permission.rule {
            all.rules.retain(|rule| !excludes_a_value(rule));
        }
    }
    *any = pack_any(config);
}

fn excludes_a_value(rule: &Permission) -> bool {
    let Some(permission::Rule::NotRule(rule)) = &rule.rule else { return false };
    matches!(&rule.rule, Some(permission::Rule::Header(_)))
}

/// Puts a hole into what an ingress has to fulfil.
fn without_a_condition(any: &mut Any, emission: Emission) {
    let mut config = RbacPerRoute::decode(&*any.value).unwrap();
    let rules = config.rbac.as_mut().and_then(|rbac| rbac.rules.as_mut()).unwrap();
    for policy in rules.policies.values_mut() {
        policy.principals.iter_mut().for_each(|principal| principal_without(principal, emission));
        policy.permissions.iter_mut().for_each(|permission| permission_without(permission, emission));
    }
    *any = pack_any(config);
}

fn principal_without(principal: &mut Principal, emission: Emission) {
    use principal::Identifier::{AndIds, Any, DirectRemoteIp, NotId, OrIds, RemoteIp};
    match principal.identifier.as_mut() {
        Some(AndIds(set) | OrIds(set)) => {
            set.ids.iter_mut().for_each(|principal| principal_without(principal, emission));
        }
        Some(NotId(principal)) => principal_without(principal, emission),
        Some(DirectRemoteIp(range)) if emission == Emission::ClaimedAddressesDecide => {
            principal.identifier = Some(RemoteIp(range.clone()));
        }
        Some(DirectRemoteIp(_)) if emission == Emission::AddressesForgotten => {
            principal.identifier = Some(Any(true));
        }
        _ => {}
    }
}

fn permission_without(permission: &mut Permission, emission: Emission) {
    use permission::Rule::{AndRules, Any, NotRule, OrRules, RequestedServerName};
    match permission.rule.as_mut() {
        Some(AndRules(set) | OrRules(set)) => {
            set.rules.iter_mut().for_each(|permission| permission_without(permission, emission));
        }
        Some(NotRule(permission)) => permission_without(permission, emission),
        Some(RequestedServerName(_)) if emission == Emission::ServerNamesForgotten => {
            permission.rule = Some(Any(true));
        }
        _ => {}
    }
}

/// What SMC's bootstraps set.
fn runtime() -> RuntimeLayer {
    let value = Value { kind: Some(value::Kind::NumberValue(bootstrap::RE2_MAX_PROGRAM_SIZE.into())) };
    RuntimeLayer {
        name: "static".to_owned(),
        layer_specifier: Some(LayerSpecifier::StaticLayer(Struct {
            fields: [(bootstrap::RE2_MAX_PROGRAM_SIZE_KEY.to_owned(), value)].into_iter().collect(),
        })),
    }
}

/// The clusters that connections go to.
fn clusters_of(proxy: &TcpProxy) -> Vec<&str> {
    match proxy.cluster_specifier.as_ref().unwrap() {
        tcp_proxy::ClusterSpecifier::Cluster(cluster) => vec![cluster],
        tcp_proxy::ClusterSpecifier::WeightedClusters(split) => {
            split.clusters.iter().filter(|part| part.weight > 0).map(|part| &*part.name).collect()
        }
    }
}

/// The resources of one type.
pub(crate) fn decode<T: Message + Default>(view: &View, kind: ResourceType) -> impl Iterator<Item = T> {
    view.all(kind).map(|resource| T::decode(&*Any::decode(&*resource.any()).unwrap().value).unwrap())
}

/// A secret without a source is looked for among the static ones.
fn local_secrets(prefix: &str, socket: Option<&mut TransportSocket>) {
    let Some(transport_socket::ConfigType::TypedConfig(any)) = socket.and_then(|s| s.config_type.as_mut())
    else {
        return;
    };
    let mut context = tls::DownstreamTlsContext::decode(&*any.value).unwrap();
    let common = context.common_tls_context.as_mut().unwrap();
    let moved = |secret: &mut tls::SdsSecretConfig| {
        secret.sds_config = None;
        secret.name = format!("{prefix}/{}", secret.name);
    };
    common.tls_certificate_sds_secret_configs.iter_mut().for_each(moved);
    match common.validation_context_type.as_mut() {
        Some(tls::common_tls_context::ValidationContextType::ValidationContextSdsSecretConfig(secret)) => {
            moved(secret);
        }
        // An ingress may do without certificates.
        None => {}
        other => panic!("unexpected validation: {other:?}"),
    }
    *any = pack_any(context);
}

fn destination_from_the_client() -> ListenerFilter {
    ListenerFilter {
        name: "envoy.filters.listener.proxy_protocol".to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(pack_any(ProxyProtocol::default()))),
        ..ListenerFilter::default()
    }
}

fn pipe(path: &Path) -> Address {
    let path = path.to_str().expect("temporary directories are text").to_owned();
    Address { address: Some(address::Address::Pipe(Pipe { path, mode: 0 })) }
}

fn tcp(address: SocketAddr) -> Address {
    let port = Some(socket_address::PortSpecifier::PortValue(address.port().into()));
    let socket =
        SocketAddress { address: address.ip().to_string(), port_specifier: port, ..SocketAddress::default() };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

fn inline(text: &str) -> DataSource {
    let specifier = Some(data_source::Specifier::InlineString(text.to_owned()));
    DataSource { specifier, ..DataSource::default() }
}

fn application(directory: &Path) -> Cluster {
    let endpoint = Endpoint { address: Some(pipe(&Config::application(directory))), ..Endpoint::default() };
    let host =
        LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() };
    Cluster {
        name: APPLICATION.to_owned(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Static.into(),
        )),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: APPLICATION.to_owned(),
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![host],
                ..LocalityLbEndpoints::default()
            }],
            ..ClusterLoadAssignment::default()
        }),
        ..Cluster::default()
    }
}
