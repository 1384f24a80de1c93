//! turmoil's network, as the controller sees a network.

use std::io;
use std::net::SocketAddr;

use smc_raft::{Io, Listener, Network, Pending};
use turmoil::net::{TcpListener, TcpStream};

/// Connects from, and listens on, the simulated host whose software calls it.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedNetwork;

impl Network for SimulatedNetwork {
    fn dial(&self, address: String) -> Pending<'static, io::Result<Box<dyn Io>>> {
        Box::pin(async move { Ok(Box::new(TcpStream::connect(address).await?) as Box<dyn Io>) })
    }

    fn listen(&self, address: SocketAddr) -> Pending<'static, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(address).await?;
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

    fn accept(&mut self) -> Pending<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        Box::pin(async {
            let (stream, peer) = self.listener.accept().await?;
            Ok((Box::new(stream) as Box<dyn Io>, peer))
        })
    }
}
