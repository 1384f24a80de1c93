//! Owns connections from inside a Pod for the supervisor: a socket belongs to the namespace it was
//! made in.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use tokio::net::TcpStream;

/// Connects to `address` from the network namespace of process `pid`.
pub(super) async fn connect(pid: u32, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let (answer, result) = tokio::sync::oneshot::channel();
    // `setns` changes the thread for good, so this uses a thread of its own, not one of the
    // runtime's.
    std::thread::Builder::new().name("netns-connect".to_owned()).spawn(move || {
        let connected = File::open(format!("/proc/{pid}/ns/net"))
            .and_then(|namespace| Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?))
            .and_then(|()| std::net::TcpStream::connect_timeout(&address, timeout));
        // The receiver is gone if the caller gave up.
        let _ = answer.send(connected);
    })?;
    let stream = result.await.map_err(io::Error::other)??;
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}
