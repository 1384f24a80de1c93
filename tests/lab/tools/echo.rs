//! Owns `smc-lab echo`: servers that answer with the request as it arrived.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Request, Response, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::crypto::ring;
use serde_json::{Value, json};
use smc_xds::names::NOT_PROCESSED_HEADER;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::{authorization, grpc, log_records};
use crate::LabError;

/// Concurrent connections of one server.
const MAX_CONNECTIONS: usize = 4096;
/// Limits of an HTTP request's body and of a TCP line.
const MAX_BODY_BYTES: usize = 1 << 20;
const MAX_LINE_BYTES: u64 = 64 << 10;
/// Limits of an HTTP request's header, above those of sidecars.
const MAX_HEADER_LINES: usize = 2000;
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// Longest wait of `/delay/MS`, and longest body of `/stream/MS`.
const MAX_DELAY: Duration = Duration::from_mins(1);
/// The pause between the parts of such a body.
const STREAM_PAUSE: Duration = Duration::from_millis(100);

/// Where sidecars send spans of traces, in Zipkin's JSON.
const SPANS: &str = "/api/v2/spans";

/// The method that gRPC probes call, and the answer of a server that is healthy: field 1, the value
/// SERVING.
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const SERVING: [u8; 2] = [0x08, 0x01];

/// Flags of `smc-lab echo`. Every flag may be repeated.
#[derive(Args, Clone, Debug)]
pub struct EchoArgs {
    /// Serve HTTP/1.1 and HTTP/2 (prior knowledge) on this port. `/status/CODE` answers with that
    /// status, `/delay/MS` after that delay, `/stream/MS` with a body that goes on for so long,
    /// `/abort` not at all: the connection is closed; `/ok` with three bytes; `/not-processed` with 503
    /// and the header by which sidecars say that; `/via/AUTHORITY/PATH` with what a GET of
    /// http://AUTHORITY/PATH is answered with, or 502. `/api/v2/spans` takes spans as Zipkin does, and
    /// prints each on standard output. Every other path with 200.
    #[arg(long, value_name = "PORT")]
    http: Vec<u16>,
    /// Same as --http. Every HTTP port answers requests with content type application/grpc as gRPC,
    /// those of a gRPC probe as a healthy server does, and those of a sidecar that asks whether a request
    /// may pass by that request's header `x-ext-authz`: `allow`. Records of logs it takes as a collector of
    /// OpenTelemetry does, and prints each on standard output.
    #[arg(long, value_name = "PORT")]
    grpc: Vec<u16>,
    /// Same as --http over TLS, with a self-signed certificate.
    #[arg(long, value_name = "PORT")]
    https: Vec<u16>,
    /// Serve TCP: answer each line with a line of JSON. Prints each accepted connection on standard
    /// output.
    #[arg(long, value_name = "PORT")]
    tcp: Vec<u16>,
    /// Same as --tcp, but send a line of JSON first.
    #[arg(long, value_name = "PORT")]
    tcp_server_first: Vec<u16>,
    /// Listen on this address only; by default on all.
    #[arg(long, value_name = "IP")]
    bind: Option<IpAddr>,
    /// The name to report: the Pod's.
    #[arg(long, env = "HOSTNAME", default_value = "")]
    name: String,
}

#[derive(Clone)]
enum Kind {
    Http,
    Https(TlsAcceptor),
    Tcp { greet: bool },
}

/// Serves until SIGTERM. Then it takes no more connections, finishes the HTTP requests under way, and
/// returns.
pub async fn echo(args: EchoArgs) -> Result<(), LabError> {
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| LabError::Refused(format!("smc-lab echo: can't listen for signals: {error}")))?;
    let ending = CancellationToken::new();
    let EchoArgs { http, grpc, https, tcp, tcp_server_first, bind, name } = args;
    let mut servers = JoinSet::new();
    let ports = |ports: Vec<u16>, kind: Kind| ports.into_iter().map(move |port| (port, kind.clone()));
    let tls = tls_acceptor()
        .map_err(|error| LabError::Refused(format!("smc-lab echo: can't make a certificate: {error}")))?;
    let all = ports(http, Kind::Http)
        .chain(ports(grpc, Kind::Http))
        .chain(ports(https, Kind::Https(tls)))
        .chain(ports(tcp, Kind::Tcp { greet: false }))
        .chain(ports(tcp_server_first, Kind::Tcp { greet: true }));
    for (port, kind) in all {
        let listener = listen(bind, port).await.map_err(|error| LabError::Command {
            command: "smc-lab echo".to_owned(),
            problem: format!("can't listen on port {port}: {error}"),
        })?;
        servers.spawn(serve(listener, port, kind, name.clone(), ending.clone()));
    }
    if servers.is_empty() {
        return Err(LabError::Refused("smc-lab echo: no port to listen on".to_owned()));
    }
    terminate.recv().await;
    ending.cancel();
    while servers.join_next().await.is_some() {}
    Ok(())
}

