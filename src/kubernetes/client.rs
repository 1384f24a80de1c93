//! The client of the API server: where it is, who the replica is there, and how long anything may
//! take.
//!
//! Owns the configuration (the pod's service account, or a kubeconfig), the limits of time, and
//! what is spoken: HTTP/2, so that all watches share one connection. A request without a limit
//! would wait for ever for an API server that hangs without closing its connections.
//!
//! Does not upgrade to WebSockets, which an API server does over HTTP/1.1 only. The command line,
//! which runs programs in pods, has a client for that (`kubeconfig.rs`).

mod dial;
mod pace;
mod spoken;
#[cfg(test)]
pub(crate) mod stand_in;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::middleware::{AuthLayer, ExtraHeadersLayer};
use kube::client::{Body, ClientBuilder, ConfigExt, RustlsTlsError};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use thiserror::Error;
use tower::util::{MapFutureLayer, MapResponseLayer};
use tower::{BoxError, Layer, Service, ServiceBuilder};

use self::dial::Dial;
use self::pace::Paced;
pub use self::spoken::Protocol;
use self::spoken::Spoken;

/// How long a connection may take to be made, TLS included. The API server is in the same cluster.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long the head of a response may take. The API server itself gives up on a request after a
/// minute, and on the webhooks of a write after 30 seconds at most.
const RESPONSE_LIMIT: Duration = Duration::from_secs(65);

/// How long a response may pause, and an HTTP/1.1 connection be silent. A watch has a bookmark
/// every minute; what reads a watch notices silence sooner. Pooled HTTP/1.1 connections without a
/// request end after it, too.
const READ_LIMIT: Duration = Duration::from_mins(5);

/// How long a write to a connection may take.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// How long an HTTP/2 connection may be silent before it is asked for a sign of life, and how long
/// that may take. A connection that the network lost without a word carries every watch, and is
/// noticed within the sum: 25 seconds. An API server that is alive answers in milliseconds; ten
/// seconds allow for one that is overloaded.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_LIMIT: Duration = Duration::from_secs(10);

/// How many bytes of one response may wait in memory to be read. A list arrives with this much in
/// each round trip, which is less than a millisecond within a cluster.
const STREAM_WINDOW: u32 = 256 << 10;

/// How many responses may stand unread at the same time: a reader of a watch may leave it alone on
/// purpose, while it reads another one to its end. There are 17 kinds.
const UNREAD_STREAMS: u32 = 32;

/// How many bytes of all responses of a connection may wait to be read. What is unread counts here
/// until it is read, so responses that stand unread would bring all others to a halt if they could
/// use this up. They use up half of it at most. It is a bound of memory, too: 16 MiB.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * UNREAD_STREAMS * 2;

/// There is no usable configuration of the API server.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The replica is in no cluster, and no kubeconfig was named.
    #[error("no kubeconfig is named, and this is not a pod with a service account")]
    NotInCluster(#[source] Box<kube::config::InClusterError>),
    /// A kubeconfig cannot be read.
    #[error("cannot read the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The credentials cannot be used.
    #[error("cannot use the configuration of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// A client of the API server that the kubeconfig names, else of the cluster that this process is a
/// pod of. `kubeconfig` is one path or several, as the variable KUBECONFIG has them. Does not
/// connect yet: the first request does. Requests are not repeated; the caller knows whether and
/// when to try again.
///
/// All requests share one connection where the API server speaks HTTP/2 over TLS, as every one does by
/// default. More than it allows on a connection (100) wait until others end. Without HTTP/2, or where
/// a proxy stands between, each has a connection to itself.
pub async fn connect(kubeconfig: Option<&OsString>) -> Result<Client, ConnectError> {
    let config = match kubeconfig {
        Some(paths) => from_files(std::env::split_paths(paths)).await?,
        None => Config::incluster().map_err(|error| ConnectError::NotInCluster(error.into()))?,
    };
    let client = if config.proxy_url.is_some() { by_proxy(config) } else { directly(&config) };
    client.map_err(|error| ConnectError::Client(error.into()))
}

/// The client of [`connect`] over connections that `connector` makes, which speak `protocol`
/// without TLS. For an API server that is a model in memory, or stands in a simulated network. To
/// be called within a runtime.
pub fn over<C>(connector: C, protocol: Protocol) -> Client
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    let connector = MapResponseLayer::new(move |stream| Spoken::new(stream, protocol)).layer(connector);
    // The name is not looked up; the connector knows where its server is.
    let config = Config::new(Uri::from_static("http://kubernetes.default.svc"));
    stack(&config, None, None, connector)
}

