//! Listeners (LDS): intercepted connections, matched by their original destination address.
//!
//! Owns the shape of a listener. `outbound` and `inbound` decide which chains there are. Envoy
//! refuses a listener without chains, so a pod that serves nothing has no inbound listener.

mod http;
pub(super) mod inbound;
pub(super) mod outbound;
pub(super) mod statistics;
mod tcp;

use std::net::{IpAddr, Ipv6Addr};

use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::listener::original_dst::v3::OriginalDst;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;

use super::proto::{self, Families};

/// A listener on every address of the pod.
fn listen(name: &str, families: Families, port: u16, direction: TrafficDirection) -> listener::Listener {
    let second = families.dual.then(|| listener::AdditionalAddress {
        address: Some(proto::address(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)),
        ..listener::AdditionalAddress::default()
    });
    listener::Listener {
        name: name.to_owned(),
        address: Some(proto::address(families.any(), port)),
        additional_addresses: second.into_iter().collect(),
        traffic_direction: direction.into(),
        ..listener::Listener::default()
    }
}

/// Recovers the destination address from before interception.
fn original_destination() -> listener::ListenerFilter {
    listener_filter("envoy.filters.listener.original_dst", pack_any(OriginalDst {}))
}

fn listener_filter(name: &str, config: Any) -> listener::ListenerFilter {
    listener::ListenerFilter {
        name: name.to_owned(),
        config_type: Some(listener::listener_filter::ConfigType::TypedConfig(config)),
        ..listener::ListenerFilter::default()
    }
}

pub(super) fn filter(name: &str, config: Any) -> listener::Filter {
    listener::Filter {
        name: name.to_owned(),
        config_type: Some(listener::filter::ConfigType::TypedConfig(config)),
    }
}
