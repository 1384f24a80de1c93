//! Reads one encoded resource: what it refers to, and its faults regardless of other resources.

use std::collections::BTreeSet;
use std::net::IpAddr;

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3::{
    RuntimeFractionalPercent, TransportSocket, TypedExtensionConfig, grpc_service, transport_socket,
};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, lb_endpoint::HostIdentifier};
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener, filter};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::{ExtAuthz, ext_authz};
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::network::rbac::v3 as network_rbac;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::google::protobuf::Any;
use prost::{DecodeError, Message, Name};

use super::limits::CONNECTION_LIMIT;
use super::reader::{
    Client, EXTERNAL_AUTHORIZATION, INGRESS, INGRESS_VALIDATION, OPTIONAL_INGRESS_VALIDATION, Reader,
    SERVERS, names_identities, wrapped,
};
use super::{Facts, egress, requests};
use smc_xds::resource::{ResourceType, Version};

/// The cluster of connections that leave the mesh, when egress is on.
const PASSTHROUGH_CLUSTER: &str = "passthrough-outbound";
/// The cluster of Envoy's admin server.
const ADMIN_CLUSTER: &str = "envoy-admin";
/// The prefix of clusters that lead to the application beside the proxy.
const LOCAL_CLUSTER_PREFIX: &str = "local|";

pub(super) fn inspect(kind: ResourceType, name: &str, version: Version, any: &[u8]) -> Facts {
    let mut reader = Reader::default();
    if let Err(error) = reader.resource(kind, name, version, any) {
        reader.fault(format!("cannot be decoded: {error}"));
    }
    reader.facts()
}

impl Reader {
    fn resource(
        &mut self,
        kind: ResourceType,
        name: &str,
        version: Version,
        any: &[u8],
    ) -> Result<(), DecodeError> {
        let any = Any::decode(any)?;
        if any.type_url != kind.url() {
            self.fault(format!("has the type URL {}", any.type_url));
        }
        if Version::of(&any.value) != version {
            self.fault("its version is not the hash of its content");
        }
        let value = &*any.value;
        let own = match kind {
            ResourceType::Secret => self.secret(tls::Secret::decode(value)?),
            ResourceType::Cluster => self.cluster(Cluster::decode(value)?)?,
            ResourceType::Endpoint => self.endpoints(ClusterLoadAssignment::decode(value)?),
            ResourceType::ExtensionConfig => self.extension_config(TypedExtensionConfig::decode(value)?)?,
            ResourceType::Listener => self.listener(Listener::decode(value)?)?,
            ResourceType::Route => {
                let routes = RouteConfiguration::decode(value)?;
                self.routes(&routes)?;
                routes.name
            }
        };
        if own.is_empty() || own != name {
            self.fault(format!("its content has the name {own:?}"));
        }
        Ok(())
    }

    /// A filter whose configuration comes by itself limits rates, or asks whether a request may pass: it may
    /// stand in no other's place.
    fn extension_config(&mut self, extension: TypedExtensionConfig) -> Result<String, DecodeError> {
        let config = extension.typed_config.unwrap_or_default();
        if extension.name.starts_with(CONNECTION_LIMIT) {
            self.connection_limit(&config)?;
        } else if extension.name == EXTERNAL_AUTHORIZATION {
            if config.type_url == ExtAuthz::type_url() {
                self.authorization(&ExtAuthz::decode(&*config.value)?);
            } else {
                self.fault("does not ask whether a request may pass");
            }
        } else if config.type_url == LocalRateLimit::type_url() {
            let limit = LocalRateLimit::decode(&*config.value)?;
            let all = |share: Option<RuntimeFractionalPercent>| {
                let share = share.and_then(|share| share.default_value);
                share.is_some_and(|share| share.numerator == 100 && share.denominator == 0)
            };
            if !all(limit.filter_enabled) || !all(limit.filter_enforced) {
                self.fault("limits only some of what it counts");
            }
        } else {
            self.fault("is no limit of a rate");
        }
        Ok(extension.name)
    }

