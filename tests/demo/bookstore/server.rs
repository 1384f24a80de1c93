//! Owns the programs' servers: connections, bounded in number and closed in order; HTTP/1.1 for small
//! requests and responses, which are read and written as a whole; and the port for probes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::identity::{IDENTITY_NONE, IDENTITY_SEEN_HEADER, peer_identity};
use super::record::{Journal, Received, Record};

/// Concurrent connections. The sidecar pools its connections, so tens would suffice.
const CONNECTIONS_MAX: usize = 256;

/// Pause after a failed accept. The usual cause is a lack of file descriptors, which only time
/// resolves.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Time limit for open connections to finish after shutdown began. Longer than a call's two
/// seconds; shorter than the five after which the lab kills a container.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Longest request head. The demo's have a few hundred bytes, plus a kilobyte of the sidecar's
/// headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Longest request body. An order is the name of a book.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// Time limit for a client to send a request head. hyper also counts the idle time of a kept-alive
/// connection, so this exceeds the hour after which Envoy closes an idle upstream connection. If
/// the server closed first, a request in flight would fail with a 503 that no policy explains.
/// [`CONNECTIONS_MAX`] bounds the idle connections.
const HEAD_TIMEOUT: Duration = Duration::from_mins(65);

/// Runs `serve` on each accepted connection until shutdown. Then waits at most [`DRAIN_MAX`] for open
/// connections, and drops the rest. Clients beyond [`CONNECTIONS_MAX`] wait in the listen queue.
///
/// `serve` should end early on shutdown.
pub(super) async fn accept_each<S, F>(listener: TcpListener, shutdown: CancellationToken, serve: S)
where
    S: Fn(TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    // Requests are small and answered one by one; Nagle's algorithm would only delay them.
                    let _ = stream.set_nodelay(true);
                    connections.spawn(serve(stream));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            }
        }
    }
    drop(listener);
    // After the time limit, dropping the set aborts the remaining connections.
    let _ = tokio::time::timeout(DRAIN_MAX, async { while connections.join_next().await.is_some() {} }).await;
}

/// Answers requests until shutdown, then finishes those in progress. The handler does the routing.
pub(super) async fn serve<H, F>(listener: TcpListener, shutdown: CancellationToken, handler: H)
where
    H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Bytes>> + Send + 'static,
{
    let ended = shutdown.clone();
    accept_each(listener, shutdown, move |stream| serve_connection(stream, ended.clone(), handler.clone()))
        .await;
}

async fn serve_connection<H, F>(stream: TcpStream, shutdown: CancellationToken, handler: H)
where
    H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Bytes>> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = handler.clone();
        async move {
            let (head, body) = request.into_parts();
            let response = match Limited::new(body, BODY_BYTES_MAX).collect().await {
                Ok(body) => handler(Request::from_parts(head, body.to_bytes())).await,
                Err(_) => problem(StatusCode::PAYLOAD_TOO_LARGE, "the body is cut off or too long"),
            };
            Ok::<_, Infallible>(response.map(Full::new))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // A broken connection is reported by its client.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Answers probes until shutdown, on a port of its own, so that they do not depend on the sidecar's policy.
/// A probe learns that this program serves, whatever the others do.
pub(super) async fn serve_health(listener: TcpListener, shutdown: CancellationToken) {
    serve(listener, shutdown, |request| async move {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/health") => json(StatusCode::OK, &json!({ "healthy": true })),
            _ => problem(StatusCode::NOT_FOUND, "only GET /health is here"),
        }
    })
    .await;
}

/// The last step of a request: adds the client's identity, as `at` saw it, to the response, and records the
/// request with its status.
pub(super) async fn acknowledge(
    journal: &Journal,
    at: &str,
    request: &Request<Bytes>,
    mut response: Response<Bytes>,
) -> Response<Bytes> {
    let from = peer_identity(request.headers());
    if let Ok(seen) = HeaderValue::from_str(from.as_deref().unwrap_or(IDENTITY_NONE)) {
        response.headers_mut().insert(IDENTITY_SEEN_HEADER, seen);
    }
    journal
        .write(Record::Received(Received {
            t_ms: journal.now_ms(),
            at: at.to_owned(),
            from,
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            status: Some(response.status().as_u16()),
        }))
        .await;
    response
}

pub(super) fn json(status: StatusCode, body: &serde_json::Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON response with an error message.
pub(super) fn problem(status: StatusCode, error: &str) -> Response<Bytes> {
    json(status, &json!({ "error": error }))
}
