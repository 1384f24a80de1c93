//! The outbound listener: what the application dials, chain by chain.
//!
//! Owns the matching. A connection belongs to a service if its destination is one of the service's
//! addresses and ports; nothing of what is sent is looked at, so protocols where the server speaks first
//! are not delayed.

use std::net::IpAddr;

use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::network::direct_response::v3 as direct_response;
use envoy_types::util::pack_any;

use super::{filter, http, listen, original_destination, tcp};
use crate::translate::names;
use crate::translate::proto::{self, Families};
use crate::translate::route::Destination;

/// How a chain carries its connections.
#[derive(Clone)]
pub(in crate::translate) enum Carriage {
    /// Requests, by the routes of this name.
    Http(String),
    /// Bytes.
    Tcp(Destination),
}

/// One service port, or, of a headless service, those of its pods that listen on one port.
pub(in crate::translate) struct Chain {
    /// Its name, see [`names::outbound_chain`] and [`names::headless_chain`].
    pub(in crate::translate) name: String,
    /// The addresses that lead to it; never empty, and no two chains have the same with the same port.
    pub(in crate::translate) addresses: Vec<IpAddr>,
    /// The port that leads to it.
    pub(in crate::translate) port: u16,
    /// How it carries connections.
    pub(in crate::translate) carriage: Carriage,
}

/// The listener. With `egress`, what no chain takes passes through to where it was meant to go; without, it is
/// closed. Who may call nobody has one all the same: a connection that is refused would look like a dead sidecar.
pub(in crate::translate) fn listener(
    chains: Vec<Chain>,
    egress: bool,
    families: Families,
    port: u16,
) -> listener::Listener {
    let guard = loop_guard(port);
    listener::Listener {
        filter_chains: chains.into_iter().map(chain).chain([guard]).collect(),
        default_filter_chain: egress.then(|| listener::FilterChain {
            name: names::PASSTHROUGH_CLUSTER.to_owned(),
            filters: vec![tcp::proxy(
                names::PASSTHROUGH_CLUSTER,
                &Destination::One(names::PASSTHROUGH_CLUSTER.to_owned()),
            )],
            ..listener::FilterChain::default()
        }),
        listener_filters: vec![original_destination()],
        ..listen(names::OUTBOUND_LISTENER, families, port, TrafficDirection::Outbound)
    }
}

fn chain(chain: Chain) -> listener::FilterChain {
    let filter = match &chain.carriage {
        Carriage::Http(route) => http::outbound(&chain.name, route),
        Carriage::Tcp(destination) => tcp::proxy(&chain.name, destination),
    };
    listener::FilterChain {
        filter_chain_match: Some(listener::FilterChainMatch {
            destination_port: Some(proto::number(chain.port)),
            prefix_ranges: chain.addresses.into_iter().map(proto::host_prefix).collect(),
            ..listener::FilterChainMatch::default()
        }),
        filters: vec![filter],
        name: chain.name,
        ..listener::FilterChain::default()
    }
}

/// Closes what was dialled to the listener's own port: passed through, it would come back here for ever. Without
/// egress it would be closed like everything else, and is the one chain that a listener must have at least.
fn loop_guard(port: u16) -> listener::FilterChain {
    listener::FilterChain {
        name: "loop-guard".to_owned(),
        filter_chain_match: Some(listener::FilterChainMatch {
            destination_port: Some(proto::number(port)),
            ..listener::FilterChainMatch::default()
        }),
        filters: vec![filter(
            "envoy.filters.network.direct_response",
            pack_any(direct_response::Config::default()),
        )],
        ..listener::FilterChain::default()
    }
}