    /// Asks at the cluster for that, about every request, and lets the server change neither what policy has
    /// judged nor who calls.
    fn authorization(&mut self, filter: &ExtAuthz) {
        let server = match &filter.services {
            Some(ext_authz::Services::GrpcService(service)) => match &service.target_specifier {
                Some(grpc_service::TargetSpecifier::EnvoyGrpc(server)) => Some(&*server.cluster_name),
                _ => None,
            },
            _ => None,
        };
        if server != Some(EXTERNAL_AUTHORIZATION) {
            self.fault("asks another server than that for external authorization");
        }
        self.refer(ResourceType::Cluster, EXTERNAL_AUTHORIZATION);
        if filter.filter_enabled.is_some() || filter.filter_enabled_metadata.is_some() {
            self.fault("asks about only some requests");
        }
        let rules = filter.decoder_header_mutation_rules.clone().unwrap_or_default();
        let keeps_system = rules.disallow_system.is_some_and(|switch| switch.value);
        if !filter.validate_mutations || !keeps_system || rules.disallow_expression.is_none() {
            self.fault("lets the server change any header");
        }
        if filter.status_on_error.is_none_or(|status| status.code < 400) {
            self.fault("answers something else than a refusal where no answer comes");
        }
    }

    fn secret(&mut self, secret: tls::Secret) -> String {
        match &secret.r#type {
            Some(tls::secret::Type::TlsCertificate(certificate)) => {
                if certificate.certificate_chain.is_none() || certificate.private_key.is_none() {
                    self.fault("lacks the certificate or the key");
                }
            }
            Some(tls::secret::Type::ValidationContext(context)) => {
                if context.trusted_ca.is_none() {
                    self.fault("has no trusted root certificate");
                }
                let names = &context.match_typed_subject_alt_names;
                // The rules of the routes decide by the names.
                if secret.name.starts_with(OPTIONAL_INGRESS_VALIDATION) && names.is_empty() {
                    return secret.name;
                }
                if names.is_empty() {
                    self.fault("accepts every identity");
                }
                if secret.name.starts_with(INGRESS_VALIDATION) {
                    if !names.iter().all(is_host_name) {
                        self.fault("accepts more than DNS names of an ingress");
                    }
                    return secret.name;
                }
                let by_uri = |name: &tls::SubjectAltNameMatcher| {
                    name.san_type() == tls::subject_alt_name_matcher::SanType::Uri
                        && name.matcher.as_ref().is_some_and(names_identities)
                };
                if !names.iter().all(by_uri) {
                    self.fault("accepts more than identities of the mesh");
                }
            }
            _ => self.fault("is neither a certificate nor a validation context"),
        }
        secret.name
    }

    fn cluster(&mut self, cluster: Cluster) -> Result<String, DecodeError> {
        use cluster::{ClusterDiscoveryType, DiscoveryType};
        let eds =
            cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
        if eds {
            let config = cluster.eds_cluster_config.clone().unwrap_or_default();
            let name = if config.service_name.is_empty() { &cluster.name } else { &config.service_name };
            self.refer(ResourceType::Endpoint, name);
        }
        let in_pod = cluster.name.starts_with(LOCAL_CLUSTER_PREFIX) || cluster.name == ADMIN_CLUSTER;
        if in_pod && !has_only_loopback_addresses(&cluster) && !comes_from_loopback(&cluster) {
            self.fault("leaves the pod in clear text");
        }
        match unpack::<tls::UpstreamTlsContext>(cluster.transport_socket.as_ref())? {
            Some(context) => {
                let common = context.common_tls_context.unwrap_or_default();
                self.offered(&common);
                self.tls(&common);
            }
            None if in_pod
                || cluster.name == PASSTHROUGH_CLUSTER
                || SERVERS.contains(&&*cluster.name)
                || egress::leads_out(&cluster) => {}
            None => self.fault("connects to the mesh in clear text"),
        }
        Ok(cluster.name)
    }

    fn endpoints(&mut self, assignment: ClusterLoadAssignment) -> String {
        let mut seen = BTreeSet::new();
        for host in assignment.endpoints.iter().flat_map(|locality| &locality.lb_endpoints) {
            let Some(HostIdentifier::Endpoint(endpoint)) = &host.host_identifier else {
                self.fault("has an endpoint without an address");
                continue;
            };
            let Some(address) = &endpoint.address else {
                self.fault("has an endpoint without an address");
                continue;
            };
            if !seen.insert(address.encode_to_vec()) {
                self.fault("has an address twice");
            }
        }
        assignment.cluster_name
    }

    fn listener(&mut self, listener: Listener) -> Result<String, DecodeError> {
        if listener.filter_chains.is_empty() && listener.default_filter_chain.is_none() {
            self.fault("has no filter chain");
        }
        let (mut names, mut matches) = (BTreeSet::new(), BTreeSet::new());
        for chain in &listener.filter_chains {
            if !chain.name.is_empty() && !names.insert(&chain.name) {
                self.fault(format!("has two filter chains {}", chain.name));
            }
            for matched in alternatives(chain.filter_chain_match.as_ref()) {
                if !matches.insert(matched) {
                    self.fault(format!(
                        "filter chain {} matches the same connections as another one",
                        chain.name
                    ));
                }
            }
        }
        let client = Client::of(&listener.name);
        self.inspection(&listener, client);
        self.logs(&listener.access_log, client)?;
        for chain in listener.filter_chains.iter().chain(&listener.default_filter_chain) {
            self.chain(chain, client)?;
        }
        if self.asks.len() > 1 {
            self.fault("asks a server about the requests of some filter chains, and not of the others");
        }
        Ok(listener.name)
    }

    fn chain(&mut self, chain: &FilterChain, client: Client) -> Result<(), DecodeError> {
        if client == Client::Others && chain.name.starts_with(INGRESS) {
            return self.ingress_chain(chain);
        }
        if let Some(context) = unpack::<tls::DownstreamTlsContext>(chain.transport_socket.as_ref())? {
            if !context.require_client_certificate.is_some_and(|required| required.value) {
                self.fault(format!("filter chain {} accepts clients without a certificate", chain.name));
            }
            let common = context.common_tls_context.unwrap_or_default();
            self.accepted(&common);
            self.tls(&common);
        } else if client == Client::Others {
            self.fault(format!("filter chain {} accepts clients in clear text", chain.name));
        }
        let filters = self.after_limits(chain, client);
        if filters.is_empty() {
            self.fault(format!("filter chain {} has no filter", chain.name));
        }
        let mut authorised = client != Client::Others;
        for filter in filters {
            let Some(filter::ConfigType::TypedConfig(config)) = &filter.config_type else { continue };
            if config.type_url == HttpConnectionManager::type_url() {
                let manager = HttpConnectionManager::decode(&*config.value)?;
                self.http(&manager, client)?;
                if let Some(RouteSpecifier::Rds(rds)) = &manager.route_specifier {
                    self.routes_out(chain, client, &rds.route_config_name);
                }
            } else if config.type_url == network_rbac::Rbac::type_url() {
                let filter = network_rbac::Rbac::decode(&*config.value)?;
                authorised |= filter.matcher.is_none() && requests::is_allow_list(filter.rules.as_ref());
                self.rules(filter.rules.as_ref());
            } else if config.type_url == TcpProxy::type_url() {
                if !authorised {
                    self.fault(format!(
                        "filter chain {} carries connections that no rule authorised",
                        chain.name
                    ));
                }
                let proxy = TcpProxy::decode(&*config.value)?;
                if let Some(tcp_proxy::ClusterSpecifier::Cluster(cluster)) = &proxy.cluster_specifier {
                    self.way_out(chain, client, cluster);
                }
                self.logs(&proxy.access_log, client)?;
                self.tcp(proxy);
            }
        }
        Ok(())
    }

    /// A chain of an ingress: a connection manager whose requests pass RBAC rules, on one port, for what does
    /// not begin as TLS of the mesh.
    fn ingress_chain(&mut self, chain: &FilterChain) -> Result<(), DecodeError> {
        let matched = chain.filter_chain_match.clone().unwrap_or_default();
        let context = unpack::<tls::DownstreamTlsContext>(chain.transport_socket.as_ref())?;
        let transport = if context.is_some() { "tls" } else { "raw_buffer" };
        if matched.destination_port.is_none() || matched.transport_protocol != transport {
            self.fault(format!("filter chain {} takes connections of others than an ingress", chain.name));
        }
        if let Some(context) = context {
            let common = context.common_tls_context.unwrap_or_default();
            self.accepted(&common);
            let required = context.require_client_certificate.is_some_and(|required| required.value);
            let wanted = if required { INGRESS_VALIDATION } else { OPTIONAL_INGRESS_VALIDATION };
            let checked = validation(&common).map(|name| name.starts_with(wanted));
            if checked == Some(false) || (checked.is_none() && required) {
                self.fault(format!("filter chain {} wants certificates that it does not check", chain.name));
            }
            if checked.is_some() {
                self.tls_of(&common);
            } else {
                self.certificates(&common);
            }
        }
        let [filter] = self.after_limits(chain, Client::Ingress) else {
            self.fault(format!("filter chain {} has other filters than one for HTTP", chain.name));
            return Ok(());
        };
        match &filter.config_type {
            Some(filter::ConfigType::TypedConfig(config))
                if config.type_url == HttpConnectionManager::type_url() =>
            {
                self.http(&HttpConnectionManager::decode(&*config.value)?, Client::Ingress)
            }
            _ => {
                self.fault(format!("filter chain {} has other filters than one for HTTP", chain.name));
                Ok(())
            }
        }
    }

    fn tcp(&mut self, proxy: TcpProxy) {
        match proxy.cluster_specifier {
            Some(tcp_proxy::ClusterSpecifier::Cluster(cluster)) => {
                self.refer(ResourceType::Cluster, &cluster);
            }
            Some(tcp_proxy::ClusterSpecifier::WeightedClusters(split)) => {
                self.weights(split.clusters.iter().map(|part| (&*part.name, part.weight)));
            }
            None => self.fault("has a TCP chain without a cluster"),
        }
    }

    /// The TLS of a connection within the mesh.
    fn tls(&mut self, context: &tls::CommonTlsContext) {
        let for_ingress = [INGRESS_VALIDATION, OPTIONAL_INGRESS_VALIDATION];
        if validation(context).is_some_and(|name| for_ingress.iter().any(|prefix| name.starts_with(prefix))) {
            self.fault("accepts certificates that an ingress may have");
        }
        self.tls_of(context);
    }

    fn tls_of(&mut self, context: &tls::CommonTlsContext) {
        self.certificates(context);
        match validation(context) {
            Some(name) => self.refer(ResourceType::Secret, name),
            None => self.fault("has no validation context from SDS"),
        }
    }

    fn certificates(&mut self, context: &tls::CommonTlsContext) {
        for certificate in &context.tls_certificate_sds_secret_configs {
            self.refer(ResourceType::Secret, &certificate.name);
        }
    }
}

