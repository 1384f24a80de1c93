//! One connection of a proxy: the TLS handshake, then HTTP/2 until it closes.
//!
//! Owns the bounds of the handshake, the settings of HTTP/2, and how long a connection may be without a
//! stream. Rustls verifies the certificate chain; [`crate::registry::admission`] decides about the
//! certificate.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use smc_authority::rules::Refusal;
use smc_host::accept::{Accepted, Evicted, FirstBytes};
use smc_host::log_limit::{LogLimit, LogLimits};
use smc_host::network::Io;
use smc_host::tasks::Tracked;
use smc_issuing::tls::ServerTls;
use smc_types::ids::ProxyName;
use smc_types::object_ref::ObjectRef;
use smc_xds::served_state::ServedState;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tracing::{debug, info, warn};

use super::context::{Context, Peer};
use super::overhead::{Metered, Overhead};
use super::proxies::{Connection, ConnectionGuard};
use super::reconnects::{SlowAddresses, TooFast, TooManyHandshakes};
use super::service::XdsService;
use crate::registry::admission::NotAdmitted;
use crate::sidecars::Refused;

/// The time from accept to the end of the TLS handshake. A proxy needs two round trips, and after the loss
/// of a replica the time until its turn comes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a handshake keeps its turn. A proxy far away, or one that falls silent, goes on without it.
const TURN: Duration = Duration::from_millis(100);

/// What a peer may send before the end of its handshake; rustls alone would keep up to 64 KiB of it. A
/// proxy sends less than 4 KiB, most of it the certificates.
const HANDSHAKE_BYTES: usize = 8 << 10;

/// Open streams per connection, admitted or not: more than the limit per proxy, with some that are ending.
const MAX_STREAMS: u32 = 32;

/// The bound on request headers, which are a few hundred bytes of path, authority and user agent.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Bytes of unread requests per connection, of all its streams together. Requests of a peer that is not
/// admitted are not read. A large request takes one round trip per window.
const RECEIVE_WINDOW: u32 = 256 << 10;

/// Bytes of responses buffered per stream for a slow reader, in addition to the bounded queue of responses.
const MAX_SEND_BUFFER: usize = 256 << 10;

/// The HTTP/2 keepalive: the interval of pings and the time to answer one. Ends half-open connections
/// within half a minute, at a cost of a few bytes per sidecar.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a refused peer may take to send a request, because only the response can carry the reason.
/// The connection closes after the first response, or at this limit.
const REFUSED_LIMIT: Duration = Duration::from_secs(3);

/// How long a closing connection may take to finish its streams and to flush its GOAWAY.
const CLOSING_GRACE: Duration = Duration::from_secs(1);

/// What every connection shares.
pub(crate) struct Handling {
    /// The server's certificate and trusted roots; a new connection uses the latest.
    tls: Arc<ServerTls>,
    pub(super) context: Arc<Context>,
    /// Failed handshakes in the log.
    failures: LogLimit,
    /// Refused certificates in the log, by the reason, of which there are a few.
    refusals: LogLimits,
    /// Where proxies connect too fast.
    slow: SlowAddresses,
}

impl Handling {
    pub(crate) fn new(tls: Arc<ServerTls>, context: Context) -> Self {
        Self {
            tls,
            context: Arc::new(context),
            failures: LogLimit::default(),
            refusals: LogLimits::default(),
            slow: SlowAddresses::default(),
        }
    }
}

