//! Accepts and authenticates connections of other replicas, for tonic to serve.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smc_host::accept::{Accepted as Connection, Acceptor, Bounds, Evicted, FAIR, FirstBytes};
use smc_host::log_limit::LogLimit;
use smc_host::network::Listener;
use smc_types::ids::ReplicaId;
use thiserror::Error;
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

/// Connections in their handshake. A group has nine members at most, with four connections each, which all
/// fit into the places of one address if they come through one NAT. A stranger's takes less than 20 KiB
/// ([`HANDSHAKE_BYTES`]), all of them 10 MiB.
const WAITING: Bounds = Bounds { total: 512, per_address: 128, fair: FAIR };

/// An honest handshake takes one round trip.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a peer may send before it has proved that it is a replica. An honest handshake has less than 2 KiB.
const HANDSHAKE_BYTES: usize = 8 << 10;

/// Accepted connections queued for tonic, which takes them at once.
const ACCEPTED: usize = 16;

/// The replica at the other end, in a request's extensions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) ReplicaId);

/// An authenticated connection.
pub(super) struct Accepted {
    stream: TlsStream<FirstBytes>,
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
    let mut acceptor = Acceptor::new(listener, "raft", WAITING);
    let refusals = Arc::new(LogLimit::default());
    let mut handshakes = JoinSet::new();
    loop {
        tokio::select! {
            connection = acceptor.accept() => {
                let (tls, accepted, refusals) = (tls.clone(), accepted.clone(), Arc::clone(&refusals));
                handshakes.spawn(async move {
                    let peer = connection.peer;
                    match authenticate(&tls, connection).await {
                        // The receiver is gone if the server is shutting down.
                        Ok(connection) => drop(accepted.send(Ok(connection)).await),
                        Err(error) => refused(peer, &error, &refusals),
                    }
                });
            }
            Some(_) = handshakes.join_next() => {}
        }
    }
}

/// Why a connection is not served.
#[derive(Debug, Error)]
enum Refused {
    #[error("the handshake failed: {0}")]
    Handshake(#[from] io::Error),
    #[error("the certificate names no replica")]
    NoReplica,
    #[error("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Timeout,
    #[error(transparent)]
    Evicted(#[from] Evicted),
}

/// Logs a refusal. Anybody can cause one, so that many have one line.
fn refused(peer: SocketAddr, error: &Refused, refusals: &LogLimit) {
    match error {
        // The acceptor reports evictions; and a silent connection is not worth a line.
        Refused::Evicted(_) | Refused::Timeout => debug!(%peer, %error, "closed a connection"),
        Refused::Handshake(_) | Refused::NoReplica => {
            if let Some(count) = refusals.note() {
                warn!(count, latest_peer = %peer, %error, "refused connections that are not another replica's");
            }
        }
    }
}

async fn authenticate(acceptor: &TlsAcceptor, connection: Connection) -> Result<Accepted, Refused> {
    let Connection { socket, mut place, .. } = connection;
    let handshake = acceptor.accept(FirstBytes::new(socket, HANDSHAKE_BYTES));
    let handshake = place.hold(timeout(HANDSHAKE_TIMEOUT, handshake)).await?;
    let mut stream = handshake.map_err(|_| Refused::Timeout)??;
    let peer = stream.get_ref().1.peer_certificates().and_then(|chain| replica_of(chain.first()?));
    let peer = Peer(peer.ok_or(Refused::NoReplica)?);
    stream.get_mut().0.lift();
    // From now on strangers elsewhere cannot keep this replica from connecting.
    place.vouch();
    Ok(Accepted { stream, peer })
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
