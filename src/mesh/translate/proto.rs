//! Protobuf values that several resource types share: addresses, wrappers, configuration sources.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use envoy_types::pb::google::protobuf::{BoolValue, Duration, UInt32Value, UInt64Value};
use smc_model::cidr::IpNet;

/// Whole seconds. Zero disables most of Envoy's timeouts.
pub(super) const fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

/// A span of time. Its seconds are at most those of an `i64`.
pub(super) fn duration(span: std::time::Duration) -> Duration {
    Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or(0),
    }
}

/// A number in its wrapper.
pub(super) fn number(value: impl Into<u32>) -> UInt32Value {
    UInt32Value { value: value.into() }
}

/// The same of 64 bits.
pub(super) fn long_number(value: u64) -> UInt64Value {
    UInt64Value { value }
}

/// A switch in its wrapper.
pub(super) const fn switch(value: bool) -> BoolValue {
    BoolValue { value }
}

/// How long a cluster waits for its endpoints. Envoy's default, stated because all other resources
/// depend on it: while a cluster waits, Envoy adds no other, and does not answer CDS.
const ENDPOINTS_TIMEOUT_SECONDS: i64 = 15;

/// ADS, without a timeout. With Envoy's default of 15 s, a listener would become active without its
/// routes when the controller is slow, and answer 404.
pub(super) fn ads() -> core::ConfigSource {
    ads_within(0)
}

/// ADS, with a timeout, after which Envoy uses the endpoints that it has. A proxy whose stream
/// broke meanwhile must not wait for ever.
pub(super) fn ads_for_endpoints() -> core::ConfigSource {
    ads_within(ENDPOINTS_TIMEOUT_SECONDS)
}

fn ads_within(timeout: i64) -> core::ConfigSource {
    core::ConfigSource {
        initial_fetch_timeout: Some(seconds(timeout)),
        resource_api_version: core::ApiVersion::V3.into(),
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(
            core::AggregatedConfigSource {},
        )),
        ..core::ConfigSource::default()
    }
}

/// A filter whose configuration comes by itself. Its chain waits for it, and takes no connection without.
pub(super) fn discovered_filter(name: String, type_url: String) -> HttpFilter {
    HttpFilter {
        name,
        config_type: Some(http_filter::ConfigType::ConfigDiscovery(discovered(type_url))),
        ..HttpFilter::default()
    }
}

/// The same, for a filter of connections.
pub(super) fn discovered_network_filter(name: String, type_url: String) -> listener::Filter {
    let config_type = listener::filter::ConfigType::ConfigDiscovery(discovered(type_url));
    listener::Filter { name, config_type: Some(config_type) }
}

fn discovered(type_url: String) -> core::ExtensionConfigSource {
    core::ExtensionConfigSource {
        config_source: Some(ads()),
        type_urls: vec![type_url],
        ..core::ExtensionConfigSource::default()
    }
}

/// A TCP address.
pub(super) fn address(ip: IpAddr, port: u16) -> core::Address {
    address_of(ip.to_string(), port)
}

/// A TCP port of what an IP address, or a name, stands for.
pub(super) fn address_of(name: String, port: u16) -> core::Address {
    core::Address { address: Some(core::address::Address::SocketAddress(socket(name, port))) }
}

/// An IP address and a TCP port; of a source, port 0 means any.
pub(super) fn socket_address(ip: IpAddr, port: u16) -> core::SocketAddress {
    socket(ip.to_string(), port)
}

fn socket(address: String, port: u16) -> core::SocketAddress {
    core::SocketAddress {
        address,
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port.into())),
        ..core::SocketAddress::default()
    }
}

/// The addresses of a network.
pub(super) fn range(net: IpNet) -> core::CidrRange {
    core::CidrRange { address_prefix: net.network().to_string(), prefix_len: Some(number(net.prefix_len())) }
}

/// The address families of a proxy's pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Families {
    /// Only IPv6.
    pub(super) ipv6_only: bool,
    /// Both.
    pub(super) dual: bool,
}

impl Families {
    /// A pod without an address counts as IPv4, so that its listeners exist before the address does.
    pub(super) const fn new(ipv4: bool, ipv6: bool) -> Self {
        Self { ipv6_only: ipv6 && !ipv4, dual: ipv4 && ipv6 }
    }

    /// Whether the pod has addresses of the family of this network.
    pub(super) const fn have(self, network: IpNet) -> bool {
        match network {
            IpNet::V4(_) => !self.ipv6_only,
            IpNet::V6(_) => self.ipv6_only || self.dual,
        }
    }

    /// The unspecified address, to listen on.
    pub(super) const fn any(self) -> IpAddr {
        if self.ipv6_only { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) }
    }

    /// The address of the application beside the proxy.
    pub(super) const fn loopback(self) -> IpAddr {
        if self.ipv6_only { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) }
    }
}
