//! `smc-lab fetch`: an HTTP client that reports every request as JSON.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{duration, grpc};
use crate::lab::{FetchResult, LabError};

/// An answer's body that is kept for the report.
const MAX_BODY_BYTES: usize = 16 << 20;
/// So that a mistyped count does not fill the memory with results.
const MAX_COUNT: u32 = 1_000_000;

/// Flags of `smc-lab fetch`.
#[derive(Args, Clone, Debug)]
pub struct FetchArgs {
    /// What to fetch: http://HOST[:PORT]/PATH.
    #[arg(long)]
    url: Uri,
    /// The method; POST for gRPC.
    #[arg(long)]
    method: Option<String>,
    /// A header, `name: value` (repeatable). `host` also sets HTTP/2's authority.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The request's body, or with --grpc its message.
    #[arg(long, default_value = "")]
    body: String,
    /// How many requests, one after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COUNT)))]
    count: u32,
    /// Pause between requests: 20ms, 1s.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    interval: Duration,
    /// Speak HTTP/2 with prior knowledge.
    #[arg(long)]
    http2: bool,
    /// Make a unary gRPC call: HTTP/2, POST, one framed message.
    #[arg(long)]
    grpc: bool,
    /// Send all requests over one connection, as long as it lasts; otherwise each has its own.
    #[arg(long)]
    keep_alive: bool,
    /// Longest wait for each whole answer.
    #[arg(long, default_value = "5s", value_parser = duration)]
    timeout: Duration,
}

/// Makes the requests. A request that fails is a result with an error; only what can't be asked at all is an error.
pub async fn fetch(args: &FetchArgs) -> Result<Vec<FetchResult>, LabError> {
    let invalid = |text: String| LabError::Invalid { what: "request", text };
    let authority = args.url.authority().ok_or_else(|| invalid(format!("{}: no host", args.url)))?.clone();
    if args.url.scheme_str() != Some("http") {
        return Err(invalid(format!("{}: only http:// is known", args.url)));
    }
    let address = (authority.host().trim_matches(['[', ']']).to_owned(), authority.port_u16().unwrap_or(80));
    let http2 = args.http2 || args.grpc;
    let template = request(args, http2).map_err(invalid)?;
    let mut client = Client { address, http2, connection: None, connections: 0 };
    let mut results = Vec::new();
    for number in 0..args.count {
        if number > 0 {
            tokio::time::sleep(args.interval).await;
        }
        let started = Instant::now();
        let mut result =
            match tokio::time::timeout(args.timeout, client.send(template.clone(), args.grpc)).await {
                Ok(Ok(result)) => result,
                Ok(Err(error)) => FetchResult { error: Some(chain(&error)), ..FetchResult::default() },
                Err(_) => FetchResult { error: Some("timeout".to_owned()), ..FetchResult::default() },
            };
        result.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        result.connection = client.connections;
        if result.error.is_some() || !args.keep_alive {
            client.connection = None;
        }
        results.push(result);
    }
    Ok(results)
}

fn request(args: &FetchArgs, http2: bool) -> Result<Request<Full<Bytes>>, String> {
    let mut host = args.url.authority().map(ToString::to_string).unwrap_or_default();
    let default_method = if args.grpc { "POST" } else { "GET" };
    let mut builder = Request::builder().method(args.method.as_deref().unwrap_or(default_method));
    for header in &args.headers {
        let (name, value) =
            header.split_once(':').ok_or_else(|| format!("header `{header}` has no colon"))?;
        if name.eq_ignore_ascii_case("host") {
            value.trim().clone_into(&mut host);
        } else {
            builder = builder.header(name.trim(), value.trim());
        }
    }
    if args.grpc {
        builder = builder.header("content-type", "application/grpc").header("te", "trailers");
    }
    let path = args.url.path_and_query().map_or("/", |path| path.as_str());
    let builder = if http2 {
        builder.uri(format!("http://{host}{path}"))
    } else {
        builder.header("host", &host).uri(path)
    };
    let body = if args.grpc { grpc::frame(args.body.as_bytes()) } else { Bytes::from(args.body.clone()) };
    builder.body(Full::new(body)).map_err(|error| error.to_string())
}

struct Client {
    address: (String, u16),
    http2: bool,
    connection: Option<Connection>,
    connections: u64,
}

struct Connection {
    sender: Sender,
    /// Drives the connection.
    _driver: AbortOnDropHandle<()>,
}

enum Sender {
    Http1(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Http2(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

impl Client {
    async fn send(&mut self, request: Request<Full<Bytes>>, grpc: bool) -> io::Result<FetchResult> {
        let usable = match self.connection.as_mut().map(|connection| &mut connection.sender) {
            Some(Sender::Http1(sender)) => sender.ready().await.is_ok(),
            Some(Sender::Http2(sender)) => sender.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            self.connection = None;
        }
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => {
                self.connections += 1;
                empty.insert(connect(&self.address, self.http2).await?)
            }
        };
        let response = match &mut connection.sender {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => sender.send_request(request).await,
        };
        read(response.map_err(io::Error::other)?, grpc).await
    }
}

async fn connect((host, port): &(String, u16), http2: bool) -> io::Result<Connection> {
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    stream.set_nodelay(true)?;
    let io = TokioIo::new(stream);
    // How a connection ends is told by the requests on it.
    let (sender, driver) = if http2 {
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
            .await
            .map_err(io::Error::other)?;
        (Sender::Http2(sender), tokio::spawn(async move { drop(connection.await) }))
    } else {
        let (sender, connection) =
            hyper::client::conn::http1::handshake(io).await.map_err(io::Error::other)?;
        (Sender::Http1(sender), tokio::spawn(async move { drop(connection.await) }))
    };
    Ok(Connection { sender, _driver: AbortOnDropHandle::new(driver) })
}

async fn read(response: Response<Incoming>, grpc: bool) -> io::Result<FetchResult> {
    let text = |headers: &hyper::HeaderMap| {
        headers
            .iter()
            .map(|(name, value)| {
                (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect()
    };
    let mut result = FetchResult {
        status: Some(response.status().as_u16()),
        headers: text(response.headers()),
        ..FetchResult::default()
    };
    match Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await {
        Ok(collected) => {
            if let Some(trailers) = collected.trailers() {
                result.trailers = text(trailers);
            }
            let body = collected.to_bytes();
            let message = if grpc { grpc::first_message(&body).unwrap_or_default() } else { &body };
            if !message.is_empty() {
                result.body = serde_json::from_slice(message)
                    .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(message).into_owned()));
            }
        }
        Err(error) => result.error = Some(format!("the body broke off: {error}")),
    }
    Ok(result)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
