//! The port that proxies connect to: accepts connections and, at shutdown, closes them.
//!
//! Owns the sockets. A peer's garbage, silence or reset ends that peer's connection and nothing else. The
//! [`Acceptor`] decides which connections may go on with their handshake, [`smc_mesh::connections`] which
//! stay.

use std::sync::Arc;

use smc_host::accept::{Accepted, Acceptor, Bounds};
use smc_host::log_limit::LogLimit;
use smc_host::network::Listener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::connection::{self, Handling};

/// Accepts connections until `draining` is cancelled, then closes the port. Returns when no connection
/// is left: each ends by itself, or within its time to close after `closing` is cancelled.
pub(crate) async fn run(
    listener: Box<dyn Listener>,
    handling: Arc<Handling>,
    draining: CancellationToken,
    closing: CancellationToken,
) {
    let mut acceptor = Acceptor::new(listener, "xds", waiting(handling.context.proxies.max_connections()));
    let refusals = LogLimit::default();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = draining.cancelled() => break,
            accepted = acceptor.accept() => {
                serve(accepted, &mut connections, &handling, &closing, &refusals);
            }
            Some(ended) = connections.join_next() => report(ended),
        }
    }
    drop(acceptor);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

/// The places of connections that have not finished their handshake. As many as there may be connections:
/// after a restart all proxies of the replica come at once, and a proxy that is evicted then has to begin
/// again. Half of them for one address: a NAT may be between, and still one address cannot take them all.
fn waiting(max_connections: usize) -> Bounds {
    Bounds { total: max_connections, per_address: max_connections / 2 }
}

fn serve(
    accepted: Accepted,
    connections: &mut JoinSet<()>,
    handling: &Arc<Handling>,
    closing: &CancellationToken,
    refusals: &LogLimit,
) {
    let peer = accepted.peer;
    match handling.context.proxies.accept(peer, closing) {
        Ok(guard) => {
            connections.spawn(connection::serve(accepted, guard, Arc::clone(handling)));
        }
        Err(error) => {
            handling.context.metrics.connection_refused();
            if let Some(count) = refusals.note() {
                warn!(count, latest_peer = %peer, %error, "closing new connections");
            }
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    match ended {
        Err(error) if error.is_panic() => error!(%error, "a connection's task panicked"),
        _ => {}
    }
}
