//! A bounded HTTP/1.1 server for small requests and responses, which are read and written as a
//! whole. The handler does the routing.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::acceptor::accept_each;

/// Concurrent connections. The sidecar pools its connections, so tens would suffice.
const CONNECTIONS_MAX: usize = 256;

/// Longest request head. The demo's have a few hundred bytes, plus a kilobyte of the sidecar's
/// headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Longest request body. A restock order has less than a hundred bytes.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// Time limit for a client to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for a client to send a request head. hyper also counts the idle time of a kept-alive
/// connection, so this exceeds the hour after which Envoy closes an idle upstream connection. If
/// the server closed first, a request in flight would fail with a 503 that no policy explains.
/// [`CONNECTIONS_MAX`] bounds the idle connections.
const HEAD_TIMEOUT: Duration = Duration::from_mins(65);

/// Answers requests until shutdown, then finishes those in progress.
pub(super) async fn serve<H, F>(listener: TcpListener, shutdown: CancellationToken, handler: H)
where
    H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Bytes>> + Send + 'static,
{
    let ended = shutdown.clone();
    accept_each(listener, CONNECTIONS_MAX, shutdown, move |stream| {
        serve_connection(stream, ended.clone(), handler.clone())
    })
    .await;
}

async fn serve_connection<H, F>(stream: TcpStream, shutdown: CancellationToken, handler: H)
where
    H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Bytes>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move {
            let response = match read_whole(request).await {
                Ok(request) => handler(request).await,
                Err(refusal) => refusal,
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

async fn read_whole(request: Request<Incoming>) -> Result<Request<Bytes>, Response<Bytes>> {
    let (head, body) = request.into_parts();
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, body.to_bytes())),
        Ok(Err(_)) => Err(problem(StatusCode::PAYLOAD_TOO_LARGE, "the body is cut off or too long")),
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}

/// A JSON response.
pub(super) fn json(status: StatusCode, body: &serde_json::Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON response with an error message.
pub(super) fn problem(status: StatusCode, error: &str) -> Response<Bytes> {
    json(status, &serde_json::json!({ "error": error }))
}
