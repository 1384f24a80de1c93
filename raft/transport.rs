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

use tokio::io::{AsyncRead, AsyncWrite};

use crate::replicated::Pending;

/// The largest message that is taken: a proposal's batch of 4 MiB, and what the log is read in, with room.
pub(crate) const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// A connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Where connections come from: the real network, or a simulated one.
pub trait Network: Send + Sync {
    /// Connects to `HOST:PORT`. The caller bounds the time.
    fn dial(&self, address: String) -> Pending<'static, io::Result<Box<dyn Io>>>;
}

/// Where other replicas connect to.
pub trait Listener: Send {
    /// The next connection. An error is about that one alone.
    fn accept(&mut self) -> Pending<'_, io::Result<Box<dyn Io>>>;
}

/// TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Network for Tcp {
    fn dial(&self, address: String) -> Pending<'static, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            // A heartbeat must not wait for the acknowledgement of the one before.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}

impl Listener for tokio::net::TcpListener {
    fn accept(&mut self) -> Pending<'_, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            let (stream, _) = tokio::net::TcpListener::accept(self).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}
