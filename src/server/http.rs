//! `/metrics`, `/healthz`, `/readyz` and `/startupz` over plain HTTP/1.
//!
//! Owns these four paths. Alive means that this task answers; ready means that the sources have synced and
//! streams are served; started means that the replica is in its group, since the port is opened then. Probes
//! that need an answer earlier ask [`crate::probes`].

use std::convert::Infallible;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use smc_host::accept::{Accepted, Acceptor, Bounds, FAIR};
use smc_host::network::{Io, Listener};
use smc_host::tasks::Tasks;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Metrics;

/// Connections at once. There are only a few scrapers and probes. A kubelet probes from its node's address,
/// and with fewer places for one address than for all, no other address can take them all.
const WAITING: Bounds = Bounds { total: 256, per_address: 128, fair: FAIR };

/// How long a client may take to send its request line and headers, which are one packet.
const HEADER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may take in all: one request, and reading the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of request line and headers; hyper takes no smaller bound.
const MAX_HEADER_BYTES: usize = 8 << 10;

/// Starts the server.
pub(crate) fn start(
    listener: Box<dyn Listener>,
    metrics: Metrics,
    ready: impl Fn() -> bool + Clone + Send + Sync + 'static,
    tasks: &mut Tasks,
) {
    tasks.spawn("metrics", |stopping| serve(listener, metrics, ready, stopping));
}

/// Serves until `shutdown`, then drops open connections: a scrape is short, and the scraper retries.
async fn serve(
    listener: Box<dyn Listener>,
    metrics: Metrics,
    ready: impl Fn() -> bool + Clone + Send + Sync + 'static,
    shutdown: CancellationToken,
) {
    let mut acceptor = Acceptor::new(listener, "metrics", WAITING);
    let mut connections = JoinSet::new();
    loop {
        let Accepted { socket, mut place, .. } = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = acceptor.accept() => accepted,
        };
        let (metrics, ready) = (metrics.clone(), ready.clone());
        connections.spawn(async move {
            // Until its end: a client that does not read the answer holds memory as one that asks nothing.
            let served = place.hold(timeout(REQUEST_TIMEOUT, connection(socket, &metrics, ready))).await;
            if !matches!(served, Ok(Ok(()))) {
                debug!("a metrics connection was closed before its end");
            }
        });
    }
}

async fn connection(socket: Box<dyn Io>, metrics: &Metrics, ready: impl Fn() -> bool) {
    let answers = service_fn(|request: Request<Incoming>| {
        let response = answer(request.method(), request.uri().path(), metrics, &ready);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        // A connection has one request, so that what waits is never a connection that may yet be used.
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), answers)
        .await;
    if let Err(error) = served {
        debug!(%error, "metrics connection ended");
    }
}

fn answer(method: &Method, path: &str, metrics: &Metrics, ready: impl Fn() -> bool) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let (status, kind, body) = match (method, path) {
        (&Method::GET, "/metrics") => (StatusCode::OK, OPEN_METRICS, metrics.text()),
        (&Method::GET, "/healthz") => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        (&Method::GET, "/startupz") => (StatusCode::OK, TEXT, "started\n".to_owned()),
        (&Method::GET, "/readyz") if ready() => (StatusCode::OK, TEXT, "ready\n".to_owned()),
        (&Method::GET, "/readyz") => (StatusCode::SERVICE_UNAVAILABLE, TEXT, "not ready\n".to_owned()),
        (&Method::GET, _) => (StatusCode::NOT_FOUND, TEXT, "not found\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "method not allowed\n".to_owned()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_and_liveness_differ() {
        let metrics = Metrics::new();
        let status = |path, ready| answer(&Method::GET, path, &metrics, || ready).status();
        assert_eq!(status("/healthz", false), StatusCode::OK);
        assert_eq!(status("/startupz", false), StatusCode::OK);
        assert_eq!(status("/readyz", false), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status("/readyz", true), StatusCode::OK);
        assert_eq!(status("/nothing", true), StatusCode::NOT_FOUND);
        let post = answer(&Method::POST, "/metrics", &metrics, || true);
        assert_eq!(post.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
