//! The client of the administration API, for the command line and the lab.
//!
//! Owns the connection; the calls are generated.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use smc_host::sync::lock;
use smc_proto::admin::v1::admin_client::AdminClient;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// No call does more than issue a certificate, except those over [`connect_patiently`].
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A new member of the Raft group has to catch up.
pub const MEMBERSHIP_TIMEOUT: Duration = Duration::from_mins(7);

/// The largest response. A bootstrap is 10 KiB; a list grows with the mesh, about 500 bytes per proxy.
const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// The generated client over a unix socket.
pub type Client = AdminClient<Channel>;

/// No controller answers at the socket.
#[derive(Debug, Error)]
#[error("cannot reach a controller at {}", path.display())]
pub struct ConnectError {
    path: PathBuf,
    #[source]
    source: tonic::transport::Error,
}

/// Calls over a stream that leads to the administration socket of a controller. There is one stream: when it
/// ends, so do the calls.
pub async fn over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    limit: Duration,
) -> Result<Client, tonic::transport::Error> {
    let stream = Mutex::new(Some(stream));
    let connector = service_fn(move |_: Uri| {
        let stream = lock(&stream).take().map(TokioIo::new);
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    let channel = endpoint(limit).connect_with_connector(connector).await?;
    Ok(client(channel))
}

/// Connects to the administration socket of a controller.
pub async fn connect(socket: &Path) -> Result<Client, ConnectError> {
    connect_for(socket, CALL_TIMEOUT).await
}

/// As [`connect`], for calls that change the group and may take minutes.
pub async fn connect_patiently(socket: &Path) -> Result<Client, ConnectError> {
    connect_for(socket, MEMBERSHIP_TIMEOUT).await
}

async fn connect_for(socket: &Path, limit: Duration) -> Result<Client, ConnectError> {
    let path = socket.to_owned();
    let connector = service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = endpoint(limit).connect_with_connector(connector).await;
    let channel = channel.map_err(|source| ConnectError { path: socket.to_owned(), source })?;
    Ok(client(channel))
}

fn endpoint(limit: Duration) -> Endpoint {
    // The authority is not resolved: the connector knows where to connect to.
    Endpoint::from_static("http://smc.admin").timeout(limit)
}

fn client(channel: Channel) -> Client {
    AdminClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES)
}
