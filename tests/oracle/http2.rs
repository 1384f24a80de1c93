//! Requests over HTTP/2, with prior knowledge, inside of mutual TLS or without.
//!
//! Owns how a [`Request`] becomes one of hyper's, which sends every line as it is: white space around a
//! value, a host beside the authority, or none of them.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use smc_policy::{AUTHORITY, Request, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use crate::client::{Answer, Dial, PATIENCE};

type Body = BoxBody<Bytes, Infallible>;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Asks one request after the other on one connection, until an answer does not come.
pub(crate) fn converse(dial: &Dial<'_>, requests: &[&Request], answers: &mut Vec<Answer>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut sender = connect(dial).await?;
        for request in requests {
            let answer = tokio::time::timeout(PATIENCE, ask(&mut sender, request)).await;
            answers.push(answer.map_err(|_| io::ErrorKind::TimedOut)?.map_err(io::Error::other)?);
        }
        Ok(())
    })
}

/// Whether a request without any oddity gets an answer. If so, one that got none was malformed.
pub(crate) fn answers(dial: &Dial<'_>) -> bool {
    let plain = Request {
        version: Version::Http2,
        method: "GET".to_owned(),
        target: "/".to_owned(),
        headers: vec![(AUTHORITY.to_owned(), b"a".to_vec())],
        trailers: Vec::new(),
    };
    converse(dial, &[&plain], &mut Vec::new()).is_ok()
}

async fn connect(dial: &Dial<'_>) -> io::Result<SendRequest<Body>> {
    let socket = dial.intercepted(PATIENCE)?;
    socket.set_nonblocking(true)?;
    let socket = UnixStream::from_std(socket)?;
    let stream: Box<dyn Stream> = match &dial.tls {
        None => Box::new(socket),
        Some(config) => {
            let mut config = rustls::ClientConfig::clone(config);
            config.alpn_protocols = vec![b"h2".to_vec()];
            Box::new(TlsConnector::from(Arc::new(config)).connect(dial.server_name(), socket).await?)
        }
    };
    let (sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the runtime. What goes wrong on it, the request says, too.
    tokio::spawn(connection);
    Ok(sender)
}

async fn ask(sender: &mut SendRequest<Body>, request: &Request) -> hyper::Result<Answer> {
    sender.ready().await?;
    let response = sender.send_request(sent(request)).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(Answer::Response(status, String::from_utf8_lossy(&body).into_owned()))
}

fn sent(request: &Request) -> http::Request<Body> {
    let authority = request.headers.iter().find(|(name, _)| name == AUTHORITY);
    let authority = authority.map(|(_, value)| Authority::try_from(&**value).expect("an authority"));
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(PathAndQuery::try_from(&*request.target).expect("a path"));
    parts.scheme = authority.is_some().then_some(Scheme::HTTP);
    parts.authority = authority;
    // hyper sends no authority with a request of HTTP/1.1 that it passes on.
    let version = if parts.authority.is_some() { http::Version::HTTP_2 } else { http::Version::HTTP_11 };
    let trailers = fields(&request.trailers);
    let body = if trailers.is_empty() {
        Empty::new().boxed()
    } else {
        Empty::new().with_trailers(std::future::ready(Some(Ok(trailers)))).boxed()
    };
    let mut sent = http::Request::new(body);
    *sent.version_mut() = version;
    *sent.method_mut() = request.method.parse().expect("a method");
    *sent.uri_mut() = Uri::from_parts(parts).expect("path and authority are apart");
    *sent.headers_mut() = fields(&request.headers);
    sent
}

/// The lines that are no pseudo-header.
fn fields(lines: &[(String, Vec<u8>)]) -> HeaderMap {
    let lines = lines.iter().filter(|(name, _)| name != AUTHORITY);
    let fields = lines.map(|(name, value)| {
        (name.parse::<HeaderName>().expect("a name"), HeaderValue::from_bytes(value).expect("a value"))
    });
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(name, value);
    }
    map
}
