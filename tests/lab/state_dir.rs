//! The state directory of a lab on the host: the only thing the lab leaves outside its namespaces while it runs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::LabError;
use super::names::NamespacedName;

/// A Unix socket's path has room for 108 bytes with its end.
const MAX_SOCKET_PATH: usize = 107;

/// The state directory of one lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The directory of the lab `name`, which may not exist. Names are as those of Kubernetes objects.
    pub fn of(name: &str) -> Result<Self, LabError> {
        if name.len() > 40 || NamespacedName::new("lab", name).is_none() {
            let text = format!("`{name}` (lower-case letters, digits and dashes, at most 40)");
            return Err(LabError::Invalid { what: "lab name", text });
        }
        let dir = Self(base().join(name));
        let socket = dir.control_socket();
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            let text =
                format!("{}: longer than {MAX_SOCKET_PATH} bytes; choose a shorter TMPDIR", socket.display());
            return Err(LabError::Invalid { what: "path of the control socket", text });
        }
        Ok(dir)
    }

    /// The same directory at another place: inside the lab it is mounted at a path of its own.
    pub(super) fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Creates the directory, empty. What a lab of the same name left behind that did not end by itself (power cut,
    /// every process killed at once) is removed; a running one is refused.
    pub(super) fn create(&self, name: &str) -> Result<(), LabError> {
        fs::create_dir_all(&self.0).map_err(LabError::file("create", &self.0))?;
        let Some(lock) = self.try_lock()? else { return Err(LabError::AlreadyRunning(name.to_owned())) };
        for entry in fs::read_dir(&self.0).map_err(LabError::file("read", &self.0))? {
            let path = entry.map_err(LabError::file("read", &self.0))?.path();
            if path == self.lock_file() {
                continue;
            }
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(LabError::file("remove", &path))?;
        }
        // Other users (Envoy's, the applications') pass through to files that are theirs, but can't list.
        for path in [base().as_path(), &self.0] {
            fs::set_permissions(path, Permissions::from_mode(0o711))
                .map_err(LabError::file("set the mode of", path))?;
        }
        for path in [self.published(), self.logs(), self.view(), self.0.join("pods")] {
            fs::create_dir(&path).map_err(LabError::file("create", &path))?;
            fs::set_permissions(&path, Permissions::from_mode(0o711))
                .map_err(LabError::file("set the mode of", &path))?;
        }
        drop(lock);
        Ok(())
    }

    /// The lock its first process holds while the lab lives; `None` while somebody holds it.
    pub(super) fn try_lock(&self) -> Result<Option<Flock<File>>, LabError> {
        let path = self.lock_file();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(LabError::file("open", &path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(LabError::file("lock", &path)(errno.into())),
        }
    }

    /// Removes the directory and everything in it; missing is fine.
    pub(super) fn remove(&self) -> Result<(), LabError> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LabError::file("remove", &self.0)(error))
            }
            _ => Ok(()),
        }
    }

    /// Keeps it after the end of the lab, for somebody to look at.
    pub(super) fn keep(&self) {
        let _ = fs::write(self.0.join("keep"), "");
    }

    pub(super) fn is_kept(&self) -> bool {
        self.0.join("keep").exists()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Requests to the lab go here.
    pub(super) fn control_socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    pub(super) fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }

    /// A private copy of a mesh directory, for those who edit it live.
    pub(super) fn mesh(&self) -> PathBuf {
        self.0.join("mesh")
    }

    /// What the controller reads.
    pub(super) fn published(&self) -> PathBuf {
        self.0.join("published")
    }

    /// Mount point while the inside is being put together.
    pub(super) fn view(&self) -> PathBuf {
        self.0.join("view")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    /// What the supervisor says.
    pub(super) fn lab_log(&self) -> PathBuf {
        self.logs().join("lab.log")
    }

    /// The controller's log.
    pub fn controller_log(&self) -> PathBuf {
        self.logs().join("controller.log")
    }

    /// The log of a Pod's container, or of `envoy` or `init`.
    pub fn pod_log(&self, pod: &NamespacedName, container: &str) -> PathBuf {
        self.logs().join(&pod.namespace).join(&pod.name).join(format!("{container}.log"))
    }

    /// Files of one Pod: hosts, bootstrap.
    pub(super) fn pod(&self, pod: &NamespacedName) -> PathBuf {
        self.0.join("pods").join(&pod.namespace).join(&pod.name)
    }
}

/// Per user, so that two users of one machine don't meet.
fn base() -> PathBuf {
    std::env::temp_dir().join(format!("smc-lab-{}", nix::unistd::getuid()))
}

/// The labs that run now.
pub fn names_of_labs() -> Vec<String> {
    let Ok(entries) = fs::read_dir(base()) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let Ok(dir) = StateDir::of(name) else { return false };
            dir.config().exists() && dir.try_lock().is_ok_and(|lock| lock.is_none())
        })
        .collect();
    names.sort();
    names
}
