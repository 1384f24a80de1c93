//! Owns the directory of one cluster on the host: keys, logs, etcd's data, the containers' files.
//!
//! Its name is predictable and its parent is writable for all users, so it is used only if it is a
//! directory that belongs to this user and that no other user may write to.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::ClusterError;

/// Other users, those of containers, may pass through to their own files, but not list.
const PASS_THROUGH: u32 = 0o711;

/// The longest name: it is part of socket paths, which have room for 107 bytes.
const MAX_NAME: usize = 30;

/// The directory of one cluster.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The directory of the cluster `name`, which need not exist. Names have lower-case letters,
    /// digits and dashes, at most 30.
    pub fn of(name: &str) -> Result<Self, ClusterError> {
        let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(valid) {
            let text = format!("`{name}` (lower-case letters, digits and dashes, at most {MAX_NAME})");
            return Err(ClusterError::Invalid { what: "name of a cluster", text });
        }
        Ok(Self(base().join(name)))
    }

    /// The directory at a path that [`StateDir::of`] returned before, in another process.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Creates the directory, empty, without what a cluster of this name left that was killed as a
    /// whole. The caller holds [`StateDir::lock`].
    pub(crate) fn clear(&self) -> Result<(), ClusterError> {
        self.remove_all_but_the_lock()?;
        for path in [self.logs(), self.keys(), self.images()] {
            create_owned(&path)?;
        }
        Ok(())
    }

    fn remove_all_but_the_lock(&self) -> Result<(), ClusterError> {
        for entry in fs::read_dir(&self.0).map_err(ClusterError::file("read", &self.0))? {
            let entry = entry.map_err(ClusterError::file("read", &self.0))?;
            let path = entry.path();
            if path == self.lock_file() {
                continue;
            }
            // The type of the entry itself: a link to a directory is removed as a link.
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(ClusterError::file("remove", &path))?;
        }
        Ok(())
    }

    /// Creates the directory where it is missing, and takes its lock; `None` if a cluster of this
    /// name holds it.
    pub(crate) fn lock(&self) -> Result<Option<Flock<File>>, ClusterError> {
        for path in [&base(), &self.0] {
            create_owned(path)?;
        }
        try_lock(&self.lock_file())
    }

    /// Returns true if a cluster holds the lock. Creates nothing.
    fn is_locked(&self) -> bool {
        match OpenOptions::new().write(true).open(self.lock_file()) {
            Ok(file) => {
                matches!(Flock::lock(file, FlockArg::LockExclusiveNonblock), Err((_, Errno::EWOULDBLOCK)))
            }
            // A directory without a lock is about to be removed by the cluster that held it.
            Err(_) => self.0.is_dir(),
        }
    }

    /// Removes the directory with all it holds. The caller holds [`StateDir::lock`], which goes last.
    pub(crate) fn remove(&self) -> Result<(), ClusterError> {
        self.remove_all_but_the_lock()?;
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ClusterError::file("remove", &self.0)(error))
            }
            _ => Ok(()),
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The kubeconfig of the administrator, as clients on the host use it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    /// The log of a component, for example `kubelet`.
    pub fn log(&self, component: &str) -> PathBuf {
        self.logs().join(format!("{component}.log"))
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.0.join("keys")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    /// etcd's data.
    pub(crate) fn etcd(&self) -> PathBuf {
        self.0.join("etcd")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }

    /// The cgroups of the cluster, one per line.
    pub(crate) fn cgroups(&self) -> PathBuf {
        self.0.join("cgroups")
    }

    /// The socket of the first process.
    pub(crate) fn control(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    /// Written by the keeper at the end of its start: the port of the API server on the host.
    pub(crate) fn port(&self) -> PathBuf {
        self.0.join("port")
    }

    /// The process id of the keeper.
    pub(crate) fn keeper_pid(&self) -> PathBuf {
        self.0.join("keeper.pid")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }
}

/// One directory per user, so that users of one machine do not collide.
fn base() -> PathBuf {
    std::env::temp_dir().join(format!("smc-cluster-{}", nix::unistd::geteuid()))
}

/// Lists the running clusters of this user.
pub fn running_clusters() -> Vec<String> {
    let Ok(entries) = fs::read_dir(base()) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| StateDir::of(name).is_ok_and(|state| state.is_locked())).collect();
    names.sort();
    names
}

fn try_lock(path: &Path) -> Result<Option<Flock<File>>, ClusterError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(ClusterError::file("open", path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(ClusterError::file("lock", path)(errno.into())),
    }
}

/// Creates a directory, or takes one that belongs to this user alone. A link is never followed.
fn create_owned(path: &Path) -> Result<(), ClusterError> {
    match DirBuilder::new().mode(PASS_THROUGH).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(ClusterError::file("create", path)(error));
        }
        _ => {}
    }
    let entry = fs::symlink_metadata(path).map_err(ClusterError::file("inspect", path))?;
    let objection = if !entry.is_dir() {
        "it is not a directory"
    } else if entry.uid() != nix::unistd::geteuid().as_raw() {
        "it belongs to another user"
    } else if entry.mode() & 0o022 != 0 {
        "other users may write to it"
    } else {
        return Ok(());
    };
    let text = format!("{}: {objection}; remove it, or set TMPDIR", path.display());
    Err(ClusterError::Invalid { what: "directory of clusters", text })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_name_that_could_leave_the_directory_is_invalid() {
        assert!(StateDir::of("t-1").is_ok());
        for name in ["", "..", "a/b", "A", "a b", "a.b", "1234567890123456789012345678901"] {
            assert!(StateDir::of(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_cluster_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let precious = directory.path().join("precious");
        fs::create_dir(&precious).unwrap();
        symlink(&precious, directory.path().join("link")).unwrap();
        assert!(create_owned(&directory.path().join("link")).is_err());
        assert!(create_owned(&directory.path().join("new")).is_ok());
        assert!(create_owned(&directory.path().join("new")).is_ok());
    }
}