/// Listens on one address, or on all of both families, or of IPv4 alone on a machine without IPv6.
async fn listen(address: Option<IpAddr>, port: u16) -> io::Result<TcpListener> {
    if let Some(address) = address {
        return TcpListener::bind((address, port)).await;
    }
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        bound => bound,
    }
}

async fn serve(listener: TcpListener, port: u16, kind: Kind, name: String, ending: CancellationToken) {
    let mut connections = JoinSet::new();
    let requests = Arc::new(AtomicU64::new(0));
    let client = Client::builder(TokioExecutor::new()).build_http();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let Ok((stream, peer)) = accepted else { continue };
                // Nagle's algorithm and delayed acknowledgements make 40 ms of a small answer in HTTP/2.
                if stream.set_nodelay(true).is_err() {
                    continue;
                }
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                let (requests, client) = (Arc::clone(&requests), client.clone());
                let identity = Identity { name: name.clone(), port, peer, requests, client };
                let (kind, ending) = (kind.clone(), ending.clone());
                connections.spawn(async move {
                    // A broken connection is reported by its client.
                    match kind {
                        Kind::Http => serve_http(stream, identity, ending).await,
                        Kind::Https(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve_http(stream, identity, ending).await;
                            }
                        }
                        // Without requests there is nothing to finish.
                        Kind::Tcp { greet } => drop(ending.run_until_cancelled(serve_tcp(stream, identity, greet)).await),
                    }
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = ending.cancelled() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

#[derive(Clone, Debug)]
struct Identity {
    name: String,
    port: u16,
    peer: SocketAddr,
    /// HTTP requests on this port so far.
    requests: Arc<AtomicU64>,
    /// What asks others.
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Identity {
    fn json(&self) -> Value {
        json!({ "pod": self.name, "port": self.port, "peer": self.peer.to_string() })
    }
}

/// TLS with a self-signed certificate.
#[expect(clippy::disallowed_methods, reason = "the key of a self-signed certificate")]
fn tls_acceptor() -> Result<TlsAcceptor, Box<dyn std::error::Error + Send + Sync>> {
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(["echo".to_owned()])?.self_signed(&key)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.into()], key.into())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    identity: Identity,
    ending: CancellationToken,
) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let identity = identity.clone();
        async move {
            let abort = request.uri().path() == "/abort";
            let response = answer(request, &identity).await;
            if abort { Err(io::Error::from(io::ErrorKind::ConnectionAborted)) } else { Ok(response) }
        }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().max_headers(MAX_HEADER_LINES);
    builder.http2().max_header_list_size(MAX_HEADER_BYTES);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        () = ending.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn answer(request: Request<Incoming>, identity: &Identity) -> Response<BoxBody<Bytes, Infallible>> {
    if request.uri().path() == "/ok" {
        return Response::new(Full::new(Bytes::from_static(b"ok\n")).boxed());
    }
    if let Some(target) = request.uri().path().strip_prefix("/via/") {
        return passed_on(&identity.client, target).await;
    }
    let (head, body) = request.into_parts();
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        headers
            .entry(name.as_str().to_owned())
            .and_modify(|values| *values = format!("{values}, {value}"))
            .or_insert_with(|| value.into_owned());
    }
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map(http_body_util::Collected::to_bytes);
    let body = body.unwrap_or_default();
    let is_grpc = headers.get("content-type").is_some_and(|kind| kind.starts_with("application/grpc"));
    let message = if is_grpc { grpc::first_message(&body).unwrap_or_default() } else { &body };
    let mut answer = identity.json();
    answer["request"] = json!(identity.requests.fetch_add(1, Ordering::Relaxed) + 1);
    answer["method"] = json!(head.method.as_str());
    answer["path"] = json!(head.uri.path_and_query().map_or("/", |path| path.as_str()));
    answer["authority"] =
        json!(head.uri.authority().map(ToString::to_string).or(headers.get("host").cloned()));
    answer["protocol"] = json!(if head.version == Version::HTTP_2 { "HTTP/2" } else { "HTTP/1.1" });
    answer["headers"] = json!(headers);
    answer["body"] = json!(String::from_utf8_lossy(message));
    let path = head.uri.path();
    if path == SPANS {
        return spans(&body);
    }
    if let Some(millis) = path.strip_prefix("/delay/").and_then(|text| text.parse().ok()) {
        tokio::time::sleep(Duration::from_millis(millis).min(MAX_DELAY)).await;
    }
    if is_grpc {
        let answer = match path {
            HEALTH_CHECK => SERVING.to_vec(),
            authorization::CHECK => authorization::answer(message),
            log_records::EXPORT => {
                print_lines(&log_records::lines(message).unwrap_or_default());
                Vec::new()
            }
            _ => answer.to_string().into_bytes(),
        };
        return grpc_response(&answer);
    }
    if let Some(millis) = path.strip_prefix("/stream/").and_then(|text| text.parse().ok()) {
        return streamed(Duration::from_millis(millis).min(MAX_DELAY));
    }
    let not_processed = path == "/not-processed";
    let status = path.strip_prefix("/status/").and_then(|text| text.parse::<u16>().ok());
    let status = status.or(not_processed.then_some(503));
    let status = status.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::OK);
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())).boxed());
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    if not_processed {
        let name = http::HeaderName::from_static(NOT_PROCESSED_HEADER);
        response.headers_mut().insert(name, http::HeaderValue::from_static("true"));
    }
    response
}

