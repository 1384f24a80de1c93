//! Stand-ins for an API server: one over TLS, which a kubeconfig names, and one in memory, over
//! connections that tests delay, refuse and break.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::{pending, ready};
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use http::{HeaderMap, Request, Response, Version};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kube::Client;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, copy_bidirectional, duplex};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tower::service_fn as connector_fn;

use super::{Protocol, over};

/// What the endless answers consist of.
pub(crate) const CHUNK: usize = 16 << 10;

/// A body, piece by piece.
type Frames = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// What was asked for, in which version of HTTP, and with which headers.
type Asked = (String, Version, HeaderMap);

/// What a server was asked for so far.
#[derive(Clone, Default)]
pub(crate) struct Book {
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Book {
    /// How many connections were made or attempted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The versions of HTTP in which requests came, each with how many.
    pub(crate) fn versions(&self) -> BTreeMap<String, usize> {
        let mut versions = BTreeMap::new();
        for (_, version, _) in &*self.asked.lock().unwrap() {
            *versions.entry(format!("{version:?}")).or_default() += 1;
        }
        versions
    }

    /// The headers of the first request to `path`.
    pub(crate) fn headers(&self, path: &str) -> HeaderMap {
        let asked = self.asked.lock().unwrap();
        asked.iter().find(|(asked, ..)| asked == path).unwrap().2.clone()
    }

    /// Serves one connection until it ends. `ask_to_leave` has the server send GOAWAY.
    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static, ask_to_leave: &Notify) {
        let book = self.clone();
        let service = service_fn(move |request| ready(Ok::<_, Infallible>(book.answer(&request))));
        let builder = Builder::new(TokioExecutor::new());
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = ask_to_leave.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }

    /// `/endless` begins to answer and goes no further, `/flood` never stops, `/bytes/N` has N
    /// chunks.
    fn answer(&self, request: &Request<Incoming>) -> Response<StreamBody<Frames>> {
        let path = request.uri().path().to_owned();
        let chunk = || Bytes::from_static(&[b'x'; CHUNK]);
        let chunks: BoxStream<'static, Bytes> = match path.split_once("/bytes/") {
            Some((_, count)) => stream::repeat_with(chunk).take(count.parse().unwrap()).boxed(),
            None if path == "/flood" => stream::repeat_with(chunk).boxed(),
            None if path == "/endless" => {
                stream::iter([chunk()]).chain(pending::<Bytes>().into_stream()).boxed()
            }
            None => stream::iter([Bytes::from_static(b"{}")]).boxed(),
        };
        self.asked.lock().unwrap().push((path, request.version(), request.headers().clone()));
        Response::new(StreamBody::new(chunks.map(|chunk| Ok(Frame::data(chunk))).boxed()))
    }
}

/// An API server on this machine, over TLS, with a kubeconfig that leads to it.
pub(crate) struct TlsServer {
    pub(crate) book: Book,
    directory: TempDir,
    task: AbortHandle,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TlsServer {
    /// A server that speaks `protocols`, the first one best. Its certificate is for a name, which
    /// the kubeconfig has, and not for its address.
    #[expect(clippy::disallowed_methods, reason = "a key of this test's own, which decides nothing")]
    pub(crate) async fn start(protocols: &[&str]) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["kubernetes.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(certificate.der().to_vec())],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let (acceptor, book) = (TlsAcceptor::from(Arc::new(config)), Book::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = book.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                served.connections.fetch_add(1, Ordering::Relaxed);
                let (acceptor, served) = (acceptor.clone(), served.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    served.serve(stream, &Notify::new()).await;
                });
            }
        });
        let directory = tempfile::tempdir().unwrap();
        let authority = BASE64.encode(certificate.pem().as_bytes());
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: c, \
             user: u}}}}], users: [{{name: u, user: {{token: secret, as: another}}}}], clusters: [{{name: c, \
             cluster: {{server: 'https://{address}', tls-server-name: kubernetes.test, \
             certificate-authority-data: {authority}}}}}]}}"
        );
        std::fs::write(directory.path().join("config"), text).unwrap();
        Self { book, directory, task: task.abort_handle() }
    }

    /// The kubeconfig of the server.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("config")
    }
}

/// What becomes of an attempt to connect.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    Refused,
    /// Nothing answers, for ever.
    Hangs,
    /// It stands, and breaks in the same moment.
    Breaks,
}

/// A connection that stands.
struct Link {
    lost: Arc<Notify>,
    ask_to_leave: Arc<Notify>,
    relay: AbortHandle,
}

/// An API server in memory, over connections that take `delay` to be made.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) book: Book,
    delay: Duration,
    fates: Mutex<VecDeque<Fate>>,
    links: Mutex<Vec<Link>>,
}

impl Wire {
    pub(super) fn new(delay: Duration) -> Arc<Self> {
        Arc::new(Self { delay, ..Self::default() })
    }

    /// The client of production over this network.
    pub(super) fn client(self: &Arc<Self>, protocol: Protocol) -> Client {
        let wire = Arc::clone(self);
        over(connector_fn(move |_| Arc::clone(&wire).dial()), protocol)
    }

    /// What becomes of the next attempts to connect. Later ones succeed.
    pub(super) fn fates(&self, fates: impl IntoIterator<Item = Fate>) {
        *self.fates.lock().unwrap() = fates.into_iter().collect();
    }

    /// Breaks all connections.
    pub(super) fn cut(&self) {
        self.links.lock().unwrap().drain(..).for_each(|link| link.relay.abort());
    }

    /// Loses all connections without a word: nothing arrives any more.
    pub(super) fn lose(&self) {
        self.links.lock().unwrap().drain(..).for_each(|link| link.lost.notify_one());
    }

    /// The server asks its clients to go elsewhere with new requests (GOAWAY).
    pub(super) fn ask_to_leave(&self) {
        self.links.lock().unwrap().iter().for_each(|link| link.ask_to_leave.notify_one());
    }

    async fn dial(self: Arc<Self>) -> io::Result<TokioIo<DuplexStream>> {
        self.book.connections.fetch_add(1, Ordering::Relaxed);
        let fate = self.fates.lock().unwrap().pop_front();
        sleep(self.delay).await;
        match fate {
            Some(Fate::Refused) => return Err(io::ErrorKind::ConnectionRefused.into()),
            Some(Fate::Hangs) => pending().await,
            Some(Fate::Breaks) => return Ok(TokioIo::new(duplex(1).0)),
            None => {}
        }
        let ((near, mut near_end), (mut far_end, far)) = (duplex(64 << 10), duplex(64 << 10));
        let (lost, ask_to_leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let loss = Arc::clone(&lost);
        let relay = tokio::spawn(async move {
            tokio::select! {
                _ = copy_bidirectional(&mut near_end, &mut far_end) => {}
                () = loss.notified() => pending().await,
            }
        });
        let (book, asked) = (self.book.clone(), Arc::clone(&ask_to_leave));
        tokio::spawn(async move { book.serve(far, &asked).await });
        self.links.lock().unwrap().push(Link { lost, ask_to_leave, relay: relay.abort_handle() });
        Ok(TokioIo::new(near))
    }
}
