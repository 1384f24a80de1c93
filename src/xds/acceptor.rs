//! The port that proxies connect to: accepting, bounding and, at the end, closing their connections.
//!
//! Owns the sockets and their bounds. Whatever one peer does (garbage, silence, a reset) ends that peer's
//! connection and nothing else. Refuses to decide who may have what: a connection proves only that its peer
//! holds a certificate of the mesh's CA; admission is per stream.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::connection::{self, Handling};

/// Connections held at once. A sidecar holds one, and a replica is dimensioned for thousands of sidecars
/// (about 50 KiB each); past this bound a new one is closed at once and Envoy tries the next replica.
const MAX_CONNECTIONS: usize = 20_000;

/// How long to leave the port alone after `accept` failed for a reason of ours, such as being out of file
/// descriptors: trying again at once would only burn the CPU that could free some.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// Accepts connections until `draining` is cancelled, then closes the port. Connections live on until they
/// end by themselves or `closing` is cancelled; a second after that they are dropped. Returns when none is
/// left.
pub(crate) async fn run(
    listener: TcpListener,
    handling: Arc<Handling>,
    draining: CancellationToken,
    closing: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = draining.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => admit_socket(socket, peer, &slots, &mut connections, &handling, &closing),
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
    let grace = async {
        closing.cancelled().await;
        tokio::time::sleep(CLOSING_GRACE).await;
    };
    tokio::pin!(grace);
    loop {
        tokio::select! {
            () = &mut grace => break,
            ended = connections.join_next() => match ended {
                Some(ended) => report(ended),
                None => return,
            },
        }
    }
    info!(connections = connections.len(), "dropping connections that did not close in time");
    connections.shutdown().await;
}

/// How long a connection may take to flush its GOAWAY after it was told to close.
const CLOSING_GRACE: Duration = Duration::from_secs(1);

fn admit_socket(
    socket: TcpStream,
    peer: SocketAddr,
    slots: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
    handling: &Arc<Handling>,
    closing: &CancellationToken,
) {
    let Ok(slot) = Arc::clone(slots).try_acquire_owned() else {
        handling.metrics.connection_refused();
        warn!(%peer, limit = MAX_CONNECTIONS, "too many connections; closing the newest");
        return;
    };
    let handling = Arc::clone(handling);
    // A child, so that one connection can be closed alone.
    let closing = closing.child_token();
    connections.spawn(async move {
        connection::serve(socket, peer, handling, closing).await;
        drop(slot);
    });
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