/// The name of the validation context, if it comes from SDS.
fn validation(context: &tls::CommonTlsContext) -> Option<&str> {
    use tls::common_tls_context::ValidationContextType;
    match &context.validation_context_type {
        Some(ValidationContextType::ValidationContextSdsSecretConfig(validation)) => Some(&validation.name),
        _ => None,
    }
}

/// Whether a certificate is accepted for one DNS name.
fn is_host_name(name: &tls::SubjectAltNameMatcher) -> bool {
    let pattern = name.matcher.as_ref().and_then(|matcher| matcher.match_pattern.as_ref());
    name.san_type() == tls::subject_alt_name_matcher::SanType::Dns
        && matches!(pattern, Some(MatchPattern::Exact(name)) if !name.is_empty())
}

/// Whether a cluster is static and all of its addresses are loopback addresses.
fn has_only_loopback_addresses(cluster: &Cluster) -> bool {
    use cluster::{ClusterDiscoveryType, DiscoveryType};
    use envoy_types::pb::envoy::config::core::v3::address::Address;
    let hosts = cluster.load_assignment.iter().flat_map(|assignment| &assignment.endpoints);
    let own = |host: &HostIdentifier| {
        let HostIdentifier::Endpoint(endpoint) = host else { return false };
        let Some(Address::SocketAddress(socket)) = endpoint.address.as_ref().and_then(|a| a.address.as_ref())
        else {
            return false;
        };
        socket.address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
            && endpoint.additional_addresses.is_empty()
    };
    let fixed = ClusterDiscoveryType::Type(DiscoveryType::Static.into());
    cluster.cluster_discovery_type == Some(fixed)
        && hosts
            .flat_map(|locality| &locality.lb_endpoints)
            .all(|host| host.host_identifier.as_ref().is_some_and(own))
}

