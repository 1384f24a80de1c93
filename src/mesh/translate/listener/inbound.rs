//! The inbound listener: what others dial, chain by chain. Mutual TLS or nothing.
//!
//! Owns the matching and where policy is enforced:
//! - HTTP: any identity of the mesh may connect, and each request is authorised by the route's RBAC rules.
//! - everything else: the TLS handshake itself admits only the identities that are allowed, and the
//!   application hears of a connection only after it. RBAC alone would be too late: it looks at the
//!   client's first bytes, and a server that speaks first has by then spoken. It stands behind the
//!   handshake all the same, so that a resumed session is judged again.

use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::util::pack_any;

use super::{filter, http, listen, listener_filter, original_destination, tcp};
use crate::catalog::AppProtocol;
use crate::translate::proto::{self, Families};
use crate::translate::rbac::{self, Rules};
use crate::translate::route::Destination;
use crate::translate::{names, tls};

/// One port of the application, in one protocol.
pub(in crate::translate) struct Chain {
    /// The port.
    pub(in crate::translate) port: u16,
    /// The protocol.
    pub(in crate::translate) protocol: AppProtocol,
    /// The names that clients ask for by SNI; empty takes all of them.
    pub(in crate::translate) server_names: Vec<String>,
    /// Who may connect, for what is not HTTP.
    pub(in crate::translate) rules: Rules,
}

/// The listener; `None` if it would have no chain.
pub(in crate::translate) fn listener(
    chains: Vec<Chain>,
    families: Families,
    port: u16,
) -> Option<listener::Listener> {
    if chains.is_empty() {
        return None;
    }
    let inspector =
        listener_filter("envoy.filters.listener.tls_inspector", pack_any(TlsInspector::default()));
    Some(listener::Listener {
        filter_chains: chains.into_iter().map(chain).collect(),
        listener_filters: vec![original_destination(), inspector],
        ..listen(names::INBOUND_LISTENER, families, port, TrafficDirection::Inbound)
    })
}

fn chain(chain: Chain) -> listener::FilterChain {
    let name = names::inbound(chain.port, chain.protocol);
    let http = chain.protocol.is_http();
    let (filters, validation) = if http {
        (vec![http::inbound(&name, &name)], names::INBOUND_VALIDATION.to_owned())
    } else {
        let authorise = filter(rbac::NETWORK_FILTER, chain.rules.network_filter(&name));
        let local = Destination::One(names::local_cluster(chain.port, chain.protocol));
        (
            vec![authorise, tcp::proxy_after_handshake(&name, &local)],
            names::inbound_port_validation(chain.port, chain.protocol),
        )
    };
    listener::FilterChain {
        filter_chain_match: Some(listener::FilterChainMatch {
            destination_port: Some(proto::number(chain.port)),
            server_names: chain.server_names,
            transport_protocol: "tls".to_owned(),
            ..listener::FilterChainMatch::default()
        }),
        filters,
        transport_socket: Some(tls::downstream(&validation, http)),
        name,
        ..listener::FilterChain::default()
    }
}
