//! One connection of a proxy: the TLS handshake, then HTTP/2 until it closes.
//!
//! Owns the handshake's bounds and HTTP/2's settings. Refuses to read certificates: it passes on the chain
//! that rustls verified.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::service::XdsService;
use crate::ca::tls::ServerTls;
use crate::telemetry::Metrics;

/// From accepted to authenticated. An honest handshake takes two round trips.
///
/// Handshakes do not queue for each other: a peer that connects and stays silent would hold its turn and keep honest
/// proxies waiting. Their work is bounded by the runtime's threads, their number by the acceptor's slots.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Streams a connection may have open at once. ADS takes one; a proxy on the separate services takes one per
/// type, and for SDS one per secret.
const MAX_STREAMS: u32 = 64;

/// Request headers are a few hundred bytes of path, authority and user agent.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Response bytes kept per stream for a peer that reads slowly, on top of the bounded queue of responses.
const MAX_SEND_BUFFER: usize = 256 << 10;

/// How often a silent peer is asked whether it lives, and how long it may take to say so. Ends half-open
/// connections within half a minute, at a cost of a few bytes per sidecar.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What every connection is handled with.
pub(crate) struct Handling {
    /// The server's certificate and the roots it trusts; new connections take the latest.
    tls: Arc<ServerTls>,
    /// What serves the streams.
    service: XdsService,
    /// Where handshakes are counted.
    pub(super) metrics: Metrics,
}

impl Handling {
    pub(crate) fn new(tls: Arc<ServerTls>, service: XdsService, metrics: Metrics) -> Self {
        Self { tls, service, metrics }
    }
}

/// The other side of a connection, as the request's extensions carry it.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Its address.
    pub(super) address: SocketAddr,
    /// Its certificate chain, leaf first, as the handshake verified it.
    pub(super) chain: Arc<[CertificateDer<'static>]>,
    /// Closes the whole connection: for a peer that does not even read the end of its stream.
    pub(super) close: CancellationToken,
}

#[derive(Debug, Error)]
enum HandshakeError {
    #[error("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Timeout,
    #[error("the TLS handshake failed")]
    Tls(#[source] std::io::Error),
}

/// Serves one connection until the peer closes it or `closing` is cancelled (then with a GOAWAY).
pub(super) async fn serve(
    socket: TcpStream,
    address: SocketAddr,
    handling: Arc<Handling>,
    closing: CancellationToken,
) {
    // So that a small response does not wait for the acknowledgement of an earlier one. A socket that refuses
    // it is slower, not wrong.
    let _ = socket.set_nodelay(true);
    let stream = tokio::select! {
        () = closing.cancelled() => return,
        shaken = handshake(socket, &handling) => match shaken {
            Ok(stream) => stream,
            Err(error) => {
                handling.metrics.handshake_failed();
                info!(peer = %address, error = %crate::error::causes(&error), "handshake refused");
                return;
            }
        },
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().into();
    let close = CancellationToken::new();
    let peer = Peer { address, chain, close: close.clone() };
    serve_http2(stream, peer, &handling, &closing, &close).await;
}

async fn handshake(socket: TcpStream, handling: &Handling) -> Result<TlsStream<TcpStream>, HandshakeError> {
    let shake = TlsAcceptor::from(handling.tls.config()).accept(socket);
    timeout(HANDSHAKE_TIMEOUT, shake).await.map_err(|_| HandshakeError::Timeout)?.map_err(HandshakeError::Tls)
}

async fn serve_http2(
    stream: TlsStream<TcpStream>,
    peer: Peer,
    handling: &Handling,
    closing: &CancellationToken,
    close: &CancellationToken,
) {
    let address = peer.address;
    let requests = TaskTracker::new();
    let mut builder = http2::Builder::new(Tracked(requests.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        // The date would be the only bytes that depend on the wall clock.
        .auto_date_header(false);
    let service = handling.service.clone();
    let answer = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.call(request).await) }
    });
    let serving = builder.serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = close.cancelled() => {
            info!(peer = %address, "closing a connection that does not read");
            return;
        }
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        debug!(peer = %address, error = %crate::error::causes(&error), "connection ended");
    }
    // Dropping the connection has ended the requests' bodies; their tasks follow at once.
    requests.close();
    requests.wait().await;
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
