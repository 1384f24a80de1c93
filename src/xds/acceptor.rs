//! The port that proxies connect to: accepting and, at the end, closing their connections.
//!
//! Owns the sockets. Whatever one peer does (garbage, silence, a reset) ends that peer's connection and nothing else.
//! Refuses to decide which connections are kept: that is [`smc_mesh::connections`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smc_raft::{Io, Listener};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::connection::{self, Handling};

/// How long to leave the port alone after `accept` failed for a reason of ours, such as being out of file
/// descriptors: trying again at once would only burn the CPU that could free some.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// Accepts connections until `draining` is cancelled, then closes the port. Connections live on until they
/// end by themselves, or `closing` is cancelled and they have had their time to close. Returns when none is left.
pub(crate) async fn run(
    mut listener: Box<dyn Listener>,
    handling: Arc<Handling>,
    draining: CancellationToken,
    closing: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = draining.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => admit_socket(socket, peer, &mut connections, &handling, &closing),
                Err(error) if is_of_the_peer(&error) => debug!(%error, "a peer gave up before it was accepted"),
                Err(error) => {
                    warn!(%error, "cannot accept connections; trying again");
                    tokio::time::sleep(ACCEPT_BACK_OFF).await;
                }
            },
            Some(ended) = connections.join_next() => report(ended),
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

fn admit_socket(
    socket: Box<dyn Io>,
    peer: SocketAddr,
    connections: &mut JoinSet<()>,
    handling: &Arc<Handling>,
    closing: &CancellationToken,
) {
    match handling.context.proxies.accept(peer, closing) {
        Ok(connected) => {
            connections.spawn(connection::serve(socket, connected, Arc::clone(handling)));
        }
        Err(error) => {
            handling.context.metrics.connection_refused();
            warn!(%peer, %error, "closing a new connection");
        }
    }
}

/// Errors that `accept` reports for a peer that vanished between its SYN and our call (accept(2)).
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    match ended {
        Err(error) if error.is_panic() => error!(%error, "a connection's task panicked"),
        _ => {}
    }
}