/// Whether every connection of a cluster to the original destination comes from a loopback address, so that
/// none can leave the pod: the kernel routes no such packet to another interface.
fn comes_from_loopback(cluster: &Cluster) -> bool {
    use cluster::{ClusterDiscoveryType, DiscoveryType};
    let original = ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into());
    let bind = cluster.upstream_bind_config.clone().unwrap_or_default();
    let extra = bind.extra_source_addresses.into_iter().map(|extra| extra.address);
    let sources: Vec<Option<IpAddr>> = std::iter::once(bind.source_address)
        .chain(extra)
        .map(|source| source.and_then(|source| source.address.parse().ok()))
        .collect();
    // Without a source of the destination's family, Envoy would bind to none.
    let both = [IpAddr::is_ipv4, IpAddr::is_ipv6].iter().all(|of| sources.iter().flatten().any(of));
    cluster.cluster_discovery_type == Some(original)
        && both
        && sources.iter().all(|source| source.is_some_and(|ip| ip.is_loopback()))
}

/// The TLS context of a transport socket, if it is one of this type.
fn unpack<T: Message + Name + Default>(socket: Option<&TransportSocket>) -> Result<Option<T>, DecodeError> {
    match socket.and_then(|socket| socket.config_type.as_ref()) {
        Some(transport_socket::ConfigType::TypedConfig(any)) if any.type_url == T::type_url() => {
            T::decode(&*any.value).map(Some)
        }
        _ => Ok(None),
    }
}

/// Every combination of port, address prefix, server name and transport that a filter chain matches. Envoy
/// refuses a listener in which two chains share one.
fn alternatives(matched: Option<&FilterChainMatch>) -> Vec<(Option<u32>, String, String, String)> {
    let matched = matched.cloned().unwrap_or_default();
    let or = |list: Vec<String>, any: &[&str]| {
        if list.is_empty() { any.iter().map(|&one| one.to_owned()).collect() } else { list }
    };
    let port = matched.destination_port.map(wrapped);
    let prefixes = matched
        .prefix_ranges
        .iter()
        .map(|range| format!("{}/{}", range.address_prefix, range.prefix_len.map_or(0, wrapped)));
    // To Envoy, no prefix is the same as all addresses of both families.
    let prefixes = or(prefixes.collect(), &["0.0.0.0/0", "::/0"]);
    let names = or(matched.server_names.clone(), &[""]);
    let mut all = Vec::with_capacity(prefixes.len() * names.len());
    for prefix in &prefixes {
        all.extend(
            names.iter().map(|name| (port, prefix.clone(), name.clone(), matched.transport_protocol.clone())),
        );
    }
    all
}
