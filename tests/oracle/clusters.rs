//! What the clusters of a sidecar lead to, as the text that Envoy answers with.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3::{address, socket_address, transport_socket};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LbEndpoint, lb_endpoint::HostIdentifier,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use prost::Message;
use smc_policy::{Leaf, To};
use smc_xds::resource::ResourceType;
use smc_xds::served_state::View;

use crate::config::decode;

/// By name: `HOST=dialled`, or `HOST=ADDRESS:PORT,ADDRESS:PORT`. The host is the name of the server in
/// the TLS handshake, by which it tells its services apart.
pub(crate) struct Clusters(BTreeMap<String, String>);

impl Clusters {
    pub(crate) fn of(view: &View) -> Self {
        let endpoints = decode::<ClusterLoadAssignment>(view, ResourceType::Endpoint);
        let endpoints: BTreeMap<_, _> =
            endpoints.map(|assignment| (assignment.cluster_name.clone(), assignment)).collect();
        let clusters = decode::<Cluster>(view, ResourceType::Cluster);
        let named = clusters.map(|cluster| {
            let text = format!("{}={}", server_name(&cluster), ends(&cluster, &endpoints));
            (cluster.name, text)
        });
        Self(named.collect())
    }

    /// What these clusters lead to, separated by spaces.
    pub(crate) fn answer<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> String {
        names.into_iter().map(|name| &*self.0[name]).collect::<Vec<_>>().join(" ")
    }
}

/// What an answer says. `None` for one of other origin.
pub(crate) fn leaves(answer: &str) -> Option<BTreeSet<Leaf>> {
    answer.split(' ').map(leaf).collect()
}

fn leaf(text: &str) -> Option<Leaf> {
    let (host, ends) = text.split_once('=')?;
    let (name, namespace) = host.strip_suffix(".svc.cluster.local")?.split_once('.')?;
    let to = if ends == "dialled" {
        To::Dialled
    } else {
        let ends = ends.split(',').filter(|end| !end.is_empty()).map(|end| {
            let (address, port) = end.split_once(':')?;
            Some((address.to_owned(), port.parse().ok()?))
        });
        To::OneOf(ends.collect::<Option<_>>()?)
    };
    Some(Leaf { service: (namespace.to_owned(), name.to_owned()), to })
}

fn server_name(cluster: &Cluster) -> String {
    let socket = cluster.transport_socket.as_ref().and_then(|socket| socket.config_type.as_ref());
    let Some(transport_socket::ConfigType::TypedConfig(any)) = socket else { return String::new() };
    UpstreamTlsContext::decode(&*any.value).unwrap().sni
}

fn ends(cluster: &Cluster, endpoints: &BTreeMap<String, ClusterLoadAssignment>) -> String {
    let discovery = cluster.cluster_discovery_type.as_ref();
    let Some(cluster::ClusterDiscoveryType::Type(discovery)) = discovery else { panic!("{cluster:?}") };
    if *discovery == i32::from(cluster::DiscoveryType::OriginalDst) {
        return "dialled".to_owned();
    }
    let Some(eds) = &cluster.eds_cluster_config else { return String::new() };
    let localities = &endpoints[&eds.service_name].endpoints;
    let hosts = localities.iter().flat_map(|locality| &locality.lb_endpoints);
    hosts.map(host).collect::<Vec<_>>().join(",")
}

fn host(host: &LbEndpoint) -> String {
    let Some(HostIdentifier::Endpoint(endpoint)) = &host.host_identifier else { panic!("{host:?}") };
    let address = endpoint.address.as_ref().and_then(|address| address.address.as_ref());
    let Some(address::Address::SocketAddress(socket)) = address else { panic!("{host:?}") };
    let Some(socket_address::PortSpecifier::PortValue(port)) = socket.port_specifier else {
        panic!("{host:?}")
    };
    format!("{}:{port}", socket.address)
}
