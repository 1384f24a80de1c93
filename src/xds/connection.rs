//! One connection of a proxy: the TLS handshake, then HTTP/2 until it closes.
//!
//! Owns the handshake's bounds, HTTP/2's settings, and how long a connection may be of no use. Refuses to judge: the
//! certificate of a chain that rustls verified is [`super::admission`]'s.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use smc_mesh::pki::PeerCertificate;
use smc_raft::Io;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tracing::{debug, info, warn};

use super::admission;
use super::proxies::{Connected, Connection};
use super::service::XdsService;
use super::stream::Context;
use crate::ca::tls::ServerTls;

/// From accepted to authenticated. An honest handshake takes two round trips.
///
/// Handshakes do not queue for each other: a peer that connects and stays silent would hold its turn and keep honest
/// proxies waiting. Their work is bounded by the runtime's threads, their number by the acceptor's slots.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Streams a connection may have open at once, admitted or not: more than a proxy may have, with some that are ending.
const MAX_STREAMS: u32 = 32;

/// Request headers are a few hundred bytes of path, authority and user agent.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Bytes of requests that a connection keeps before they are read, those of all its streams together; a peer that was
/// not admitted is not read at all. A large request takes a round trip for each so many.
const RECEIVE_WINDOW: u32 = 256 << 10;

/// Response bytes kept per stream for a peer that reads slowly, on top of the bounded queue of responses.
const MAX_SEND_BUFFER: usize = 256 << 10;

/// How often a silent peer is asked whether it lives, and how long it may take to say so. Ends half-open
/// connections within half a minute, at a cost of a few bytes per sidecar.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a peer whose certificate is refused may take to ask for something, so that it can be told why. It is told
/// once; then, or without having asked, it has to go.
const REFUSED_LIMIT: Duration = Duration::from_secs(3);

/// How long a connection may take to let its streams finish and to flush its GOAWAY after it was told to close.
const CLOSING_GRACE: Duration = Duration::from_secs(1);

/// What every connection is handled with.
pub(crate) struct Handling {
    /// The server's certificate and the roots it trusts; new connections take the latest.
    tls: Arc<ServerTls>,
    /// What streams need.
    pub(super) context: Arc<Context>,
}

impl Handling {
    pub(crate) fn new(tls: Arc<ServerTls>, context: Context) -> Self {
        Self { tls, context: Arc::new(context) }
    }
}

/// The other side of a connection, as the request's extensions carry it.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Its certificate, which is good so far.
    pub(super) certificate: Arc<PeerCertificate>,
    /// Its connection.
    pub(super) connection: Connection,
}

#[derive(Debug, Error)]
enum HandshakeError {
    #[error("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Timeout,
    #[error("the TLS handshake failed")]
    Tls(#[source] std::io::Error),
}

/// Serves one connection until the peer closes it, it has been without a stream for too long, or it is told to end.
pub(super) async fn serve(socket: Box<dyn Io>, mut connected: Connected, handling: Arc<Handling>) {
    let (context, address) = (&handling.context, connected.connection.peer);
    let Connection { leave, cut, .. } = connected.connection.clone();
    let stream = tokio::select! {
        () = leave.cancelled() => return,
        () = cut.cancelled() => return,
        shaken = handshake(socket, &handling) => match shaken {
            Ok(stream) => stream,
            Err(error) => {
                context.metrics.handshake_failed();
                info!(peer = %address, error = %crate::error::causes(&error), "handshake refused");
                return;
            }
        },
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
    let identified = tokio::select! {
        () = leave.cancelled() => return,
        () = cut.cancelled() => return,
        identified = admission::identified(context, &mut connected, &chain) => identified,
    };
    let (peer, limit) = match identified {
        Ok(certificate) => {
            let connection = connected.connection.clone();
            (Ok(Peer { certificate: Arc::new(certificate), connection }), context.idle_limit)
        }
        Err(refused) => {
            context.metrics.refused(refused.reason());
            warn!(peer = %address, reason = %crate::error::causes(&refused), "proxy refused");
            (Err(refused.status()), REFUSED_LIMIT)
        }
    };
    serve_http2(stream, peer, limit, &connected, context).await;
}

async fn handshake(
    socket: Box<dyn Io>,
    handling: &Handling,
) -> Result<TlsStream<Box<dyn Io>>, HandshakeError> {
    let shake = TlsAcceptor::from(handling.tls.config()).accept(socket);
    timeout(HANDSHAKE_TIMEOUT, shake).await.map_err(|_| HandshakeError::Timeout)?.map_err(HandshakeError::Tls)
}

/// `limit`: how long it may be without a stream.
async fn serve_http2(
    stream: TlsStream<Box<dyn Io>>,
    peer: Result<Peer, Status>,
    limit: Duration,
    connected: &Connected,
    context: &Arc<Context>,
) {
    let Connection { peer: address, leave, cut, .. } = connected.connection.clone();
    let requests = TaskTracker::new();
    let mut builder = http2::Builder::new(Tracked(requests.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_connection_window_size(RECEIVE_WINDOW)
        .initial_stream_window_size(RECEIVE_WINDOW)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        // The date would be the only bytes that depend on the wall clock.
        .auto_date_header(false);
    let (service, told) = (XdsService::new(Arc::clone(context)), leave.clone());
    let answer = service_fn(move |mut request: http::Request<Incoming>| {
        let (service, told, peer) = (service.clone(), told.clone(), peer.clone());
        async move {
            Ok::<_, Infallible>(match peer {
                Ok(peer) => {
                    request.extensions_mut().insert(peer);
                    service.call(request).await
                }
                Err(refusal) => {
                    told.cancel();
                    refusal.into_http()
                }
            })
        }
    });
    {
        let serving = builder.serve_connection(TokioIo::new(stream), answer);
        tokio::pin!(serving);
        let ended = tokio::select! {
            ended = &mut serving => Some(ended),
            () = cut.cancelled() => None,
            () = to_be_closed(&leave, connected.streams(), limit) => {
                serving.as_mut().graceful_shutdown();
                timeout(CLOSING_GRACE, serving).await.ok()
            }
        };
        match ended {
            Some(Ok(())) => debug!(peer = %address, "connection closed"),
            Some(Err(error)) => {
                debug!(peer = %address, error = %crate::error::causes(&error), "connection ended");
            }
            None => info!(peer = %address, "connection dropped"),
        }
    }
    // Dropping the connection has ended the requests' bodies; their tasks follow at once.
    requests.close();
    requests.wait().await;
}

/// Resolves when the connection is to end: it was told to leave, or has been without a stream for `limit`.
async fn to_be_closed(leave: &CancellationToken, mut streams: watch::Receiver<usize>, limit: Duration) {
    let unused = async {
        // The table outlives this, so the channel stays open; were it closed, the connection would be unused.
        while streams.wait_for(|count| *count == 0).await.is_ok()
            && timeout(limit, streams.wait_for(|count| *count > 0)).await.is_ok_and(|waited| waited.is_ok())
        {
        }
    };
    tokio::select! {
        () = leave.cancelled() => {}
        () = unused => {}
    }
}

/// Runs HTTP/2's per-stream tasks where the connection can wait for them.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
