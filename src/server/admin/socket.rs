//! The unix socket of the administration API.
//!
//! Owns the file: only its owner may use it, it replaces a stale socket and never one that is in use, and it
//! is removed when the server ends.

use std::convert::Infallible;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Poll, ready};

use futures_util::stream::poll_fn;
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tower::Service;
use tracing::warn;

/// The administration socket cannot be served.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another controller serves at this socket.
    #[error("another process answers at the administration socket {}", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The file at this path is no socket, so it is not removed.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {action} the administration socket {}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

/// A bound socket, removed with its last copy. Servers may take turns at it: a client that connects in
/// between waits.
#[derive(Debug, Clone)]
pub(crate) struct AdminSocket {
    listener: Arc<UnixListener>,
    file: Arc<SocketFile>,
}

#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            warn!(path = %self.0.display(), %error, "cannot remove the administration socket");
        }
    }
}

impl AdminSocket {
    /// Binds the socket; replaces a stale one, which refuses connections.
    pub(crate) async fn bind(path: &Path) -> Result<Self, SocketError> {
        let failed = |action| move |source| SocketError::Io { action, path: path.to_owned(), source };
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("look at")(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::NotASocket { path: path.to_owned() });
            }
            Ok(_) => match UnixStream::connect(path).await {
                Ok(_) => return Err(SocketError::InUse { path: path.to_owned() }),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(failed("remove the stale file of"))?;
                }
                Err(error) => return Err(failed("try")(error)),
            },
        }
        // Bound in a private directory, restricted to mode 0600, and only then renamed into place, so that
        // no other user can connect at any moment.
        let private = PrivateDirectory::new(path).map_err(failed("make a place for"))?;
        let hidden = private.socket();
        let listener = UnixListener::bind(&hidden).map_err(failed("bind"))?;
        std::fs::set_permissions(&hidden, Permissions::from_mode(0o600)).map_err(failed("restrict"))?;
        std::fs::rename(&hidden, path).map_err(failed("place"))?;
        Ok(Self { listener: Arc::new(listener), file: Arc::new(SocketFile(path.to_owned())) })
    }
}

/// A directory beside a socket for its owner only, removed when dropped with the socket in it.
struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    /// Creates it. An existing directory may belong to another user, so it is removed or an error, never
    /// used.
    fn new(beside: &Path) -> io::Result<Self> {
        // Short, since a socket's path is limited to about a hundred bytes.
        let directory = Self(beside.with_extension("new"));
        directory.remove();
        DirBuilder::new().mode(0o700).create(&directory.0).map(|()| directory)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }

    /// Removes the directory and the socket in it. A failure shows at the next attempt to create it.
    fn remove(&self) {
        let _ = std::fs::remove_file(self.socket());
        let _ = std::fs::remove_dir(&self.0);
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Serves until `shutdown`. The file is removed when this returns, unless there is a copy of the socket.
pub(crate) async fn serve<S>(
    socket: AdminSocket,
    service: S,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + NamedService,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let AdminSocket { listener, file } = socket;
    let connections = poll_fn(move |context| {
        let accepted = ready!(listener.poll_accept(context));
        Poll::Ready(Some(accepted.map(|(connection, _)| connection)))
    });
    let served = Server::builder()
        .add_service(service)
        .serve_with_incoming_shutdown(connections, shutdown.cancelled_owned())
        .await;
    drop(file);
    served
}

#[cfg(test)]
mod tests {
    use notify::Watcher;
    use notify::event::{CreateKind, EventKind};

    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_one_in_use_is_not_and_none_is_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "the listener leaves its file behind");
        let bound = AdminSocket::bind(&path).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(AdminSocket::bind(&path).await, Err(SocketError::InUse { .. })));
        assert!(path.exists());
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn at_no_moment_could_another_user_connect_to_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        let (sender, events) = std::sync::mpsc::channel();
        let mut watcher = notify::recommended_watcher(sender).unwrap();
        watcher.watch(directory.path(), notify::RecursiveMode::NonRecursive).unwrap();
        let bound = AdminSocket::bind(&path).await.unwrap();
        loop {
            let event = events.recv_timeout(std::time::Duration::from_secs(20)).unwrap().unwrap();
            let is_socket = matches!(event.kind, EventKind::Create(kind) if kind != CreateKind::Folder);
            assert!(!is_socket, "made in the open: {event:?}");
            if event.paths.contains(&path) {
                break;
            }
        }
        let names: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["admin.sock"]);
        drop(bound);
    }

    #[tokio::test]
    async fn a_directory_that_exists_already_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        let stale = directory.path().join("admin.new");
        std::fs::create_dir(&stale).unwrap();
        drop(std::os::unix::net::UnixListener::bind(stale.join("s")).unwrap());
        drop(AdminSocket::bind(&path).await.unwrap());
        std::fs::create_dir(&stale).unwrap();
        std::fs::write(stale.join("trap"), "").unwrap();
        assert!(matches!(AdminSocket::bind(&path).await, Err(SocketError::Io { .. })));
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(AdminSocket::bind(&path).await, Err(SocketError::NotASocket { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
