//! Owns the state directory of a lab on the host, the only thing outside the lab's namespaces while
//! it runs.
//!
//! Its name is predictable, and its parent is writable for all users. So it and the directory of
//! all labs are used only if they are real directories that belong to this user and that no other
//! user may write to. Anything else in their place, above all a symbolic link, is refused and never
//! followed.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use smc_types::ids::NamespacedName;

use super::LabError;
use super::config;

/// A Unix socket's path has room for 108 bytes, including the final NUL.
const MAX_SOCKET_PATH: usize = 107;

/// Other users (Envoy's, the applications') may pass through to their own files, but not list.
const PASS_THROUGH: u32 = 0o711;

/// The state directory of one lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Returns the directory of the lab `name`, which need not exist; if it exists, it belongs to
    /// this user. Lab names follow the rules of Kubernetes names.
    pub fn of(name: &str) -> Result<Self, LabError> {
        Self::below(&base(), name)
    }

    fn below(base: &Path, name: &str) -> Result<Self, LabError> {
        if name.len() > 40 || NamespacedName::new("lab", name).is_err() {
            let text = format!("`{name}` (lower-case letters, digits and dashes, at most 40)");
            return Err(LabError::Invalid { what: "lab name", text });
        }
        let dir = Self(base.join(name));
        let socket = dir.control_socket();
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            let text =
                format!("{}: longer than {MAX_SOCKET_PATH} bytes; choose a shorter TMPDIR", socket.display());
            return Err(LabError::Invalid { what: "path of the control socket", text });
        }
        for path in [base, dir.path()] {
            match check_owner(path) {
                Err(LabError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                checked => checked?,
            }
        }
        Ok(dir)
    }

    /// The same directory under another path: inside the lab it is mounted elsewhere.
    pub(super) fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Creates the directory, empty. Removes the remains of an earlier lab of this name that was
    /// killed as a whole (power cut, all processes at once). Fails if a lab of this name is
    /// running.
    pub(super) fn create(&self, name: &str) -> Result<(), LabError> {
        // Once the parent belongs to this user alone, no other user can replace the directory
        // itself.
        for path in [self.0.parent().unwrap_or(&self.0), &self.0] {
            create_owned(path)?;
        }
        let Some(lock) = self.try_lock()? else { return Err(LabError::AlreadyRunning(name.to_owned())) };
        for entry in fs::read_dir(&self.0).map_err(LabError::file("read", &self.0))? {
            let entry = entry.map_err(LabError::file("read", &self.0))?;
            let path = entry.path();
            if path == self.lock_file() {
                continue;
            }
            // The type of the entry itself: a link to a directory is removed as a link.
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(LabError::file("remove", &path))?;
        }
        for path in [self.published(), self.logs(), self.view(), self.0.join("pods")] {
            create_owned(&path)?;
        }
        drop(lock);
        Ok(())
    }

    /// Takes the lock that the first process holds while the lab lives; `None` if it is taken.
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

    /// Returns true if a lab holds the lock. Creates nothing: the directory may be about to be
    /// removed.
    fn is_locked(&self) -> bool {
        let lock = OpenOptions::new().write(true).open(self.lock_file());
        lock.is_ok_and(|file| {
            matches!(Flock::lock(file, FlockArg::LockExclusiveNonblock), Err((_, Errno::EWOULDBLOCK)))
        })
    }

    /// Removes the directory and its content; a missing directory is not an error.
    pub(super) fn remove(&self) -> Result<(), LabError> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LabError::file("remove", &self.0)(error))
            }
            _ => Ok(()),
        }
    }

    /// Marks the directory to be kept after the end of the lab.
    pub(super) fn keep(&self) {
        let _ = fs::write(self.0.join("keep"), "");
    }

    pub(super) fn is_kept(&self) -> bool {
        self.0.join("keep").exists()
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The socket for requests to the lab.
    pub(super) fn control_socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    pub(super) fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }

    /// The private copy of a mesh directory, for tests that edit it.
    pub(super) fn mesh(&self) -> PathBuf {
        self.0.join("mesh")
    }

    /// The directory that the controller reads.
    pub(super) fn published(&self) -> PathBuf {
        self.0.join("published")
    }

    /// Mount point of the file system view until it replaces `/run`.
    pub(super) fn view(&self) -> PathBuf {
        self.0.join("view")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    /// The supervisor's messages.
    pub(super) fn lab_log(&self) -> PathBuf {
        self.logs().join("lab.log")
    }

    /// Returns the log of a controller replica.
    pub fn controller_log(&self, replica: u16) -> PathBuf {
        self.logs().join(format!("{}.log", config::numbered("controller", replica)))
    }

    /// Returns the log of a Pod's container, `envoy` or `init`.
    pub fn pod_log(&self, pod: &NamespacedName, container: &str) -> PathBuf {
        self.logs().join(pod.namespace()).join(pod.name()).join(format!("{container}.log"))
    }

    /// Files of one Pod: `hosts`, the bootstrap.
    pub(super) fn pod(&self, pod: &NamespacedName) -> PathBuf {
        self.0.join("pods").join(pod.namespace()).join(pod.name())
    }
}

/// One directory per user, so that users of one machine do not collide.
fn base() -> PathBuf {
    std::env::temp_dir().join(format!("smc-lab-{}", nix::unistd::geteuid()))
}

/// Creates a directory, or takes an existing one that belongs to this user alone.
fn create_owned(path: &Path) -> Result<(), LabError> {
    match DirBuilder::new().mode(PASS_THROUGH).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(LabError::file("create", path)(error));
        }
        _ => check_owner(path)?,
    }
    // Sets the mode regardless of the umask.
    fs::set_permissions(path, Permissions::from_mode(PASS_THROUGH))
        .map_err(LabError::file("set the mode of", path))
}