#[derive(Debug, Error)]
enum HandshakeError {
    #[error("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Timeout,
    #[error("the TLS handshake failed")]
    Tls(#[source] std::io::Error),
    #[error(
        "the peer closed the connection, or sent more than a handshake begins with, while it waited for its turn"
    )]
    Left,
    #[error(transparent)]
    TooMany(#[from] TooManyHandshakes),
    #[error(transparent)]
    Evicted(#[from] Evicted),
}

/// Serves one connection until the peer closes it, it is without a stream for too long, or its entry is
/// closed or aborted.
pub(super) async fn serve(accepted: Accepted, mut guard: ConnectionGuard, handling: Arc<Handling>) {
    let (context, address) = (&handling.context, guard.connection.peer);
    let Connection { close, abort, .. } = guard.connection.clone();
    let stream = tokio::select! {
        () = close.cancelled() => return,
        () = abort.cancelled() => return,
        handshake = handshake(accepted, &handling) => match handshake {
            Ok(stream) => stream,
            Err(error) => return handshake_failed(address, &error, &handling),
        },
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
    let enter = |proxy: &ProxyName, serial| guard.identify(proxy, serial);
    let identified = tokio::select! {
        () = close.cancelled() => return,
        () = abort.cancelled() => return,
        identified = context.admission.identify(&chain, enter) => identified,
    };
    let (peer, limit) = match identified {
        Ok(certificate) => {
            let connection = guard.connection.clone();
            if let Err(too_fast) = connection.allowance.connecting.connect(Instant::now()) {
                return connects_too_fast(address, too_fast, &handling);
            }
            (Ok(Peer { certificate: Arc::new(certificate), connection }), context.idle_limit)
        }
        Err(refused) => {
            certificate_refused(address, &refused, &handling);
            guard.connection.allowance.overhead = Overhead::of_refused(Instant::now());
            (Err(refused.status()), REFUSED_LIMIT)
        }
    };
    // On the heap of its own, so that a connection that never gets this far does not hold the room for it.
    Box::pin(serve_http2(stream, peer, limit, &guard, context)).await;
}

async fn handshake(
    accepted: Accepted,
    handling: &Handling,
) -> Result<TlsStream<Metered<FirstBytes>>, HandshakeError> {
    let Accepted { socket, peer, mut place } = accepted;
    let handshake = timeout(HANDSHAKE_TIMEOUT, handshake_in_turn(socket, peer, handling));
    place.hold(handshake).await?.map_err(|_| HandshakeError::Timeout)?
}

/// Reads the peer's first message, waits for a turn, and does what costs the processor something.
async fn handshake_in_turn(
    socket: Box<dyn Io>,
    peer: SocketAddr,
    handling: &Handling,
) -> Result<TlsStream<Metered<FirstBytes>>, HandshakeError> {
    let socket = Metered::new(FirstBytes::new(socket, HANDSHAKE_BYTES));
    // A silent peer never gets to wait for a turn.
    let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), socket);
    let mut hello = hello.await.map_err(HandshakeError::Tls)?;
    let (now, turns) = (Instant::now(), handling.context.proxies.handshakes());
    let begins = handling.slow.next(now, peer.ip())?;
    let turn = async {
        if begins > now {
            sleep_until(begins).await;
        }
        turns.wait(peer.ip()).await
    };
    let turn = tokio::select! {
        biased;
        turn = turn => turn,
        // A client says no more before it is answered (RFC 8446, section 2): so it has given up.
        _ = hello.io.read_u8() => return Err(HandshakeError::Left),
    };
    let handshake = hello.into_stream(handling.tls.config());
    tokio::pin!(handshake);
    let done = if let Ok(done) = timeout(TURN, &mut handshake).await {
        done
    } else {
        drop(turn);
        handshake.await
    };
    let mut stream = done.map_err(HandshakeError::Tls)?;
    stream.get_mut().0.get_mut().lift();
    Ok(stream)
}

/// Counts and logs a failed handshake. Anybody can cause one, so that many have one line.
fn handshake_failed(peer: SocketAddr, error: &HandshakeError, handling: &Handling) {
    let metrics = &handling.context.metrics;
    if matches!(error, HandshakeError::Evicted(_)) {
        // The acceptor logs it.
        return metrics.connection_refused();
    }
    metrics.handshake_failed();
    if is_of_another_ca(error) {
        handling.context.refusals.note(Refused::Distrustful(peer.ip()));
    }
    if let Some(count) = handling.failures.note() {
        let error = smc_types::causes::causes(error);
        info!(count, latest_peer = %peer, %error, "handshakes refused");
    }
}

/// Whether a handshake failed since one side does not know the CA of the other's certificate.
fn is_of_another_ca(error: &HandshakeError) -> bool {
    let HandshakeError::Tls(error) = error else { return false };
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(
        error,
        Some(
            rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA)
                | rustls::Error::InvalidCertificate(
                    rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature
                )
        )
    )
}

/// Counts and logs a connection of a proxy that makes too many, and slows down the handshakes of its address.
fn connects_too_fast(peer: SocketAddr, too_fast: TooFast, handling: &Handling) {
    handling.slow.note(Instant::now(), peer.ip());
    handling.context.metrics.connection_refused();
    if let Some(count) = handling.refusals.note("too fast") {
        warn!(count, latest_peer = %peer, reason = %too_fast, "proxies refused");
    }
}

/// Counts and logs a certificate that TLS accepted and the ledger does not.
fn certificate_refused(peer: SocketAddr, refused: &NotAdmitted, handling: &Handling) {
    let context = &handling.context;
    context.metrics.refused(refused.reason());
    if let NotAdmitted::Refused(Refusal::NotIssued { proxy, .. }) = refused {
        context.refusals.note(Refused::Unrecorded(proxy.uuid));
    }
    if let Some(count) = handling.refusals.note(refused.reason()) {
        let reason = smc_types::causes::causes(refused);
        // In the log alone: the peer is sent only what it presented itself.
        let pod = context.served.borrow().as_deref().and_then(|state| pod_named(refused, state));
        let pod = pod.map(|pod| pod.to_string());
        warn!(count, latest_peer = %peer, latest_pod = pod, %reason, "proxies refused");
    }
}

