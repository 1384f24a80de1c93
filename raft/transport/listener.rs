//! Accepts and authenticates connections of other replicas, for tonic to serve.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;
use tracing::{debug, warn};

use super::tls::replica_of;
use smc_host::accept::Acceptor;
use smc_host::network::{Io, Listener};
use smc_types::ids::ReplicaId;

/// Concurrent handshakes. A group has nine members at most, with four connections each; more at once are
/// not from replicas, and the newest is closed.
const HANDSHAKES: usize = 64;

/// An honest handshake takes one round trip.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepted connections queued for tonic, which takes them at once.
const ACCEPTED: usize = 16;

/// The replica at the other end, in a request's extensions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) ReplicaId);

/// An authenticated connection.
pub(super) struct Accepted {
    stream: TlsStream<Box<dyn Io>>,
    peer: Peer,
}

pub(super) type Connections = ReceiverStream<io::Result<Accepted>>;

/// Accepts and authenticates until `stopping`. The returned future does the work, and must run beside the
/// receiver of the connections.
pub(super) fn listen(
    listener: Box<dyn Listener>,
    acceptor: TlsAcceptor,
    stopping: CancellationToken,
) -> (Connections, impl Future<Output = ()>) {
    let (accepted, connections) = mpsc::channel(ACCEPTED);
    let work = async move {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = authenticate_all(listener, acceptor, accepted) => {}
        }
    };
    (ReceiverStream::new(connections), work)
}

async fn authenticate_all(
    listener: Box<dyn Listener>,
    tls: TlsAcceptor,
    accepted: mpsc::Sender<io::Result<Accepted>>,
) {
    let mut acceptor = Acceptor::new(listener, "raft");
    let mut handshakes = JoinSet::new();
    loop {
        tokio::select! {
            (socket, _) = acceptor.accept() => {
                if handshakes.len() >= HANDSHAKES {
                    warn!("too many handshakes; closing the newest");
                    continue;
                }
                let (tls, accepted) = (tls.clone(), accepted.clone());
                handshakes.spawn(async move {
                    if let Some(connection) = authenticate(&tls, socket).await {
                        // The receiver is gone if the server is shutting down.
                        let _ = accepted.send(Ok(connection)).await;
                    }
                });
            }
            Some(_) = handshakes.join_next() => {}
        }
    }
}

async fn authenticate(acceptor: &TlsAcceptor, socket: Box<dyn Io>) -> Option<Accepted> {
    let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            warn!(%error, "refused a connection that is not another replica's");
            return None;
        }
        Err(_) => {
            debug!("a connection to the Raft port did not finish its handshake");
            return None;
        }
    };
    let peer = stream.get_ref().1.peer_certificates().and_then(|chain| replica_of(chain.first()?));
    if peer.is_none() {
        warn!("refused a connection whose certificate names no replica");
    }
    Some(Accepted { stream, peer: Peer(peer?) })
}

impl Connected for Accepted {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
