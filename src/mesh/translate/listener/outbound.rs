//! The outbound listener: connections of the application.
//!
//! Owns the matching. A connection belongs to a service if its destination is an address and port
//! of the service. No bytes of the client are read for that, so protocols in which the server
//! speaks first are not delayed. Where an Egress lets TLS out by name, the first bytes are read, on
//! its port alone.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::network::direct_response::v3 as direct_response;
use envoy_types::pb::envoy::r#type::v3::Int32Range;
use envoy_types::util::pack_any;
use listener::listener_filter_chain_match_predicate::{MatchSet, Rule};

use super::{filter, http, listen, listener_filter, original_destination, tcp};
use crate::translate::affinity;
use crate::translate::proto::{self, Families};
use crate::translate::reports::Reports;
use crate::translate::route::Destination;
use smc_model::cidr::IpNet;
use smc_model::egress::EgressHost;
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
    /// HTTP to servers that are no sidecars, with the route configuration of this name.
    Outside {
        route: String,
        /// Whether a route takes some requests and leaves others out.
        restricts: bool,
    },
    /// It is closed.
    Closed,
}

/// What of the connections to an address a chain matches.
#[derive(Clone)]
pub(in crate::translate) enum Transport {
    /// All.
    Any,
    /// TLS that asks for this name.
    Tls(EgressHost),
    /// What is no TLS.
    ClearText,
}

/// A service port, the pods of a headless service that listen on one port, or a way out of the mesh.
pub(in crate::translate) struct Chain {
    /// Its name, of [`names::outbound_chain`], [`names::headless_chain`], [`names::egress`] or
    /// [`names::egress_tls`].
    pub(in crate::translate) name: String,
    /// The networks that it matches. No two chains have the same network, port and transport. Empty matches
    /// what no other chain of its port does.
    pub(in crate::translate) networks: Vec<IpNet>,
    /// What of their connections it matches.
    pub(in crate::translate) transport: Transport,
    /// The port that it matches.
    pub(in crate::translate) port: u16,
    /// What it does with its connections.
    pub(in crate::translate) carriage: Carriage,
}

impl Chain {
    /// Whether it reads requests.
    pub(in crate::translate) fn is_http(&self) -> bool {
        match self.carriage {
            Carriage::Http { .. } | Carriage::Outside { .. } => true,
            Carriage::Tcp { .. } | Carriage::Closed => false,
        }
    }
}

/// How long, in seconds, a client may take to begin TLS on a port where it is looked at. After that the
/// connection goes on as what is no TLS: a server that speaks first is waited for no longer.
const INSPECTION_SECONDS: i64 = 3;

/// The listener. A connection that no chain matches passes through to its original destination with `egress`,
/// and is closed without. TLS is looked at on `tls_ports`. An identity that may call no service has a
/// listener all the same: a refused connection would look like a dead sidecar.
pub(in crate::translate) fn listener(
    chains: Vec<Chain>,
    tls_ports: &BTreeSet<u16>,
    egress: bool,
    families: Families,
    port: u16,
    reports: &Reports,
) -> listener::Listener {
    let guard = loop_guard(port);
    let inspects = !tls_ports.is_empty();
    listener::Listener {
        filter_chains: chains.into_iter().map(|each| chain(each, reports)).chain([guard]).collect(),
        default_filter_chain: egress.then(|| listener::FilterChain {
            name: names::PASSTHROUGH_CLUSTER.to_owned(),
            filters: vec![tcp::proxy(
                names::PASSTHROUGH_CLUSTER,
                &Destination::One(names::PASSTHROUGH_CLUSTER.to_owned()),
                false,
                &reports.log,
            )],
            ..listener::FilterChain::default()
        }),
        listener_filters: std::iter::once(original_destination())
            .chain(inspects.then(|| inspector(tls_ports)))
            .collect(),
        listener_filters_timeout: inspects.then(|| proto::seconds(INSPECTION_SECONDS)),
        continue_on_listener_filters_timeout: inspects,
        ..listen(names::OUTBOUND_LISTENER, families, port, TrafficDirection::Outbound)
    }
}

/// Reads the name that TLS asks for, on these ports alone.
fn inspector(ports: &BTreeSet<u16>) -> listener::ListenerFilter {
    let predicate = |rule| listener::ListenerFilterChainMatchPredicate { rule: Some(rule) };
    let one = |port: &u16| {
        let start = i32::from(*port);
        predicate(Rule::DestinationPortRange(Int32Range { start, end: start + 1 }))
    };
    let mut rules: Vec<_> = ports.iter().map(one).collect();
    // Envoy wants two or more in a set.
    let these = match rules.pop() {
        Some(only) if rules.is_empty() => only,
        last => predicate(Rule::OrMatch(MatchSet { rules: rules.into_iter().chain(last).collect() })),
    };
    listener::ListenerFilter {
        filter_disabled: Some(predicate(Rule::NotMatch(Box::new(these)))),
        ..listener_filter("envoy.filters.listener.tls_inspector", pack_any(TlsInspector::default()))
    }
}

fn chain(chain: Chain, reports: &Reports) -> listener::FilterChain {
    let filters = match &chain.carriage {
        Carriage::Http { route, host, by_caller } => {
            let noted = by_caller.then(affinity::noted_caller);
            noted.into_iter().chain([http::outbound(&chain.name, route, host, reports)]).collect()
        }
        Carriage::Tcp { destination, by_caller } => {
            vec![tcp::proxy(&chain.name, destination, *by_caller, &reports.log)]
        }
        Carriage::Outside { route, restricts } => vec![http::egress(&chain.name, route, *restricts, reports)],
        Carriage::Closed => vec![closing()],
    };
    let (server_names, transport) = match chain.transport {
        Transport::Any => (Vec::new(), ""),
        // Any name, also none.
        Transport::Tls(EgressHost::Any) => (Vec::new(), "tls"),
        Transport::Tls(host) => (vec![host.to_string()], "tls"),
        Transport::ClearText => (Vec::new(), "raw_buffer"),
    };
    listener::FilterChain {
        filter_chain_match: Some(listener::FilterChainMatch {
            destination_port: Some(proto::number(chain.port)),
            prefix_ranges: chain.networks.into_iter().map(proto::range).collect(),
            server_names,
            transport_protocol: transport.to_owned(),
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
        filters: vec![closing()],
        ..listener::FilterChain::default()
    }
}

/// Closes a connection without a word.
fn closing() -> listener::Filter {
    filter("envoy.filters.network.direct_response", pack_any(direct_response::Config::default()))
}
