//! The state directory of a lab on the host: the only thing the lab leaves outside its namespaces while it runs.
//!
//! It lies under a name that anybody can guess, in a directory that anybody can write to. So neither it nor the
//! directory of all labs is used unless it is a real directory of this user's that nobody else may write to: what
//! somebody else put there, a link above all, is refused, and never followed.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::LabError;
use super::config;
use super::names::NamespacedName;

/// A Unix socket's path has room for 108 bytes with its end.
const MAX_SOCKET_PATH: usize = 107;

/// Other users (Envoy's, the applications') pass through to files that are theirs, but can't list.
const PASS_THROUGH: u32 = 0o711;

/// The state directory of one lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The directory of the lab `name`, which may not exist; if it does, it is this user's. Names are as those of
    /// Kubernetes objects.
    pub fn of(name: &str) -> Result<Self, LabError> {
        Self::below(&base(), name)
    }

    fn below(base: &Path, name: &str) -> Result<Self, LabError> {
        if name.len() > 40 || NamespacedName::new("lab", name).is_none() {
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
            match own_directory(path) {
                Err(LabError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                judged => judged?,
            }
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
        // Once the first is this user's alone, nobody else can put anything in the place of the second.
        for path in [self.0.parent().unwrap_or(&self.0), &self.0] {
            make_own_directory(path)?;
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
            make_own_directory(&path)?;
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

    /// Whether a lab lives in it. Creates nothing: the directory may be about to go.
    fn is_inhabited(&self) -> bool {
        let lock = OpenOptions::new().write(true).open(self.lock_file());
        lock.is_ok_and(|file| {
            matches!(Flock::lock(file, FlockArg::LockExclusiveNonblock), Err((_, Errno::EWOULDBLOCK)))
        })
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

    /// The log of a replica of the controller.
    pub fn controller_log(&self, replica: u16) -> PathBuf {
        self.logs().join(format!("{}.log", config::numbered("controller", replica)))
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
    std::env::temp_dir().join(format!("smc-lab-{}", nix::unistd::geteuid()))
}

/// Creates a directory, or takes the one that is there if it is this user's alone.
fn make_own_directory(path: &Path) -> Result<(), LabError> {
    match DirBuilder::new().mode(PASS_THROUGH).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(LabError::file("create", path)(error));
        }
        _ => own_directory(path)?,
    }
    // Whatever the umask took away.
    fs::set_permissions(path, Permissions::from_mode(PASS_THROUGH))
        .map_err(LabError::file("set the mode of", path))
}

/// Refuses what is not a directory of this user's alone.
fn own_directory(path: &Path) -> Result<(), LabError> {
    // Of the entry itself, not of what it may link to.
    let entry = fs::symlink_metadata(path).map_err(LabError::file("look at", path))?;
    match objection(&entry, nix::unistd::geteuid().as_raw()) {
        None => Ok(()),
        Some(problem) => Err(LabError::NotOurs { path: path.to_owned(), problem }),
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

/// The labs that run now.
pub fn names_of_labs() -> Vec<String> {
    if own_directory(&base()).is_err() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(base()) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let Ok(dir) = StateDir::of(name) else { return false };
            dir.config().exists() && dir.is_inhabited()
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

    /// A directory with something to lose.
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
        // As a lab that was looked up before somebody else came along.
        StateDir(base.join("lab")).create("lab")
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_of_all_labs_is_refused_and_not_followed() {
        let directory = TempDir::new().unwrap();
        let precious = precious(&directory);
        fs::create_dir(precious.join("lab")).unwrap();
        let base = directory.path().join("base");
        symlink(&precious, &base).unwrap();
        let error = create(&base).unwrap_err();
        assert!(matches!(&error, LabError::NotOurs { path, .. } if *path == base), "{error:?}");
        assert!(StateDir::below(&base, "lab").is_err());
        fs::remove_dir(precious.join("lab")).unwrap();
        assert_untouched(&precious);
    }

    #[test]
    fn a_link_in_the_place_of_a_lab_is_refused_and_not_followed() {
        let directory = TempDir::new().unwrap();
        let precious = precious(&directory);
        let base = directory.path().join("base");
        fs::create_dir(&base).unwrap();
        symlink(&precious, base.join("lab")).unwrap();
        let error = create(&base).unwrap_err();
        assert!(matches!(&error, LabError::NotOurs { path, .. } if *path == base.join("lab")), "{error:?}");
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
    fn what_a_lab_left_behind_is_removed_and_links_in_it_are_not_followed() {
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
        assert!(!state.is_inhabited() && !state.lock_file().exists(), "looking leaves nothing behind");
        let lock = state.try_lock().unwrap();
        assert!(lock.is_some() && state.is_inhabited());
        assert!(!state.path().join("link").exists());
        assert_untouched(&precious);
        symlink(&precious, state.path().join("link")).unwrap();
        state.remove().unwrap();
        assert_untouched(&precious);
    }
}
