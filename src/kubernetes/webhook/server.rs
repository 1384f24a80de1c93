//! The HTTPS server of the webhooks.
//!
//! Owns the connections: their bounds, the handshake, HTTP/1.1 and HTTP/2, and their end. Which paths there
//! are is the routers' business. API servers show a client certificate only where their operator configures
//! one (`--webhook-client-ca`); otherwise any peer may speak, and no route may trust what it says.
//!
//! Handshakes have places of their own, so that silent sockets end no connection over which questions come.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use smc_host::accept::{Accepted, Acceptor, Bounds, Places, Turns};
use smc_host::log_limit::LogLimit;
use smc_host::network::{Io, Listener};
use smc_host::tasks::{Tasks, Tracked};
use smc_issuing::tls::ServerTls;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::util::MapRequest;
use tracing::{debug, error, info};

use super::body::Peer;

/// Connections at once, in their handshake and after it. An API server has one for each Service of the
/// webhooks, over which it sends everything, and keeps them: they are the oldest of all. So an address with
/// two loses none while another has more. It takes strangers at 127 addresses to have no more.
const CONNECTIONS: Bounds = Bounds { total: 256, per_address: 128, fair: 2 };

/// Handshakes at once, in turns by address. At half a millisecond of a core each, an API server waits some
/// 10 ms for its turn, whatever strangers at other addresses do.
const HANDSHAKES_AT_ONCE: usize = 16;

/// How long a handshake keeps its turn. A peer that falls silent goes on without it.
const TURN: Duration = Duration::from_millis(100);

/// How long a TLS handshake may take: two round trips, on a busy machine.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How long the head of a request may take.
const HEADER_LIMIT: Duration = Duration::from_secs(5);

/// The most bytes of a request's head.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Requests at once over one connection: an API server sends all its questions over one.
const MAX_STREAMS: u32 = 256;

/// Bytes of unread bodies for one connection. A longer body takes a round trip for each window.
const RECEIVE_WINDOW: u32 = 512 << 10;

/// Bytes of one answer that are taken from its place in the room and not yet sent.
const SEND_BUFFER: usize = 16 << 10;

/// Ends half-open connections.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_LIMIT: Duration = Duration::from_secs(10);

/// How long a closing connection may take to answer what it was asked.
const CLOSING_GRACE: Duration = Duration::from_secs(3);

/// What every connection shares.
struct Serving {
    tls: Arc<ServerTls>,
    routes: Router,
    draining: CancellationToken,
    failures: LogLimit,
    handshakes: Turns,
    /// The places of connections after their handshake.
    established: Places,
}

/// Starts the server. `draining` closes the port, and each connection once it is idle.
pub(crate) fn start(
    listener: Box<dyn Listener>,
    tls: Arc<ServerTls>,
    routes: Router,
    draining: CancellationToken,
    tasks: &mut Tasks,
) {
    let serving = Serving {
        tls,
        routes,
        draining,
        failures: LogLimit::default(),
        handshakes: Turns::new(HANDSHAKES_AT_ONCE),
        established: Places::new("webhooks, after the handshake", CONNECTIONS),
    };
    tasks.spawn("webhooks", |stopping| run(listener, Arc::new(serving), stopping));
}

async fn run(listener: Box<dyn Listener>, serving: Arc<Serving>, stopping: CancellationToken) {
    let mut acceptor = Acceptor::new(listener, "webhooks", CONNECTIONS);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = serving.draining.cancelled() => break,
            accepted = acceptor.accept() => {
                connections.spawn(connection(accepted, Arc::clone(&serving)));
            }
            Some(ended) = connections.join_next() => report(ended),
        }
    }
    drop(acceptor);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
    // A task of a replica runs until the replica stops.
    stopping.cancelled().await;
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(panic) = ended {
        error!(error = &panic as &dyn std::error::Error, "a connection of the webhooks was interrupted");
    }
}

/// Does a handshake in its turn. A silent peer never gets to wait for one.
///
/// Rustls keeps 64 KiB of what a peer sends in its handshake, at most. A smaller bound would end honest
/// connections: a client sends its first request together with its last handshake message.
async fn handshake(
    socket: Box<dyn Io>,
    peer: IpAddr,
    serving: &Serving,
) -> io::Result<TlsStream<Box<dyn Io>>> {
    let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), socket).await?;
    let turn = serving.handshakes.wait(peer).await;
    let handshake = hello.into_stream(serving.tls.config());
    tokio::pin!(handshake);
    if let Ok(done) = timeout(TURN, &mut handshake).await {
        return done;
    }
    drop(turn);
    handshake.await
}

/// Serves one connection. It keeps its place until its end, since nothing that a peer does here proves it.
async fn connection(accepted: Accepted, serving: Arc<Serving>) {
    let Accepted { socket, peer, mut place } = accepted;
    let handshake = async {
        let stream = timeout(HANDSHAKE_LIMIT, handshake(socket, peer.ip(), &serving)).await;
        stream.map_err(|_| "too slow".to_owned())?.map_err(|error| error.to_string())
    };
    let stream = match place.hold(handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(reason)) => {
            if let Some(count) = serving.failures.note() {
                info!(count, latest_peer = %peer, reason, "handshakes at the webhooks' port failed");
            }
            return;
        }
        // The acceptor logs it.
        Err(_) => return,
    };
    let proved = stream.get_ref().1.peer_certificates().is_some();
    if proved {
        place.vouch();
    }
    drop(place);
    let mut place = serving.established.enter(peer);
    if proved {
        place.vouch();
    }
    // On the heap of its own, so that a connection that never gets this far does not hold the room for it.
    if place.hold(Box::pin(serve(stream, peer.ip(), &serving))).await.is_err() {
        debug!(%peer, "a connection of the webhooks was closed for a newer one");
    }
}

async fn serve(stream: TlsStream<Box<dyn Io>>, peer: IpAddr, serving: &Serving) {
    let requests = TaskTracker::new();
    {
        let mut builder = auto::Builder::new(Tracked(requests.clone()));
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_LIMIT)
            .max_buf_size(MAX_HEADER_BYTES as usize);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .initial_connection_window_size(RECEIVE_WINDOW)
            .initial_stream_window_size(RECEIVE_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_LIMIT);
        let routes = MapRequest::new(serving.routes.clone(), move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            request
        });
        let service = TowerToHyperService::new(routes);
        let served = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(served);
        let ended = tokio::select! {
            ended = &mut served => Some(ended),
            () = serving.draining.cancelled() => {
                served.as_mut().graceful_shutdown();
                timeout(CLOSING_GRACE, served).await.ok()
            }
        };
        if let Some(Err(error)) = ended {
            debug!(error, "a connection of the webhooks ended");
        }
    }
    // The end of the connection ends its requests.
    requests.close();
    requests.wait().await;
}
