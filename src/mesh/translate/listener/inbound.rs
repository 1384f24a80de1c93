//! The inbound listener: connections to the application. It accepts mutual TLS, and of an ingress that policy
//! names what policy says.
//!
//! Owns the matching, and where policy is enforced:
//! - HTTP: any identity of the mesh may connect, and the route's RBAC rules authorise each request.
//! - other protocols: the TLS handshake admits only the allowed identities, and the proxy connects
//!   to the application only after it. RBAC alone would be too late: the filter runs on the
//!   client's first bytes, and a server that speaks first has sent its own by then. RBAC runs after
//!   the handshake all the same, because a resumed TLS session skips the check of the certificate.
//! - limits of the rate of connections come first: they count strangers, too.
//! - limits of the rate of requests come after the rules, so that a caller that is denied uses up nothing,
//!   and then the server that is asked whether a request may pass.
//! - an ingress: the route's RBAC rules again, by address too. No match of a chain depends on what sources a
//!   policy names, so that gateways which come and go replace no chain and end no connection.

use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::util::pack_any;

use super::{filter, http, listen, listener_filter, original_destination, tcp};
use crate::translate::liveness;
use crate::translate::proto::{self, Families};
use crate::translate::rbac::{self, Rules};
use crate::translate::reports::Reports;
use crate::translate::route::Destination;
use crate::translate::settings::Settings;
use crate::translate::tls::{self, ClientCertificates};
use smc_model::tls_parameters::TlsParameters;
use smc_types::proxy_class::AppProtocol;
use smc_xds::names;

/// How long a client may take for the TLS handshake, in seconds. Envoy sets no bound, and anybody who reaches
/// the pod could keep half-made handshakes for ever. One takes two round trips; the rest is for packets that
/// are lost and sent again.
const HANDSHAKE_SECONDS: i64 = 10;

/// One port of the application, in one protocol.
pub(in crate::translate) struct Chain {
    pub(in crate::translate) port: u16,
    pub(in crate::translate) protocol: AppProtocol,
    /// The SNI names that it matches; empty matches all.
    pub(in crate::translate) server_names: Vec<String>,
    /// What each connection passes first.
    pub(in crate::translate) connection_filters: Vec<listener::Filter>,
    /// The identities that may connect, for other protocols than HTTP.
    pub(in crate::translate) rules: Rules,
    /// What requests pass after the rules of policy, for HTTP.
    pub(in crate::translate) filters: Vec<HttpFilter>,
}

/// A way from an ingress to a port of the application.
pub(in crate::translate) struct IngressWay {
    pub(in crate::translate) name: String,
    pub(in crate::translate) port: u16,
    /// What is asked of a client over TLS; `None` in clear text.
    pub(in crate::translate) tls: Option<ClientCertificates>,
    /// What each connection passes first.
    pub(in crate::translate) connection_filters: Vec<listener::Filter>,
    /// What requests pass after the rules of policy.
    pub(in crate::translate) filters: Vec<HttpFilter>,
}

/// The listener; `None` if it would have no chain.
pub(in crate::translate) fn listener(
    chains: Vec<Chain>,
    ingress: Vec<IngressWay>,
    families: Families,
    settings: &Settings,
    reports: &Reports,
    tls: Option<&TlsParameters>,
) -> Option<listener::Listener> {
    if chains.is_empty() {
        return None;
    }
    let accepted = tls.cloned().unwrap_or_default();
    let inspector =
        listener_filter("envoy.filters.listener.tls_inspector", pack_any(TlsInspector::default()));
    Some(listener::Listener {
        filter_chains: (chains.into_iter().map(|one| chain(one, settings, reports, &accepted)))
            .chain(ingress.into_iter().map(|way| ingress_chain(way, settings, reports, &accepted)))
            .collect(),
        listener_filters: vec![original_destination(), inspector],
        tcp_keepalive: Some(liveness::tcp_keepalive()),
        ..listen(names::INBOUND_LISTENER, families, settings.inbound_port, TrafficDirection::Inbound)
    })
}

fn chain(
    chain: Chain,
    settings: &Settings,
    reports: &Reports,
    accepted: &TlsParameters,
) -> listener::FilterChain {
    let name = names::inbound(chain.port, chain.protocol);
    let http = chain.protocol.is_http();
    let mut filters = chain.connection_filters;
    let validation = if http {
        filters.push(http::inbound(&name, &name, chain.filters, settings.longest_stream(), reports));
        names::INBOUND_VALIDATION.to_owned()
    } else {
        let authorise = filter(rbac::NETWORK_FILTER, chain.rules.network_filter(&name));
        let local = Destination::One(names::local_cluster(chain.port, chain.protocol));
        filters.extend([authorise, tcp::proxy_after_handshake(&name, &local, &reports.log)]);
        names::inbound_port_validation(chain.port, chain.protocol)
    };
    listener::FilterChain {
        filter_chain_match: Some(listener::FilterChainMatch {
            destination_port: Some(proto::number(chain.port)),
            server_names: chain.server_names,
            transport_protocol: "tls".to_owned(),
            ..listener::FilterChainMatch::default()
        }),
        filters,
        transport_socket: Some(tls::downstream(&validation, http, accepted)),
        transport_socket_connect_timeout: Some(proto::seconds(HANDSHAKE_SECONDS)),
        name,
        ..listener::FilterChain::default()
    }
}

fn ingress_chain(
    way: IngressWay,
    settings: &Settings,
    reports: &Reports,
    accepted: &TlsParameters,
) -> listener::FilterChain {
    let IngressWay { name, port, tls, connection_filters: mut all, filters } = way;
    all.push(http::ingress(&name, &name, filters, settings.longest_stream(), reports, tls.is_some()));
    let socket = tls.as_ref().map(|clients| tls::of_ingress(clients, accepted));
    let tls = socket.is_some();
    let protocol = if tls { "tls" } else { "raw_buffer" };
    listener::FilterChain {
        filter_chain_match: Some(listener::FilterChainMatch {
            destination_port: Some(proto::number(port)),
            transport_protocol: protocol.to_owned(),
            ..listener::FilterChainMatch::default()
        }),
        filters: all,
        transport_socket: socket,
        transport_socket_connect_timeout: tls.then(|| proto::seconds(HANDSHAKE_SECONDS)),
        name,
        ..listener::FilterChain::default()
    }
}
