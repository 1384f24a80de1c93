//! An HTTP/1.1 client for one server. Connections are opened and reused explicitly, nothing is
//! retried, and errors are classified by [`CallError`].

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use smc_types::host_port::HostPort;
use tokio::net::{TcpStream, lookup_host};
use tokio_util::task::AbortOnDropHandle;

use super::record::CallError;

/// Longest response body read. The programs answer with less than a hundred bytes, a proxy with a
/// sentence.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// A response whose body was read to its end.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
}

impl HttpResponse {
    /// Returns a header as text, if it is present.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name)?.to_str().ok().map(str::to_owned)
    }
}

#[derive(Debug, Clone)]
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// An open connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    authority: HeaderValue,
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    /// Resolves and connects. The caller sets the time limit.
    pub(super) async fn open(server: &HostPort) -> Result<Self, CallError> {
        let authority = HeaderValue::from_str(&server.to_string()).map_err(|_| CallError::NameNotResolved)?;
        let stream = connect(server).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| classify(&error))?;
        // The driver's error also fails the pending request, which reports it.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { authority, sender, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Returns true if another request may be sent. Waits until the last response is complete.
    pub(super) async fn is_reusable(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and reads the response to its end. The caller sets the time limit.
    pub(super) async fn send(&mut self, outgoing: HttpRequest) -> Result<HttpResponse, CallError> {
        let mut request = Request::new(Full::new(outgoing.body));
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = outgoing.path.parse().map_err(|_| CallError::Protocol)?;
        *request.headers_mut() = outgoing.headers;
        request.headers_mut().insert(header::HOST, self.authority.clone());

        let response = self.sender.send_request(request).await.map_err(|error| classify(&error))?;
        let (head, body) = response.into_parts();
        Limited::new(body, RESPONSE_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| error.downcast_ref::<hyper::Error>().map_or(CallError::Protocol, classify))?;
        Ok(HttpResponse { status: head.status.as_u16(), headers: head.headers })
    }
}

/// One request on a connection of its own.
pub(super) async fn send_once(
    server: &HostPort,
    outgoing: HttpRequest,
    limit: Duration,
) -> Result<HttpResponse, CallError> {
    let exchange = async { Connection::open(server).await?.send(outgoing).await };
    tokio::time::timeout(limit, exchange).await.unwrap_or(Err(CallError::TimedOut))
}

/// Connects to the first address of the name that accepts.
pub(super) async fn connect(server: &HostPort) -> Result<TcpStream, CallError> {
    let addresses: Vec<SocketAddr> =
        lookup_host(server.to_string()).await.map_err(|_| CallError::NameNotResolved)?.collect();
    if addresses.is_empty() {
        return Err(CallError::NameNotResolved);
    }
    let stream = TcpStream::connect(&addresses[..]).await.map_err(|error| classify_io(&error))?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

fn classify(error: &hyper::Error) -> CallError {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return CallError::ConnectionClosed;
    }
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .map_or(CallError::Protocol, classify_io)
}

/// Classifies an I/O error.
pub(super) fn classify_io(error: &std::io::Error) -> CallError {
    use std::io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionRefused => CallError::ConnectionRefused,
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe
        | Kind::UnexpectedEof
        | Kind::NotConnected => CallError::ConnectionClosed,
        Kind::TimedOut => CallError::TimedOut,
        Kind::InvalidData => CallError::Protocol,
        _ => CallError::Unreachable,
    }
}
