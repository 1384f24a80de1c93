//! How replicas reach each other: gRPC over TLS, on whatever network they are given.
//!
//! Owns connections, their authentication and their bounds. Refuses to decide anything: what a message means is
//! Raft's, and [`route`] says whether it is for this replica at all.

pub(crate) mod client;
mod listener;
mod route;
pub(crate) mod server;
pub(crate) mod tls;

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::replicated::Pending;

/// The largest message that is taken: a proposal's batch of 4 MiB, and what the log is read in, with room.
pub(crate) const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// A connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The network: the real one, or a simulated one.
pub trait Network: Send + Sync {
    /// Connects to `HOST:PORT`. The caller bounds the time.
    fn dial(&self, address: String) -> Pending<'static, io::Result<Box<dyn Io>>>;

    /// Takes a port for others to connect to; port 0 takes a free one.
    fn listen(&self, address: SocketAddr) -> Pending<'static, io::Result<Box<dyn Listener>>>;
}

/// A port that others connect to, until it is dropped.
pub trait Listener: Send {
    /// Where it is.
    fn address(&self) -> SocketAddr;

    /// The next connection, and where it comes from. An error is about that one alone. To give up waiting loses none.
    fn accept(&mut self) -> Pending<'_, io::Result<(Box<dyn Io>, SocketAddr)>>;
}

/// TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Network for Tcp {
    fn dial(&self, address: String) -> Pending<'static, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            Ok(Box::new(prompt(stream)) as Box<dyn Io>)
        })
    }

    fn listen(&self, address: SocketAddr) -> Pending<'static, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok(Box::new(TcpPort { listener, address }) as Box<dyn Listener>)
        })
    }
}

struct TcpPort {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener for TcpPort {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Pending<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        Box::pin(async {
            let (stream, peer) = self.listener.accept().await?;
            Ok((Box::new(prompt(stream)) as Box<dyn Io>, peer))
        })
    }
}

/// So that a heartbeat, or a small response, does not wait for the acknowledgement of what was sent before it.
fn prompt(stream: TcpStream) -> TcpStream {
    // A socket that refuses it is slower, not wrong.
    let _ = stream.set_nodelay(true);
    stream
}