/// Fails unless `path` is a directory that belongs to this user alone.
fn check_owner(path: &Path) -> Result<(), LabError> {
    // Of the entry itself, not of a link's target.
    let entry = fs::symlink_metadata(path).map_err(LabError::file("inspect", path))?;
    match objection(&entry, nix::unistd::geteuid().as_raw()) {
        None => Ok(()),
        Some(problem) => Err(LabError::NotPrivate { path: path.to_owned(), problem }),
    }
}

fn objection(entry: &Metadata, user: u32) -> Option<&'static str> {
    if !entry.is_dir() {
        Some("it is not a directory")
    } else if entry.uid() != user {
        Some("it belongs to another user")
    } else if entry.mode() & 0o022 != 0 {
        Some("other users may write to it")
    } else {
        None
    }
}

/// Lists the running labs.
pub fn running_labs() -> Vec<String> {
    if check_owner(&base()).is_err() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(base()) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let Ok(dir) = StateDir::of(name) else { return false };
            dir.config().exists() && dir.is_locked()
        })
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use tempfile::TempDir;

    use super::*;

    /// A directory that the test must not change.
    fn precious(directory: &TempDir) -> PathBuf {
        let precious = directory.path().join("precious");
        fs::create_dir_all(precious.join("inner")).unwrap();
        fs::write(precious.join("inner/file"), "text").unwrap();
        fs::set_permissions(&precious, Permissions::from_mode(0o700)).unwrap();
        precious
    }

    fn assert_untouched(precious: &Path) {
        assert_eq!(fs::read(precious.join("inner/file")).unwrap(), b"text");
        assert_eq!(fs::read_dir(precious).unwrap().count(), 1);
        assert_eq!(fs::symlink_metadata(precious).unwrap().mode() & 0o777, 0o700);
    }

    fn create(base: &Path) -> Result<(), LabError> {
        // Creates without the checks of `below`, as if another user were faster.
        StateDir(base.join("lab")).create("lab")
    }

    #[test]
    fn a_name_that_could_leave_the_state_directory_is_invalid() {
        assert!("bookstore/bookstore-v1".parse::<NamespacedName>().is_ok());
        for text in ["a", "/", "a/", "../b", "a/..", "a/b/c", "A/b", "a/.b", "a/b c", "a/b\n", "a/b..c"] {
            assert!(text.parse::<NamespacedName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_of_all_labs_is_refused() {
        let directory = TempDir::new().unwrap();
        let precious = precious(&directory);
        fs::create_dir(precious.join("lab")).unwrap();
        let base = directory.path().join("base");
        symlink(&precious, &base).unwrap();
        let error = create(&base).unwrap_err();
        assert!(matches!(&error, LabError::NotPrivate { path, .. } if *path == base), "{error:?}");
        assert!(StateDir::below(&base, "lab").is_err());
        fs::remove_dir(precious.join("lab")).unwrap();
        assert_untouched(&precious);
    }

    #[test]
    fn a_link_in_the_place_of_a_lab_is_refused() {
        let directory = TempDir::new().unwrap();
        let precious = precious(&directory);
        let base = directory.path().join("base");
        fs::create_dir(&base).unwrap();
        symlink(&precious, base.join("lab")).unwrap();
        let error = create(&base).unwrap_err();
        assert!(
            matches!(&error, LabError::NotPrivate { path, .. } if *path == base.join("lab")),
            "{error:?}"
        );
        assert!(StateDir::below(&base, "lab").is_err());
        assert_untouched(&precious);
    }

    #[test]
    fn a_directory_that_others_own_or_may_write_to_is_refused() {
        let directory = TempDir::new().unwrap();
        for mode in [0o720, 0o702, 0o777, 0o1777] {
            let base = directory.path().join(format!("{mode:o}"));
            fs::create_dir(&base).unwrap();
            fs::set_permissions(&base, Permissions::from_mode(mode)).unwrap();
            assert!(create(&base).is_err(), "{mode:o}");
            assert_eq!(fs::read_dir(&base).unwrap().count(), 0, "{mode:o}");
        }
        let entry = fs::symlink_metadata(directory.path()).unwrap();
        assert_eq!(objection(&entry, entry.uid() + 1), Some("it belongs to another user"));
        if nix::unistd::geteuid().is_root() {
            let base = directory.path().join("of another");
            fs::create_dir(&base).unwrap();
            chown(&base, Some(65_534), None).unwrap();
            assert!(create(&base).is_err());
        }
    }

    #[test]
    fn remains_of_a_lab_are_removed_and_links_in_them_are_not_followed() {
        let directory = TempDir::new().unwrap();
        let precious = precious(&directory);
        let base = directory.path().join("base");
        create(&base).unwrap();
        let state = StateDir::below(&base, "lab").unwrap();
        assert_eq!(fs::symlink_metadata(&base).unwrap().mode() & 0o777, PASS_THROUGH);
        symlink(&precious, state.path().join("link")).unwrap();
        fs::write(state.logs().join("old"), "").unwrap();
        create(&base).unwrap();
        assert_eq!(fs::read_dir(state.logs()).unwrap().count(), 0);
        fs::remove_file(state.lock_file()).unwrap();
        assert!(!state.is_locked() && !state.lock_file().exists(), "looking leaves nothing behind");
        let lock = state.try_lock().unwrap();
        assert!(lock.is_some() && state.is_locked());
        assert!(!state.path().join("link").exists());
        assert_untouched(&precious);
        symlink(&precious, state.path().join("link")).unwrap();
        state.remove().unwrap();
        assert_untouched(&precious);
    }
}
