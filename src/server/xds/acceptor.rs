//! The port that proxies connect to: accepts connections and, at shutdown, closes them.
//!
//! Owns the sockets. A peer's garbage, silence or reset ends that peer's connection and nothing else.
//! The [`Acceptor`] decides which connections may go on with their handshake, [`smc_xds::connections`]
//! which stay.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smc_host::accept::{Accepted, Acceptor, Bounds, FAIR};
use smc_host::log_limit::LogLimit;
use smc_host::network::{Bound, Listener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::connection::{self, Handling};

/// The pause before another attempt to open the port again.
const RETRY: Duration = Duration::from_millis(200);

/// Accepts connections until `draining` is cancelled, then closes the port, as it does while the
/// proxies' table takes none. Returns when no connection is left: each ends by itself, or within its
/// time to close after `closing` is cancelled.
///
/// The port opens when there is something to serve. A proxy that is refused before goes on to another
/// replica, where one that was accepted would wait.
pub(crate) async fn run(
    port: Box<dyn Bound>,
    handling: Arc<Handling>,
    draining: CancellationToken,
    closing: CancellationToken,
) {
    let address = port.address();
    let proxies = &handling.context.proxies;
    let accepting = |listener| {
        proxies.note_port(true);
        Acceptor::new(listener, "xds", waiting(proxies.max_connections()))
    };
    let mut served = handling.context.served.clone();
    tokio::select! {
        () = draining.cancelled() => return,
        // Without the publisher the replica ends.
        synced = served.wait_for(Option::is_some) => if synced.is_err() { return },
    }
    let mut acceptor = match port.listen().await {
        Ok(listener) => Some(accepting(listener)),
        Err(error) => {
            warn!(%address, %error, "cannot open the port for proxies; will retry");
            None
        }
    };
    let mut closes = handling.context.proxies.accepting();
    let mut opens = closes.clone();
    let refusals = LogLimit::default();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = draining.cancelled() => break,
            accepted = next(&mut acceptor) => {
                serve(accepted, &mut connections, &handling, &closing, &refusals);
            }
            // The sender is in the context, and so outlives this task.
            Ok(_) = closes.wait_for(|accepts| !accepts), if acceptor.is_some() => {
                acceptor = None;
                proxies.note_port(false);
            }
            opened = open_again(&mut opens, address, &handling), if acceptor.is_none() => {
                acceptor = Some(accepting(opened));
            }
            Some(ended) = connections.join_next() => report(ended),
        }
    }
    drop(acceptor);
    proxies.note_port(false);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

/// The next connection; never without an open port.
async fn next(acceptor: &mut Option<Acceptor>) -> Accepted {
    match acceptor {
        Some(acceptor) => acceptor.accept().await,
        None => std::future::pending().await,
    }
}

/// Opens the port again once the replica takes proxies again.
async fn open_again(
    accepts: &mut watch::Receiver<bool>,
    address: SocketAddr,
    handling: &Handling,
) -> Box<dyn Listener> {
    loop {
        if accepts.wait_for(|accepts| *accepts).await.is_err() {
            std::future::pending::<()>().await;
        }
        match handling.context.env.network.listen(address).await {
            Ok(listener) => return listener,
            Err(error) => {
                warn!(%address, %error, "cannot open the port for proxies again; will retry");
                sleep(RETRY).await;
            }
        }
    }
}

/// The places of connections that have not finished their handshake. As many as there may be
/// connections: after a restart all proxies of the replica come at once, and a proxy that is evicted
/// then has to begin again. Half of them for one address: a NAT may be between, and still one address
/// cannot take them all.
fn waiting(max_connections: usize) -> Bounds {
    Bounds { total: max_connections, per_address: max_connections / 2, fair: FAIR }
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
