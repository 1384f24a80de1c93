//! Owns `smc-lab fetch`: an HTTP client that reports every request as JSON.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use smc_types::causes::causes;
use smc_types::duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::grpc;
use crate::{Failure, FetchResult, LabError};

/// Limit of a response body that goes into the report.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Limit of --count, so that a mistyped number does not fill the memory with results.
const MAX_COUNT: u32 = 1_000_000;

/// What one request is, and how long it may take.
#[derive(Args, Clone, Debug)]
pub struct RequestArgs {
    /// The URL: http://HOST[:PORT]/PATH. For `load` also tcp://HOST:PORT: lines, each answered by a line.
    #[arg(long)]
    pub(super) url: Uri,
    /// The HTTP method; by default GET, or POST with --grpc.
    #[arg(long)]
    method: Option<String>,
    /// A header, `name: value` (repeatable). `host` also sets HTTP/2's authority.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The request's body, or with --grpc its message.
    #[arg(long, default_value = "")]
    pub(super) body: String,
    /// Use HTTP/2 with prior knowledge.
    #[arg(long)]
    http2: bool,
    /// Make a unary gRPC call: HTTP/2, POST, one framed message.
    #[arg(long)]
    grpc: bool,
    /// Time limit of each request, until the whole response has arrived.
    #[arg(long, default_value = "5s", value_parser = duration::parse)]
    pub(super) timeout: Duration,
}

/// Flags of `smc-lab fetch`.
#[derive(Args, Clone, Debug)]
pub struct FetchArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Number of requests, sent one after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COUNT)))]
    count: u32,
    /// Pause between requests: 20ms, 1s.
    #[arg(long, default_value = "0ms", value_parser = duration::parse)]
    interval: Duration,
    /// Send all requests over one connection, as long as it lasts; by default each has its own.
    #[arg(long)]
    keep_alive: bool,
    /// Print each result when it arrives, on a line of its own, instead of one array at the end.
    #[arg(long)]
    pub lines: bool,
}

/// Sends the requests, and reports each result. A failed request is a result with an error; only
/// invalid arguments are an `Err`.
pub async fn fetch(args: &FetchArgs, mut report: impl FnMut(FetchResult)) -> Result<(), LabError> {
    let mut client = Client::new(&args.request)?;
    for number in 0..args.count {
        if number > 0 {
            tokio::time::sleep(args.interval).await;
        }
        let result = client.fetch().await;
        if !args.keep_alive {
            client.connection = None;
        }
        report(result);
    }
    Ok(())
}

fn request(args: &RequestArgs, http2: bool) -> Result<Request<Full<Bytes>>, String> {
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

/// A client that sends the same request again and again, over one connection as long as it lasts.
pub(super) struct Client {
    address: (String, u16),
    http2: bool,
    grpc: bool,
    timeout: Duration,
    template: Request<Full<Bytes>>,
    connection: Option<Connection>,
    connections: u64,
    /// What the request waits for. An error by time names it: a lost packet of the name server, which only
    /// the client's resolver sends again, is not a sidecar that does not answer.
    awaited: &'static str,
}

struct Connection {
    sender: Sender,
    /// The task that drives the connection.
    _driver: AbortOnDropHandle<()>,
}

enum Sender {
    Http1(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Http2(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

impl Client {
    pub(super) fn new(args: &RequestArgs) -> Result<Self, LabError> {
        let invalid = |text: String| LabError::Invalid { what: "request", text };
        let authority = args.url.authority().ok_or_else(|| invalid(format!("{}: no host", args.url)))?;
        if args.url.scheme_str() != Some("http") {
            return Err(invalid(format!("{}: only http:// is known", args.url)));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let http2 = args.http2 || args.grpc;
        Ok(Self {
            address: (host, authority.port_u16().unwrap_or(80)),
            http2,
            grpc: args.grpc,
            timeout: args.timeout,
            template: request(args, http2).map_err(invalid)?,
            connection: None,
            connections: 0,
            awaited: "",
        })
    }

    /// Sends the request. A connection on which it failed is not used again.
    pub(super) async fn fetch(&mut self) -> FetchResult {
        let started = Instant::now();
        let sent = tokio::time::timeout(self.timeout, self.send()).await;
        let late =
            |_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("timeout: waited for {}", self.awaited)));
        let mut result = sent.unwrap_or_else(late).unwrap_or_else(|error| FetchResult {
            failure: Some(Failure::of(&error)),
            error: Some(causes(&error)),
            ..FetchResult::default()
        });
        result.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        result.connection = self.connections;
        if result.error.is_some() {
            self.connection = None;
        }
        result
    }

    async fn send(&mut self) -> io::Result<FetchResult> {
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
                let (host, port) = &self.address;
                self.awaited = "the name's address";
                let addresses = super::resolve((host.as_str(), *port)).await?;
                self.awaited = "the connection";
                empty.insert(connect(&addresses, self.http2).await?)
            }
        };
        self.awaited = "the response";
        let request = self.template.clone();
        let response = match &mut connection.sender {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => sender.send_request(request).await,
        };
        read(response.map_err(broken)?, self.grpc).await
    }
}

/// Converts hyper's error, with the `ErrorKind` of its cause.
fn broken(error: hyper::Error) -> io::Error {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return io::Error::new(io::ErrorKind::UnexpectedEof, error);
    }
    let mut source = std::error::Error::source(&error);
    let mut kind = io::ErrorKind::Other;
    while let Some(cause) = source {
        if let Some(system) = cause.downcast_ref::<io::Error>() {
            kind = system.kind();
        }
        source = cause.source();
    }
    io::Error::new(kind, error)
}