/// The pod in the mesh whose sidecar a refused certificate names.
fn pod_named(refused: &NotAdmitted, state: &ServedState) -> Option<ObjectRef> {
    let NotAdmitted::Refused(refusal) = refused else { return None };
    Some(ObjectRef::from(&state.proxies.get(refusal.proxy()?)?.workload))
}

/// Serves HTTP/2 on a connection that may be without a stream for `limit`. An error in `peer` is the
/// response to the first request.
async fn serve_http2(
    mut stream: TlsStream<Metered<FirstBytes>>,
    peer: Result<Peer, Status>,
    limit: Duration,
    guard: &ConnectionGuard,
    context: &Arc<Context>,
) {
    let Connection { peer: address, close, abort, allowance, .. } = guard.connection.clone();
    stream.get_mut().0.charge(allowance.overhead);
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
        // The date header would be the only bytes that depend on the wall clock.
        .auto_date_header(false);
    let (service, answered) = (XdsService::new(Arc::clone(context)), close.clone());
    let answer = service_fn(move |mut request: http::Request<Incoming>| {
        let (service, answered, peer) = (service.clone(), answered.clone(), peer.clone());
        async move {
            Ok::<_, Infallible>(match peer {
                Ok(peer) => {
                    request.extensions_mut().insert(peer);
                    service.call(request)
                }
                Err(refusal) => {
                    answered.cancel();
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
            () = abort.cancelled() => None,
            () = closed_or_idle(&close, guard.streams(), limit) => {
                serving.as_mut().graceful_shutdown();
                timeout(CLOSING_GRACE, serving).await.ok()
            }
        };
        match ended {
            Some(Ok(())) => debug!(peer = %address, "connection closed"),
            Some(Err(error)) => {
                debug!(peer = %address, error = %smc_types::causes::causes(&error), "connection ended");
            }
            None => info!(peer = %address, "connection dropped"),
        }
    }
    // The end of the connection ends the bodies of its requests, and these end their tasks.
    requests.close();
    requests.wait().await;
}

/// Resolves when the connection is to end: `close` is cancelled, or it has been without a stream for `limit`.
async fn closed_or_idle(close: &CancellationToken, mut streams: watch::Receiver<usize>, limit: Duration) {
    let idle = async {
        // The table of connections keeps the channel open. A closed channel would count as idle.
        while streams.wait_for(|count| *count == 0).await.is_ok()
            && timeout(limit, streams.wait_for(|count| *count > 0)).await.is_ok_and(|waited| waited.is_ok())
        {
        }
    };
    tokio::select! {
        () = close.cancelled() => {}
        () = idle => {}
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, CertificateError, Error};
    use smc_types::ids::{ProxyUuid, WorkloadId};
    use smc_types::proxy_class::ProxyClass;
    use smc_xds::served_state::KnownProxy;

    use super::*;

    #[test]
    fn a_handshake_fails_by_the_authority_if_one_side_does_not_know_it() {
        let of = |error| HandshakeError::Tls(std::io::Error::new(std::io::ErrorKind::InvalidData, error));
        for (error, expected) in [
            (of(Error::AlertReceived(AlertDescription::UnknownCA)), true),
            (of(Error::InvalidCertificate(CertificateError::UnknownIssuer)), true),
            (of(Error::InvalidCertificate(CertificateError::BadSignature)), true),
            (of(Error::InvalidCertificate(CertificateError::Expired)), false),
            (of(Error::AlertReceived(AlertDescription::CertificateExpired)), false),
            (HandshakeError::Tls(std::io::ErrorKind::UnexpectedEof.into()), false),
            (HandshakeError::Timeout, false),
        ] {
            assert_eq!(is_of_another_ca(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn a_refused_certificate_is_assigned_to_the_pod_that_it_names() {
        let name = |pod: &str| {
            let pod: WorkloadId = pod.parse().unwrap();
            ProxyName::of(ProxyUuid::derived(&pod), &pod)
        };
        let account = "shop/buyer".parse().unwrap();
        let class =
            Arc::new(ProxyClass { account, inbound: Vec::new(), ipv4: true, ipv6: false, telemetry: None });
        let mut state = ServedState::default();
        let workload = "shop/buyer".parse().unwrap();
        state.proxies.insert(name("shop/buyer"), KnownProxy { workload, class });
        let not_issued = |pod| Refusal::NotIssued { proxy: name(pod), serial: "07".to_owned() }.into();
        for (refused, expected) in [
            (not_issued("shop/buyer"), Some("Pod shop/buyer")),
            (not_issued("shop/stranger"), None),
            (Refusal::BadName("x".to_owned()).into(), None),
            (NotAdmitted::NoCertificate, None),
        ] {
            let pod = pod_named(&refused, &state).map(|pod| pod.to_string());
            assert_eq!(pod.as_deref(), expected, "{refused}");
        }
    }
}
