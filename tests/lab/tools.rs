//! Owns small programs to run in Pods: a server that reports requests, and clients that report
//! responses. Unlike `curl` and `nc` they exist on every machine, and print JSON.

mod authorization;
mod dialogue;
mod echo;
mod fetch;
mod grpc;
mod load;
mod log_records;
mod tcp;
mod tls;

pub use dialogue::{
    ApplicationArgs, Dialogue, DialogueArgs, End, Exchange, Heard, Step, application, dialogue,
};
pub use echo::{EchoArgs, echo};
pub use fetch::{FetchArgs, RequestArgs, fetch};
pub use load::{LoadArgs, LoadResult, load};
pub use tcp::{TcpArgs, tcp};
pub use tls::{TlsArgs, tls};

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpStream, ToSocketAddrs, lookup_host};

/// Resolves a name. One without an address fails with [`io::ErrorKind::NotFound`].
async fn resolve(address: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let unresolved = |error: io::Error| io::Error::new(io::ErrorKind::NotFound, error);
    Ok(lookup_host(address).await.map_err(unresolved)?.collect())
}

/// Resolves a name, and connects.
async fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    TcpStream::connect(&*resolve(address).await?).await
}

/// The error of a client whose time limit has passed.
fn timeout() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "timeout")
}