async fn connect(addresses: &[SocketAddr], http2: bool) -> io::Result<Connection> {
    let stream = TcpStream::connect(addresses).await?;
    stream.set_nodelay(true)?;
    let io = TokioIo::new(stream);
    // The requests on a connection report how it ended.
    let (sender, driver) = if http2 {
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.map_err(broken)?;
        (Sender::Http2(sender), tokio::spawn(async move { drop(connection.await) }))
    } else {
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(broken)?;
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
        Err(error) => {
            result.error = Some(format!("the body was interrupted: {error}"));
            // A body beyond the limit has no hyper error.
            let hyper = error.downcast::<hyper::Error>().map(|error| broken(*error));
            result.failure = Some(hyper.map_or(Failure::Other, |error| Failure::of(&error)));
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use smc_testkit::held_port::HeldPort;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: FetchArgs,
    }

    /// The result of one request to a server that handles its only connection with `serve`.
    async fn fetched<F>(flags: &[&str], serve: impl FnOnce(TcpStream) -> F) -> FetchResult
    where
        F: Future<Output = ()>,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = async { serve(listener.accept().await.unwrap().0).await };
        let (result, ()) = tokio::join!(asked(&url, flags), server);
        result
    }

    async fn asked(url: &str, flags: &[&str]) -> FetchResult {
        let argv = [&["fetch", "--url", url], flags].concat();
        let args = Cli::try_parse_from(argv).unwrap().args;
        let mut results = Vec::new();
        fetch(&args, |result| results.push(result)).await.unwrap();
        results.remove(0)
    }

    #[tokio::test]
    async fn closed_missing_and_slow_servers_are_distinguished() {
        let read = async |stream: &mut TcpStream| stream.read(&mut [0; 1024]).await.unwrap();
        for flags in [&[][..], &["--http2"]] {
            let closed = fetched(flags, async |stream| drop(stream)).await;
            assert_eq!((closed.status, closed.failure), (None, Some(Failure::Closed)), "{closed:?}");
            let heard = fetched(flags, async |mut stream| assert!(read(&mut stream).await > 0)).await;
            assert_eq!((heard.status, heard.failure), (None, Some(Failure::Closed)), "{heard:?}");
            let reset = fetched(flags, async |stream| stream.set_zero_linger().unwrap()).await;
            assert_eq!((reset.status, reset.failure), (None, Some(Failure::Closed)), "{reset:?}");
        }
        let half = fetched(&[], async |mut stream| {
            read(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
        })
        .await;
        assert_eq!((half.status, half.failure), (Some(200), Some(Failure::Closed)), "{half:?}");
        let silent =
            fetched(&["--timeout", "100ms"], async |mut stream| while read(&mut stream).await > 0 {}).await;
        assert_eq!((silent.status, silent.failure), (None, Some(Failure::Timeout)), "{silent:?}");
        assert_eq!(silent.error.as_deref(), Some("timeout: waited for the response"));
        let away = HeldPort::loopback();
        let refused = asked(&format!("http://{}/", away.address), &[]).await;
        assert_eq!((refused.status, refused.failure), (None, Some(Failure::Refused)), "{refused:?}");
        // The label is longer than DNS allows, so that no name server is asked.
        let unresolved = asked(&format!("http://{}/", "x".repeat(64)), &[]).await;
        assert_eq!(
            (unresolved.status, unresolved.failure),
            (None, Some(Failure::Unresolved)),
            "{unresolved:?}"
        );
    }
}
