//! turmoil's network behind the controller's [`Network`] trait.

use std::io;
use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use smc_host::network::{Bound, Io, Listener, Network};
use turmoil::net::{TcpListener, TcpStream};

/// Connects from, and listens on, the simulated host that calls it.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedNetwork;

impl Network for SimulatedNetwork {
    fn dial(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        Box::pin(async move { Ok(Box::new(TcpStream::connect(address).await?) as Box<dyn Io>) })
    }

    fn bind(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Bound>>> {
        Box::pin(async move { Ok(Box::new(Later(address)) as Box<dyn Bound>) })
    }
}

/// turmoil has no port that is taken without listening. Each host uses fixed ports, and each once.
struct Later(SocketAddr);

impl Bound for Later {
    fn address(&self) -> SocketAddr {
        self.0
    }

    fn listen(self: Box<Self>) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(self.0).await?;
            let address = listener.local_addr()?;
            Ok(Box::new(Port { listener, address }) as Box<dyn Listener>)
        })
    }
}

struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener for Port {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        Box::pin(async {
            let (stream, peer) = self.listener.accept().await?;
            Ok((Box::new(stream) as Box<dyn Io>, peer))
        })
    }
}
