//! The port that proxies connect to: accepts connections and, at shutdown, closes them.
//!
//! Owns the sockets. A peer's garbage, silence or reset ends that peer's connection and nothing else.
//! [`smc_mesh::connections`] decides which connections stay.

use std::net::SocketAddr;
use std::sync::Arc;

use smc_host::accept::Acceptor;
use smc_host::network::{Io, Listener};
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
    let mut acceptor = Acceptor::new(listener, "xds");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = draining.cancelled() => break,
            (socket, peer) = acceptor.accept() => {
                serve(socket, peer, &mut connections, &handling, &closing);
            }
            Some(ended) = connections.join_next() => report(ended),
        }
    }
    drop(acceptor);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

fn serve(
    socket: Box<dyn Io>,
    peer: SocketAddr,
    connections: &mut JoinSet<()>,
    handling: &Arc<Handling>,
    closing: &CancellationToken,
) {
    match handling.context.proxies.accept(peer, closing) {
        Ok(guard) => {
            connections.spawn(connection::serve(socket, guard, Arc::clone(handling)));
        }
        Err(error) => {
            handling.context.metrics.connection_refused();
            warn!(%peer, %error, "closing a new connection");
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    match ended {
        Err(error) if error.is_panic() => error!(%error, "a connection's task panicked"),
        _ => {}
    }
}
