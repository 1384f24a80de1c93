//! Peers that flood a port with bytes of their own making.
//!
//! Owns what they say: what HTTP/2 allows and does not, what is no TLS, and requests that never end.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, sink, split};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

/// The bytes that were sent, the connections that were made, and those that passed their handshake. Cheap to
/// clone; clones count together.
#[derive(Clone, Default)]
pub(crate) struct Sent {
    pub(crate) bytes: Arc<AtomicU64>,
    pub(crate) connections: Arc<AtomicU64>,
    pub(crate) handshakes: Arc<AtomicU64>,
}

/// What a peer says: first, and then for as long as it is read. Without the latter it waits until the other
/// side ends the connection. Then it connects again.
#[derive(Clone)]
pub(crate) struct Says {
    pub(crate) name: &'static str,
    pub(crate) opening: Vec<u8>,
    pub(crate) again: Vec<u8>,
}

/// How peers reach a port.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    /// The configuration of TLS, and the name that is asked for; without one, it is spoken without TLS.
    pub(crate) tls: Option<(Arc<ClientConfig>, String)>,
    /// The address that the peers have.
    pub(crate) from: IpAddr,
    /// How long a peer whose connection has ended stays away.
    pub(crate) away: Duration,
}

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// What opens a connection of HTTP/2.
fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat()
}

/// Frames of every type, legal or not, again and again after what opens a connection.
pub(crate) fn frames() -> Vec<Says> {
    let floods = [
        ("DATA of no stream", frame(0, 0, 1, &[7; 8])),
        ("HEADERS that are none", frame(1, 4, 1, &[0xff; 64])),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 3, 1])),
        ("RST_STREAM of no stream", frame(3, 0, 1, &[0; 4])),
        ("SETTINGS", frame(4, 0, 0, &[])),
        ("acknowledgement of SETTINGS", frame(4, 1, 0, &[])),
        ("PUSH_PROMISE", frame(5, 4, 1, &[0, 0, 0, 2])),
        ("PING", frame(6, 0, 0, &[7; 8])),
        ("PING that acknowledges none", frame(6, 1, 0, &[7; 8])),
        ("GOAWAY", frame(7, 0, 0, &[0; 8])),
        ("WINDOW_UPDATE", frame(8, 0, 0, &[0, 0, 0, 1])),
        ("WINDOW_UPDATE by nothing", frame(8, 0, 0, &[0; 4])),
        ("CONTINUATION of nothing", frame(9, 4, 1, &[7; 8])),
        ("unknown type", frame(0xfe, 0, 0, &[7; 8])),
    ];
    let says = |(name, frame): (_, Vec<u8>)| Says { name, opening: preface(), again: frame.repeat(1_000) };
    floods.into_iter().map(says).collect()
}

/// What is no TLS, and a ClientHello that stops in its middle.
pub(crate) fn no_handshakes() -> Vec<Says> {
    let hello = [[0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3].as_slice(), &[7; 100]].concat();
    let once = |(name, opening)| Says { name, opening, again: Vec::new() };
    let http = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n".to_vec();
    [("no TLS", vec![7; 1 << 12]), ("HTTP", http), ("half a ClientHello", hello)].map(once).to_vec()
}

/// Nothing at all.
pub(crate) fn silence() -> Says {
    Says { name: "silence", opening: Vec::new(), again: Vec::new() }
}

/// A request whose body does not go on after so many bytes.
pub(crate) fn unfinished_body(path: &str, bytes: usize) -> Says {
    let head = format!("POST {path} HTTP/1.1\r\nhost: here\r\ncontent-length: 8000000\r\n\r\n");
    let opening = [head.as_bytes(), &vec![b' '; bytes]].concat();
    Says { name: "unfinished body", opening, again: Vec::new() }
}

/// Requests one after the other, on one connection.
pub(crate) fn requests(name: &'static str, path: &str, body: &str) -> Says {
    let head = format!("POST {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {}\r\n\r\n", body.len());
    let again = [head.as_bytes(), body.as_bytes()].concat();
    Says { name, opening: again.clone(), again }
}

/// Says it on one connection, until the other side ends that.
async fn say(stream: impl AsyncRead + AsyncWrite, says: &Says, sent: &Sent) {
    let ((mut read, mut write), mut unread) = (split(stream), sink());
    let saying = async {
        let mut next = &says.opening;
        while !next.is_empty() && write.write_all(next).await.is_ok() {
            sent.bytes.fetch_add(next.len() as u64, Ordering::Relaxed);
            next = &says.again;
        }
        if next.is_empty() {
            let _ = write.flush().await;
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = saying => {}
        _ = tokio::io::copy(&mut read, &mut unread) => {}
    }
}

async fn connect(port: &Port) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(port.from, 0)).ok()?;
    socket.connect(port.address).await.ok()
}

/// A peer each that says it, for ever.
pub(crate) fn flood(port: &Port, floods: Vec<Says>, sent: &Sent) -> JoinSet<()> {
    let mut senders = JoinSet::new();
    for says in floods {
        let (port, sent) = (port.clone(), sent.clone());
        senders.spawn(async move {
            loop {
                if let Some(socket) = connect(&port).await {
                    sent.connections.fetch_add(1, Ordering::Relaxed);
                    match &port.tls {
                        None => say(socket, &says, &sent).await,
                        Some((config, name)) => {
                            let tls = TlsConnector::from(Arc::clone(config));
                            let name = ServerName::try_from(name.clone()).unwrap();
                            if let Ok(stream) = tls.connect(name, socket).await {
                                sent.handshakes.fetch_add(1, Ordering::Relaxed);
                                say(stream, &says, &sent).await;
                            }
                        }
                    }
                }
                sleep(port.away).await;
            }
        });
    }
    senders
}