/// A client of the API server of `config`, without a proxy.
fn directly(config: &Config) -> Result<Client, kube::Error> {
    let mut tcp = HttpConnector::new();
    // The next layer knows what to do with `https`.
    tcp.enforce_http(false);
    // A request on a connection that others use, too, would else wait for the other side's
    // acknowledgement of what went before.
    tcp.set_nodelay(true);
    let mut builder =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone());
        let name = name.map_err(|error| kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(error)))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connector = builder.enable_http1().enable_http2().wrap_connector(tcp);
    Ok(stack(config, config.auth_layer()?, Some(config.extra_headers_layer()?), connector))
}

/// kube's own client, which knows proxies where it is built with them, and HTTP/1.1 only.
fn by_proxy(mut config: Config) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(CONNECT_LIMIT);
    config.read_timeout = Some(READ_LIMIT);
    config.reset_reader_on_write = true;
    config.write_timeout = Some(WRITE_LIMIT);
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?.with_layer(&MapFutureLayer::new(limited)).build())
}

/// kube's layers in kube's order, over connections that `connector` makes. Without two of them:
/// requests are not repeated, and kube's trace would log each failure as an error, which the
/// callers report already, as what it means to them.
fn stack<C>(
    config: &Config,
    auth: Option<AuthLayer>,
    headers: Option<ExtraHeadersLayer>,
    connector: C,
) -> Client
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    let service = ServiceBuilder::new()
        .map_future(limited)
        .layer(config.base_uri_layer())
        .option_layer(auth)
        .option_layer(headers)
        .map_response(|response: Response<Incoming>| response.map(|body| Paced::new(body, READ_LIMIT)))
        .map_err(BoxError::from)
        .service(http_client(connector));
    Client::new(service, config.default_namespace.clone())
}

/// The pool of connections that `connector` makes.
fn http_client<C>(connector: C) -> HttpClient<TimeoutConnector<Dial<C>>, Body>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    let mut connector = TimeoutConnector::new(Dial::new(connector));
    connector.set_connect_timeout(Some(CONNECT_LIMIT));
    connector.set_read_timeout(Some(READ_LIMIT));
    connector.set_reset_reader_on_write(true);
    connector.set_write_timeout(Some(WRITE_LIMIT));
    HttpClient::builder(TokioExecutor::new())
        // A connection is idle to the pool when no request began for a while, though it carries all
        // the watches. Pings, or the limit of reading, end what is lost.
        .pool_idle_timeout(None)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_LIMIT)
        // The next request would else be sent to a connection that was lost meanwhile.
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(connector)
}

/// Reads kubeconfigs and merges them; of two values, the first counts.
async fn from_files(paths: impl Iterator<Item = PathBuf>) -> Result<Config, ConnectError> {
    let mut merged = Kubeconfig::default();
    let mut last = PathBuf::new();
    let failed =
        |path: &Path, source| ConnectError::Kubeconfig { path: path.into(), source: Box::new(source) };
    for path in paths.filter(|path| !path.as_os_str().is_empty()) {
        let read = Kubeconfig::read_from(&path).map_err(|error| failed(&path, error))?;
        merged = merged.merge(read).map_err(|error| failed(&path, error))?;
        last = path;
    }
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(merged, &options).await.map_err(|error| failed(&last, error))
}

/// A request, and the time that its response's head may take.
async fn limited<T>(request: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    match tokio::time::timeout(RESPONSE_LIMIT, request).await {
        Ok(response) => response,
        Err(elapsed) => Err(elapsed.into()),
    }
}

#[cfg(test)]
mod tests;
