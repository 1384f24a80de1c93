//! A bounded HTTP/1.1 server: whole small requests in, whole small responses out. Routing is the handler's.

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

/// Connections served at once. The sidecar pools its connections, so tens would do.
const CONNECTIONS_MAX: usize = 256;

/// Longest request head. Ours are a few hundred bytes, plus a kilobyte for the sidecar's headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Longest request body. A restock order is under a hundred bytes.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// Time to send a body of that size.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time to send a request head. hyper counts the idle time of a kept connection too, so this is longer than the
/// hour after which Envoy closes an idle upstream connection: were we the first to close, a request already on its
/// way would become a 503 that nobody's policy explains. [`CONNECTIONS_MAX`] bounds what idlers can hold.
const HEAD_TIMEOUT: Duration = Duration::from_mins(65);

/// Answers requests until shutdown, then lets those under way finish.
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
    // A connection that breaks is its client's to notice and to report.
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

/// A JSON response that says what was wrong.
pub(super) fn problem(status: StatusCode, error: &str) -> Response<Bytes> {
    json(status, &serde_json::json!({ "error": error }))
}
