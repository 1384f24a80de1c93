//! Connections in memory, and the client of production over them.
//!
//! Owns what may happen to a connection: it breaks, it is lost without a word, or the server's machine
//! stands still.

use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use smc_kubernetes::client::{Protocol, over};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tower::Service;

use super::faults::Fault;
use super::http::answer;
use super::server::Server;

/// The bytes that a connection holds in each direction.
const BUFFER: usize = 16 * 1024;

/// What happens to connections.
#[derive(Debug, Clone, Copy, Default)]
struct Fate {
    /// The number of the next connection.
    next: u64,
    /// Connections before this one are broken.
    broken: u64,
    /// Connections before this one are lost.
    lost: u64,
    /// Nothing moves until then.
    frozen: Option<Instant>,
}

/// All connections. Clones are the same ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Wires(Arc<watch::Sender<Fate>>);

impl Wires {
    pub(super) fn break_all(&self) {
        self.0.send_modify(|fate| fate.broken = fate.next);
    }

    pub(super) fn lose_all(&self) {
        self.0.send_modify(|fate| fate.lost = fate.next);
    }

    pub(super) fn freeze(&self, until: Instant) {
        self.0.send_modify(|fate| fate.frozen = fate.frozen.max(Some(until)));
    }

    /// The number of a new connection.
    fn open(&self) -> u64 {
        let mut number = 0;
        self.0.send_modify(|fate| {
            number = fate.next;
            fate.next += 1;
        });
        number
    }

    /// Runs the server's side of a connection until it ends or breaks.
    async fn run(&self, number: u64, serving: impl Future<Output = ()>) {
        let mut fates = self.0.subscribe();
        let mut serving = std::pin::pin!(serving);
        loop {
            let fate = *fates.borrow_and_update();
            let frozen = fate.frozen.filter(|until| *until > Instant::now());
            if number < fate.broken {
                return;
            }
            tokio::select! {
                biased;
                changed = fates.changed() => if changed.is_err() { return },
                () = until(frozen), if frozen.is_some() => {}
                () = &mut serving, if frozen.is_none() && number >= fate.lost => return,
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Connects to a server.
#[derive(Clone)]
pub(super) struct Connector(Server);

impl Service<Uri> for Connector {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (near, far) = tokio::io::duplex(BUFFER);
        let Some(serving) = self.0.accept(far) else {
            return ready(Err(io::ErrorKind::ConnectionRefused.into()));
        };
        tokio::spawn(serving);
        ready(Ok(TokioIo::new(near)))
    }
}

impl Server {
    /// Serves a connection until it ends or breaks; `None` if it is refused.
    pub fn accept<I>(&self, io: I) -> Option<impl Future<Output = ()> + Send + use<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if self.state().faults.holds(Fault::Away, Instant::now()) {
            return None;
        }
        let (server, wires) = (self.clone(), self.wires().clone());
        let number = wires.open();
        Some(async move { wires.run(number, serve(server, io)).await })
    }
}

/// Serves a connection.
async fn serve(server: Server, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let io = TokioIo::new(io);
    let http2 = server.setup().http2;
    let service = service_fn(move |request| {
        let server = server.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(server, request).await) }
    });
    // An error is the client's end, or a body that was broken off on purpose.
    if http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.auto_date_header(false).serve_connection(io, service).await;
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        let _ = builder.auto_date_header(false).serve_connection(io, service).await;
    }
}

/// The client of production over connections to a server.
pub(super) fn client(server: &Server) -> kube::Client {
    let protocol = if server.setup().http2 { Protocol::Http2 } else { Protocol::Http1 };
    over(Connector(server.clone()), protocol)
}
