//! Owns sockets in other network namespaces: a socket belongs to the namespace it was made in.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use tokio::net::TcpStream;

/// Connects to `address` from the network namespace of process `pid`.
pub(super) async fn connect(pid: u32, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let connect = move || std::net::TcpStream::connect_timeout(&address, timeout);
    let stream = inside(pid, "netns-connect", connect).await?;
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

/// Listens on `address` in the network namespace of process `pid`.
pub(super) async fn listen(pid: u32, address: SocketAddr) -> io::Result<TcpListener> {
    inside(pid, "netns-listen", move || TcpListener::bind(address)).await
}

/// Makes a socket in the network namespace of process `pid`.
async fn inside<T: Send + 'static>(
    pid: u32,
    name: &str,
    make: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (answer, result) = tokio::sync::oneshot::channel();
    // `setns` changes the thread for good, so this uses a thread of its own, not one of the
    // runtime's.
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let made = File::open(format!("/proc/{pid}/ns/net"))
            .and_then(|namespace| Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?))
            .and_then(|()| make());
        // The receiver is gone if the caller gave up.
        let _ = answer.send(made);
    })?;
    result.await.map_err(io::Error::other)?
}