/// Prints spans, each on a line of its own.
fn spans(body: &[u8]) -> Response<BoxBody<Bytes, Infallible>> {
    let spans: Option<Vec<Value>> = serde_json::from_slice(body).ok();
    let mut response = Response::new(Full::default().boxed());
    *response.status_mut() = if spans.is_some() { StatusCode::ACCEPTED } else { StatusCode::BAD_REQUEST };
    let lines: String = spans.iter().flatten().flat_map(|span| [span.to_string(), "\n".to_owned()]).collect();
    print_lines(&lines);
    response
}

/// Prints what a collector takes. Without a reader of the output, it is lost.
fn print_lines(lines: &str) {
    let _ = io::stdout().lock().write_all(lines.as_bytes());
}

/// What another server answers to a GET of `AUTHORITY/PATH`.
async fn passed_on(
    client: &Client<HttpConnector, Empty<Bytes>>,
    target: &str,
) -> Response<BoxBody<Bytes, Infallible>> {
    let answer = async {
        let uri = format!("http://{target}").parse().ok()?;
        let (head, body) = client.get(uri).await.ok()?.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await.ok()?.to_bytes();
        let mut response = Response::new(Full::new(body).boxed());
        *response.status_mut() = head.status;
        Some(response)
    };
    answer.await.unwrap_or_else(|| {
        let mut response = Response::new(Full::default().boxed());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    })
}

/// A body of one line after another.
fn streamed(length: Duration) -> Response<BoxBody<Bytes, Infallible>> {
    let lines = length.as_millis() / STREAM_PAUSE.as_millis();
    let (sender, parts) = mpsc::channel(1);
    // It ends with the body, at the latest when the client has gone.
    tokio::spawn(async move {
        for line in 0..lines {
            tokio::time::sleep(STREAM_PAUSE).await;
            let part = Frame::data(Bytes::from(format!("{line}\n")));
            if sender.send(Ok::<_, Infallible>(part)).await.is_err() {
                return;
            }
        }
    });
    Response::new(BodyExt::boxed(StreamBody::new(ReceiverStream::new(parts))))
}

/// A unary gRPC response: one message, then the status in the trailers.
fn grpc_response(message: &[u8]) -> Response<BoxBody<Bytes, Infallible>> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let frames = [Frame::data(grpc::frame(message)), Frame::trailers(trailers)];
    let body = StreamBody::new(tokio_stream::iter(frames.map(Ok::<_, Infallible>)));
    let mut response = Response::new(BodyExt::boxed(body));
    let grpc = http::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
    response
}

async fn serve_tcp(stream: TcpStream, identity: Identity, greet: bool) -> io::Result<()> {
    // A failed write to the log must not stop the server.
    let _ = writeln!(io::stdout().lock(), "accepted {}", identity.json());
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    if greet {
        let mut greeting = identity.json();
        greeting["greeting"] = json!("hello");
        writer.write_all(format!("{greeting}\n").as_bytes()).await?;
    }
    loop {
        let mut line = Vec::new();
        if (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let mut answer = identity.json();
        answer["received"] = json!(String::from_utf8_lossy(&line).trim_end());
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
    }
}
