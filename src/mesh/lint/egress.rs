//! Reads what leads out of the mesh by an Egress.
//!
//! Owns the rules that nothing else does: a connection goes to the address that was dialled only within
//! networks that are named, and otherwise to what the sidecar resolves one name to; and TLS is looked at on
//! single ports of the application's connections, since a server that speaks first would be waited for.

use envoy_types::pb::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType},
};
use envoy_types::pb::envoy::config::core::v3::{address::Address, socket_address::PortSpecifier};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::listener::v3::listener_filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};
use envoy_types::pb::envoy::extensions::clusters::dns::v3::DnsCluster;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use prost::Name;

use super::reader::{Client, Reader};

/// What names begin with: of clusters, and of filter chains and route configurations.
const CLUSTER: &str = "egress|";
const CHAIN: &str = "egress_";
/// What the names of clusters begin with that connect to the address that was dialled.
const DIALLED: &str = "egress-dialled|";

/// Whether a cluster leads out of the mesh by an Egress, to where its name says.
pub(super) fn leads_out(cluster: &Cluster) -> bool {
    if cluster.name.starts_with(DIALLED) {
        return cluster.cluster_discovery_type
            == Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into()));
    }
    let resolves = match &cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::ClusterType(custom)) => {
            custom.typed_config.as_ref().is_some_and(|any| any.type_url == DnsCluster::type_url())
        }
        _ => false,
    };
    let hosts = cluster.load_assignment.iter().flat_map(|assignment| &assignment.endpoints);
    let mut hosts = hosts.flat_map(|locality| &locality.lb_endpoints).map(|host| {
        let Some(HostIdentifier::Endpoint(endpoint)) = &host.host_identifier else { return None };
        let Some(Address::SocketAddress(socket)) = &endpoint.address.as_ref()?.address else { return None };
        let Some(PortSpecifier::PortValue(port)) = socket.port_specifier else { return None };
        Some(format!("{CLUSTER}{}|{port}|", socket.address))
    });
    let first = hosts.next().flatten();
    resolves && hosts.next().is_none() && first.is_some_and(|begins| cluster.name.starts_with(&begins))
}

impl Reader {
    /// Checks what the listener filters of the application's connections look at.
    pub(super) fn inspection(&mut self, listener: &Listener, client: Client) {
        let inspects_all = listener.listener_filters.iter().any(|filter| match &filter.config_type {
            Some(ConfigType::TypedConfig(any)) => {
                any.type_url == TlsInspector::type_url() && filter.filter_disabled.is_none()
            }
            _ => false,
        });
        if client == Client::Application && inspects_all {
            self.fault("waits for the first bytes of every connection of the application");
        }
    }

    /// Checks that a filter chain leads out of the mesh only if it is named so, within networks, and to the
    /// name that TLS asks for.
    pub(super) fn way_out(&mut self, chain: &FilterChain, client: Client, cluster: &str) {
        let matched = chain.filter_chain_match.clone().unwrap_or_default();
        self.within_networks(chain, client, leads(cluster).is_some());
        if let Some(Lead::Host(host)) = leads(cluster)
            && (matched.server_names != [host] || matched.transport_protocol != "tls")
        {
            self.fault(format!("filter chain {} leads to a host that is not asked for", chain.name));
        }
    }

    /// Checks that a filter chain has the routes that are named as it is, if these lead out of the mesh.
    pub(super) fn routes_out(&mut self, chain: &FilterChain, client: Client, routes: &str) {
        let leads_out = routes.starts_with(CHAIN);
        self.within_networks(chain, client, leads_out);
        if leads_out && routes != chain.name {
            self.fault(format!("filter chain {} has the routes of another one", chain.name));
        }
    }

    fn within_networks(&mut self, chain: &FilterChain, client: Client, leads_out: bool) {
        let is_named = client == Client::Application && chain.name.starts_with(CHAIN);
        if leads_out != is_named {
            self.fault(format!("filter chain {} leads out of the mesh, or is named so", chain.name));
        }
        let networks = chain.filter_chain_match.as_ref().map_or(0, |matched| matched.prefix_ranges.len());
        if leads_out && networks == 0 {
            self.fault(format!("filter chain {} leads out whatever is dialled", chain.name));
        }
    }

    /// Checks that a route leads out of the mesh only if it is named so, and to the host that is asked for.
    pub(super) fn route_out(&mut self, routes: &str, domains: &[String], cluster: &str) {
        if leads(cluster).is_some() != routes.starts_with(CHAIN) {
            self.fault("has a route that leads out of the mesh, or is named so");
        }
        if let Some(Lead::Host(host)) = leads(cluster)
            && !domains.iter().all(|domain| domain.split(':').next() == Some(host))
        {
            self.fault("has a route that leads to a host that is not asked for");
        }
    }
}

/// Where a cluster leads out of the mesh.
enum Lead<'a> {
    Dialled,
    Host(&'a str),
}

fn leads(cluster: &str) -> Option<Lead<'_>> {
    if cluster.starts_with(DIALLED) {
        return Some(Lead::Dialled);
    }
    cluster.strip_prefix(CLUSTER).and_then(|rest| rest.split('|').next()).map(Lead::Host)
}
