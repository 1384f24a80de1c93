//! The network of a process: TCP, or a simulated one.
//!
//! Owns dialling and listening, for every port of a replica. Does not secure a connection: TLS is
//! the caller's.

use std::io;
use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The network: the real one, or a simulated one.
pub trait Network: Send + Sync {
    /// Connects to `HOST:PORT`. The caller bounds the time.
    fn dial(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Io>>>;

    /// Takes a port without listening on it: connections are refused until then. Port 0 takes a free one.
    fn bind(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Bound>>>;

    /// Takes a port and listens on it.
    fn listen(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        let bound = self.bind(address);
        Box::pin(async move { bound.await?.listen().await })
    }
}

/// A port that is taken. Dropping it gives it back.
pub trait Bound: Send {
    /// The port's address.
    fn address(&self) -> SocketAddr;

    /// Listens on the port.
    fn listen(self: Box<Self>) -> BoxFuture<'static, io::Result<Box<dyn Listener>>>;
}

/// A listening port. Dropping it closes the port.
pub trait Listener: Send {
    /// The port's address.
    fn address(&self) -> SocketAddr;

    /// The next connection and its peer's address. An error concerns that connection alone.
    /// Cancel-safe: a cancelled call loses no connection.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>>;
}

/// TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Network for Tcp {
    fn dial(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            Ok(Box::new(without_delay(stream)) as Box<dyn Io>)
        })
    }

    fn bind(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Bound>>> {
        Box::pin(async move {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // A port can be taken again while connections of its last listener are in TIME_WAIT.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let address = socket.local_addr()?;
            Ok(Box::new(BoundTcp { socket, address }) as Box<dyn Bound>)
        })
    }
}

/// Connections that the kernel completes before they are accepted, as many as Linux allows by default:
/// those of all sidecars may come at once.
const BACKLOG: u32 = 4096;

struct BoundTcp {
    socket: TcpSocket,
    address: SocketAddr,
}

impl Bound for BoundTcp {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn listen(self: Box<Self>) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = self.socket.listen(BACKLOG)?;
            Ok(Box::new(TcpPort { listener, address: self.address }) as Box<dyn Listener>)
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

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        Box::pin(async {
            let (stream, peer) = self.listener.accept().await?;
            Ok((Box::new(without_delay(stream)) as Box<dyn Io>, peer))
        })
    }
}

/// Disables Nagle's algorithm, so that a heartbeat or a small response does not wait for earlier
/// acknowledgements.
fn without_delay(stream: TcpStream) -> TcpStream {
    // A socket that refuses the option is slower, not wrong.
    let _ = stream.set_nodelay(true);
    stream
}
