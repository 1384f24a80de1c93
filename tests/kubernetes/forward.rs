//! Owns the way from the host to the API server of a cluster that has a network of its own.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use nix::sched::{CloneFlags, setns};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::ClusterError;
use crate::config::API_PORT;

/// Connections at a time: the API server has a limit of requests of its own, and each connection
/// costs two file descriptors.
const MAX_CONNECTIONS: usize = 4000;

/// Listens on a free port of the host's loopback interface, and forwards connections to the API
/// server in the network namespace of process `pid`. Returns the port. Ends with this process.
pub(crate) fn start(pid: i32) -> Result<u16, ClusterError> {
    let failed = || ClusterError::command::<io::Error>("forward to the API server");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
    listener.set_nonblocking(true).map_err(failed())?;
    let port = listener.local_addr().map_err(failed())?.port();
    let namespace = File::open(format!("/proc/{pid}/ns/net")).map_err(failed())?;
    // A thread of its own: `setns` changes it for good, and a socket belongs to the namespace of the
    // thread that makes it. The listener was made before, on the host.
    std::thread::Builder::new()
        .name("forward".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let (Ok(()), Ok(runtime)) = (setns(namespace, CloneFlags::CLONE_NEWNET), runtime) else { return };
            runtime.block_on(accept(listener));
        })
        .map_err(failed())?;
    Ok(port)
}

async fn accept(listener: TcpListener) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        let Ok((mut client, _)) = listener.accept().await else {
            // Out of file descriptors: wait for a connection to end.
            connections.join_next().await;
            continue;
        };
        connections.spawn(async move {
            // A refused connection ends the client's, as without the forwarder.
            if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, API_PORT)).await {
                let _ = client.set_nodelay(true);
                let _ = server.set_nodelay(true);
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
