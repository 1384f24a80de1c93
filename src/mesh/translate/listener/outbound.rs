//! The outbound listener: connections of the application.
//!
//! Owns the matching. A connection belongs to a service if its destination is an address and port
//! of the service. No bytes of the client are read for that, so protocols in which the server
//! speaks first are not delayed.

use std::net::IpAddr;

use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::network::direct_response::v3 as direct_response;
use envoy_types::util::pack_any;

use super::{filter, http, listen, original_destination, tcp};
use crate::translate::affinity;
use crate::translate::proto::{self, Families};
use crate::translate::route::Destination;
use smc_model::sidecar_settings::AccessLog;
use smc_xds::names;

/// What a chain does with its connections.
#[derive(Clone)]
pub(in crate::translate) enum Carriage {
    /// HTTP, with the route configuration of this name.
    Http {
        route: String,
        /// The host of requests in HTTP/1.0 that name none.
        host: String,
        /// Whether a route hashes the caller.
        by_caller: bool,
    },
    /// TCP.
    Tcp {
        /// The clusters that it goes to.
        destination: Destination,
        /// Whether one of them picks its pod by the caller.
        by_caller: bool,
    },
}

/// A service port, or the pods of a headless service that listen on one port.
pub(in crate::translate) struct Chain {
    /// Its name, of [`names::outbound_chain`] or [`names::headless_chain`].
    pub(in crate::translate) name: String,
    /// The addresses that it matches. Never empty; no two chains have the same address and port.
    pub(in crate::translate) addresses: Vec<IpAddr>,
    /// The port that it matches.
    pub(in crate::translate) port: u16,
    /// What it does with its connections.
    pub(in crate::translate) carriage: Carriage,
}

/// The listener. A connection that no chain matches passes through to its original destination with
/// `egress`, and is closed without. An identity that may call no service has a listener all the
/// same: a refused connection would look like a dead sidecar.
pub(in crate::translate) fn listener(
    chains: Vec<Chain>,
    egress: bool,
    families: Families,
    port: u16,
    log: AccessLog,
) -> listener::Listener {
    let guard = loop_guard(port);
    listener::Listener {
        filter_chains: chains.into_iter().map(|each| chain(each, log)).chain([guard]).collect(),
        default_filter_chain: egress.then(|| listener::FilterChain {
            name: names::PASSTHROUGH_CLUSTER.to_owned(),
            filters: vec![tcp::proxy(
                names::PASSTHROUGH_CLUSTER,
                &Destination::One(names::PASSTHROUGH_CLUSTER.to_owned()),
                false,
                log,
            )],
            ..listener::FilterChain::default()
        }),
        listener_filters: vec![original_destination()],
        ..listen(names::OUTBOUND_LISTENER, families, port, TrafficDirection::Outbound)
    }
}

fn chain(chain: Chain, log: AccessLog) -> listener::FilterChain {
    let filters = match &chain.carriage {
        Carriage::Http { route, host, by_caller } => {
            let noted = by_caller.then(affinity::noted_caller);
            noted.into_iter().chain([http::outbound(&chain.name, route, host, log)]).collect()
        }
        Carriage::Tcp { destination, by_caller } => {
            vec![tcp::proxy(&chain.name, destination, *by_caller, log)]
        }
    };
    listener::FilterChain {
        filter_chain_match: Some(listener::FilterChainMatch {
            destination_port: Some(proto::number(chain.port)),
            prefix_ranges: chain.addresses.into_iter().map(proto::host_prefix).collect(),
            ..listener::FilterChainMatch::default()
        }),
        filters,
        name: chain.name,
        ..listener::FilterChain::default()
    }
}

/// Closes connections to the listener's own port, which would otherwise pass through to the
/// listener itself, in a loop. Without egress they would be closed anyway, but a listener needs at
/// least one chain.
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
