//! A network between replicas of one process, whose cables can be unplugged.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use smc_host::network::{Bound, Io, Listener, Network};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;

use futures_util::future::BoxFuture;

/// The network. Addresses are names.
#[derive(Clone, Default)]
pub(super) struct Switch(Arc<Mutex<Ports>>);

#[derive(Default)]
struct Ports {
    listening: BTreeMap<String, mpsc::Sender<Box<dyn Io>>>,
    unplugged: BTreeSet<String>,
}

impl Switch {
    pub(super) fn listen(&self, address: &str) -> Box<dyn Listener> {
        let (sender, receiver) = mpsc::channel(16);
        self.0.lock().unwrap().listening.insert(address.to_owned(), sender);
        Box::new(Port(receiver))
    }

    /// The network as seen from `address`.
    pub(super) fn network(&self, address: &str) -> Arc<dyn Network> {
        Arc::new(Plug { switch: self.clone(), from: address.to_owned() })
    }

    /// From now on no message reaches `address`, and none of its messages reaches others.
    pub(super) fn unplug(&self, address: &str) {
        self.0.lock().unwrap().unplugged.insert(address.to_owned());
    }

    pub(super) fn plug_in(&self, address: &str) {
        self.0.lock().unwrap().unplugged.remove(address);
    }

    fn is_cut(&self, ends: &[String; 2]) -> bool {
        let ports = self.0.lock().unwrap();
        ends.iter().any(|end| ports.unplugged.contains(end))
    }
}

struct Port(mpsc::Receiver<Box<dyn Io>>);

/// Addresses are names here, so a number is never used.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Listener for Port {
    fn address(&self) -> SocketAddr {
        NOWHERE
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        Box::pin(async {
            let connection = self.0.recv().await.ok_or(io::ErrorKind::NotConnected)?;
            Ok((connection, NOWHERE))
        })
    }
}

struct Plug {
    switch: Switch,
    from: String,
}

impl Network for Plug {
    fn dial(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let (switch, ends) = (self.switch.clone(), [self.from.clone(), address.clone()]);
        Box::pin(async move {
            let port = switch.0.lock().unwrap().listening.get(&address).cloned();
            let port = port.filter(|_| !switch.is_cut(&ends)).ok_or(io::ErrorKind::ConnectionRefused)?;
            let (near, far) = tokio::io::duplex(256 * 1024);
            let cable = |stream| Box::new(Cable { switch: switch.clone(), ends: ends.clone(), stream });
            port.send(cable(far)).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
            Ok(cable(near) as Box<dyn Io>)
        })
    }

    fn bind(&self, _: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Bound>>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }
}

/// Breaks at the first use after one of its ends was unplugged.
struct Cable {
    switch: Switch,
    ends: [String; 2],
    stream: DuplexStream,
}

impl Cable {
    fn whole(&mut self) -> io::Result<Pin<&mut DuplexStream>> {
        if self.switch.is_cut(&self.ends) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(Pin::new(&mut self.stream))
    }
}

impl AsyncRead for Cable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.whole()?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Cable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.whole()?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
