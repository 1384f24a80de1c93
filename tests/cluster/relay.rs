//! The connections between replicas, each through a relay that can cut it.
//!
//! All connect to a replica at its relay's address. Who it is that connects is found out from the kernel, by the owner of
//! the socket, so that a link between two of them can be cut, in one direction of connecting or in both.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the link from one replica to another does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Whole,
    /// Connections stay and carry nothing.
    Silent,
    /// Connections are closed, and new ones at once.
    Broken,
}

/// Finds the replica that owns a socket, by its inode.
pub(crate) type OwnerOf = Arc<dyn Fn(u64) -> Option<u64> + Send + Sync>;

/// See the module. Dropping it closes everything.
pub(crate) struct Relays {
    links: Arc<Links>,
    _tasks: JoinSet<()>,
}

/// By who connects and to whom.
#[derive(Default)]
struct Links(Mutex<BTreeMap<(u64, u64), watch::Sender<Link>>>);

impl Links {
    fn watch(&self, from: u64, to: u64) -> watch::Receiver<Link> {
        let mut links = self.0.lock().unwrap();
        links.entry((from, to)).or_insert_with(|| watch::Sender::new(Link::Whole)).subscribe()
    }
}

impl Relays {
    /// One relay for each replica, in order: where it listens, and where the replica does.
    pub(crate) async fn start(routes: Vec<(String, String)>, owner_of: OwnerOf) -> Self {
        let links = Arc::<Links>::default();
        let mut tasks = JoinSet::new();
        for (to, (near, far)) in (0..).zip(routes) {
            let listener = TcpListener::bind(near).await.unwrap();
            tasks.spawn(accept(listener, to, far, Arc::clone(&links), Arc::clone(&owner_of)));
        }
        Self { links, _tasks: tasks }
    }

    /// Cuts or mends the connections that `from` makes to `to`.
    pub(crate) fn set(&self, from: u64, to: u64, link: Link) {
        self.links.watch(from, to);
        self.links.0.lock().unwrap()[&(from, to)].send_replace(link);
    }
}

async fn accept(listener: TcpListener, to: u64, far: String, links: Arc<Links>, owner_of: OwnerOf) {
    let address = listener.local_addr().unwrap();
    let mut relayed = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((near, peer)) = accepted else { continue };
                // Who is not found has ended meanwhile.
                if let Some(from) = inode(peer, address).and_then(|inode| owner_of(inode)) {
                    relayed.spawn(relay(near, far.clone(), links.watch(from, to)));
                }
            }
            Some(_) = relayed.join_next() => {}
        }
    }
}

async fn relay(mut near: TcpStream, far: String, mut link: watch::Receiver<Link>) {
    if link.wait_for(|link| *link != Link::Silent).await.is_ok_and(|link| *link == Link::Broken) {
        return;
    }
    let Ok(mut far) = TcpStream::connect(far).await else { return };
    if near.set_nodelay(true).is_err() || far.set_nodelay(true).is_err() {
        return;
    }
    let copying = copy_bidirectional(&mut near, &mut far);
    tokio::pin!(copying);
    loop {
        let now = *link.borrow_and_update();
        let changed = match now {
            Link::Broken => return,
            Link::Silent => link.changed().await,
            Link::Whole => tokio::select! {
                _ = &mut copying => return,
                changed = link.changed() => changed,
            },
        };
        if changed.is_err() {
            return;
        }
    }
}

/// The inode of the socket at `local` that is connected to `remote`, asked for as `ss` does (sock_diag(7)): to look through
/// /proc/net/tcp takes longer than those who connect wait.
fn inode(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST: u16 = 1;
    const HEADER: usize = 16;
    /// Where the inode is in an `inet_diag_msg`.
    const INODE: usize = HEADER + 68;

    let (SocketAddr::V4(local), SocketAddr::V4(remote)) = (local, remote) else { return None };
    let mut question = Vec::new();
    // The header: its length follows.
    question.extend_from_slice(&[0; 4]);
    question.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    question.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    question.extend_from_slice(&[0; 8]);
    // AF_INET, TCP, nothing else to be told, in any state.
    question.extend_from_slice(&[2, 6, 0, 0]);
    question.extend_from_slice(&u32::MAX.to_ne_bytes());
    question.extend_from_slice(&local.port().to_be_bytes());
    question.extend_from_slice(&remote.port().to_be_bytes());
    for address in [local, remote] {
        question.extend_from_slice(&address.ip().octets());
        question.extend_from_slice(&[0; 12]);
    }
    // On any interface, with any cookie.
    question.extend_from_slice(&[0; 4]);
    question.extend_from_slice(&[0xff; 8]);
    let length = u32::try_from(question.len()).ok()?.to_ne_bytes();
    question[..4].copy_from_slice(&length);

    let socket = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    );
    let socket = socket.ok()?;
    send(socket.as_raw_fd(), &question, MsgFlags::empty()).ok()?;
    let mut answer = [0; 512];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).ok()?;
    let answer = answer.get(..length)?;
    // Another type is an error: there is no such socket.
    (answer.get(4..6)? == SOCK_DIAG_BY_FAMILY.to_ne_bytes()).then_some(())?;
    Some(u32::from_ne_bytes(answer.get(INODE..INODE + 4)?.try_into().ok()?).into())
}
