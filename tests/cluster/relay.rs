//! Owns the connections between replicas: each passes a relay that can cut it.
//!
//! Replicas connect to one another at the relays' addresses. The relay finds the connecting replica
//! by the owner of the socket, as the kernel reports it. So a link between two replicas can be cut,
//! in one direction of connecting or in both.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// State of the link from one replica to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    /// Connections stay open and carry no bytes.
    Silent,
    /// Connections are closed, and new ones are closed at once.
    Broken,
}

/// Finds the replica that owns a socket, by its inode.
pub(crate) type OwnerOf = Arc<dyn Fn(u64) -> Option<u64> + Send + Sync>;

/// The relays of all replicas. Dropping it closes all connections.
pub(crate) struct Relays {
    links: Arc<Links>,
    _tasks: JoinSet<()>,
}

/// By connecting replica and target.
#[derive(Default)]
struct Links(Mutex<BTreeMap<(u64, u64), watch::Sender<Link>>>);

impl Links {
    fn watch(&self, from: u64, to: u64) -> watch::Receiver<Link> {
        let mut links = self.0.lock().unwrap();
        links.entry((from, to)).or_insert_with(|| watch::Sender::new(Link::Up)).subscribe()
    }
}

impl Relays {
    /// Starts one relay for each replica, in order. A route is the relay's and the replica's
    /// address.
    pub(crate) async fn start(routes: Vec<(String, String)>, owner_of: OwnerOf) -> Self {
        let links = Arc::<Links>::default();
        let mut tasks = JoinSet::new();
        for (to, (incoming, target)) in (0..).zip(routes) {
            let listener = TcpListener::bind(incoming).await.unwrap();
            tasks.spawn(accept(listener, to, target, Arc::clone(&links), Arc::clone(&owner_of)));
        }
        Self { links, _tasks: tasks }
    }

    /// Sets the state of the link from `from` to `to`.
    pub(crate) fn set(&self, from: u64, to: u64, link: Link) {
        self.links.watch(from, to);
        self.links.0.lock().unwrap()[&(from, to)].send_replace(link);
    }
}

async fn accept(listener: TcpListener, to: u64, target: String, links: Arc<Links>, owner_of: OwnerOf) {
    let address = listener.local_addr().unwrap();
    let mut relayed = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((incoming, peer)) = accepted else { continue };
                // A replica that is not found has ended meanwhile.
                if let Some(from) = inode(peer, address).and_then(|inode| owner_of(inode)) {
                    relayed.spawn(relay(incoming, target.clone(), links.watch(from, to)));
                }
            }
            Some(_) = relayed.join_next() => {}
        }
    }
}

async fn relay(mut incoming: TcpStream, target: String, mut link: watch::Receiver<Link>) {
    if link.wait_for(|link| *link != Link::Silent).await.is_ok_and(|link| *link == Link::Broken) {
        return;
    }
    let Ok(mut target) = TcpStream::connect(target).await else { return };
    if incoming.set_nodelay(true).is_err() || target.set_nodelay(true).is_err() {
        return;
    }
    let copying = copy_bidirectional(&mut incoming, &mut target);
    tokio::pin!(copying);
    loop {
        let now = *link.borrow_and_update();
        let changed = match now {
            Link::Broken => return,
            Link::Silent => link.changed().await,
            Link::Up => tokio::select! {
                _ = &mut copying => return,
                changed = link.changed() => changed,
            },
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Returns the inode of the socket at `local` that is connected to `remote`, by sock_diag(7), as
/// `ss` does. Searching /proc/net/tcp would exceed the time limits of connecting replicas.
fn inode(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST: u16 = 1;
    const HEADER: usize = 16;
    /// Offset of the inode in an `inet_diag_msg`.
    const INODE: usize = HEADER + 68;

    let (SocketAddr::V4(local), SocketAddr::V4(remote)) = (local, remote) else { return None };
    let mut request = Vec::new();
    // The header; its length field is set below.
    request.extend_from_slice(&[0; 4]);
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    // AF_INET, TCP, no extensions, any state.
    request.extend_from_slice(&[2, 6, 0, 0]);
    request.extend_from_slice(&u32::MAX.to_ne_bytes());
    request.extend_from_slice(&local.port().to_be_bytes());
    request.extend_from_slice(&remote.port().to_be_bytes());
    for address in [local, remote] {
        request.extend_from_slice(&address.ip().octets());
        request.extend_from_slice(&[0; 12]);
    }
    // Any interface, any cookie.
    request.extend_from_slice(&[0; 4]);
    request.extend_from_slice(&[0xff; 8]);
    let length = u32::try_from(request.len()).ok()?.to_ne_bytes();
    request[..4].copy_from_slice(&length);

    let socket = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    );
    let socket = socket.ok()?;
    send(socket.as_raw_fd(), &request, MsgFlags::empty()).ok()?;
    let mut reply = [0; 512];
    let length = recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty()).ok()?;
    let reply = reply.get(..length)?;
    // Another type is an error: there is no such socket.
    (reply.get(4..6)? == SOCK_DIAG_BY_FAMILY.to_ne_bytes()).then_some(())?;
    Some(u32::from_ne_bytes(reply.get(INODE..INODE + 4)?.try_into().ok()?).into())
}
