//! Owns a state directory on the host, the only thing outside its namespaces that a sandbox changes while
//! it runs.
//!
//! Its name is predictable, and its parent is writable for all users. So it and the directory of all
//! sandboxes of a kind are used only if they are real directories that belong to this user and that no
//! other user may write to. Anything else in their place, above all a symbolic link, is refused and never
//! followed.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

/// Other users (Envoy's, the containers') may pass through to their own files, but not list.
const PASS_THROUGH: u32 = 0o711;

/// A Unix socket's path has room for 108 bytes, including the final NUL.
const MAX_SOCKET_PATH: usize = 107;

/// A state directory cannot be used.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// The name could leave the directory, or is too long.
    #[error("invalid name: `{0}` (lower-case letters, digits and dashes, at most 40)")]
    Name(String),
    /// The path has no room for a socket.
    #[error("invalid path of the control socket: {}: longer than {MAX_SOCKET_PATH} bytes; choose a shorter TMPDIR",
        .0.display())]
    TooLong(PathBuf),
    /// A file operation failed.
    #[error("can't {action} {}", path.display())]
    File {
        /// The operation: read, write, create, …
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Other users may have written to the directory.
    #[error("won't use {}: {problem}; remove it, or set TMPDIR to a directory of your own", path.display())]
    NotPrivate {
        /// Path of the directory.
        path: PathBuf,
        /// The objection to it.
        problem: &'static str,
    },
}

impl DirectoryError {
    fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

/// The state directory of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDirectory(PathBuf);

impl StateDirectory {
    /// The directory of the sandbox `name` of a kind, which need not exist; if it exists, it belongs to
    /// this user.
    ///
    /// # Errors
    ///
    /// The name is not one of lower-case letters, digits and dashes, its path is too long for a socket, or
    /// what is there is not this user's alone.
    pub fn of(kind: &str, name: &str) -> Result<Self, DirectoryError> {
        Self::below(&base(kind), name)
    }

    fn below(base: &Path, name: &str) -> Result<Self, DirectoryError> {
        let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 40 || !name.chars().all(valid) {
            return Err(DirectoryError::Name(name.to_owned()));
        }
        let dir = Self(base.join(name));
        let socket = dir.control_socket();
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(DirectoryError::TooLong(socket));
        }
        for path in [base, dir.path()] {
            match check_owner(path) {
                Err(DirectoryError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                checked => checked?,
            }
        }
        Ok(dir)
    }

    /// The directory at a path, for another process of the sandbox, which may see it elsewhere.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The socket for requests to the sandbox.
    pub fn control_socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    fn keep_file(&self) -> PathBuf {
        self.0.join("keep")
    }

    /// Creates the directory where it is missing, and takes the lock that a sandbox holds while it runs;
    /// `None` if one holds it.
    ///
    /// # Errors
    ///
    /// The directory is not this user's alone, or a file operation fails.
    pub fn lock(&self) -> Result<Option<Flock<File>>, DirectoryError> {
        // Once the parent belongs to this user alone, no other user can replace the directory itself.
        for path in [self.0.parent().unwrap_or(&self.0), &self.0] {
            create_owned(path)?;
        }
        self.relock()
    }

    /// As [`StateDirectory::lock`], of a directory that is there.
    ///
    /// # Errors
    ///
    /// The lock's file cannot be written.
    pub fn relock(&self) -> Result<Option<Flock<File>>, DirectoryError> {
        let path = self.lock_file();
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(DirectoryError::file("open", &path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(DirectoryError::file("lock", &path)(errno.into())),
        }
    }

    /// Whether a sandbox holds the lock. Creates nothing: the directory may be about to be removed, and
    /// then its sandbox still ends.
    fn is_locked(&self) -> bool {
        match OpenOptions::new().write(true).open(self.lock_file()) {
            Ok(file) => {
                matches!(Flock::lock(file, FlockArg::LockExclusiveNonblock), Err((_, Errno::EWOULDBLOCK)))
            }
            Err(_) => self.0.is_dir(),
        }
    }

    /// Empties the directory of what a sandbox of this name left that was killed as a whole (power cut, all
    /// processes at once), and creates these directories in it. The caller holds the lock.
    ///
    /// # Errors
    ///
    /// A file operation fails.
    pub fn clear(&self, directories: &[&Path]) -> Result<(), DirectoryError> {
        self.remove_all_but_the_lock()?;
        directories.iter().try_for_each(|path| create_owned(path))
    }

    fn remove_all_but_the_lock(&self) -> Result<(), DirectoryError> {
        for entry in fs::read_dir(&self.0).map_err(DirectoryError::file("read", &self.0))? {
            let entry = entry.map_err(DirectoryError::file("read", &self.0))?;
            let path = entry.path();
            if path == self.lock_file() {
                continue;
            }
            // The type of the entry itself: a link to a directory is removed as a link.
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(DirectoryError::file("remove", &path))?;
        }
        Ok(())
    }

    /// Removes the directory and its content, the lock last. A missing directory is not an error.
    ///
    /// # Errors
    ///
    /// A file operation fails.
    pub fn remove(&self) -> Result<(), DirectoryError> {
        if self.0.is_dir() {
            self.remove_all_but_the_lock()?;
        }
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DirectoryError::file("remove", &self.0)(error))
            }
            _ => Ok(()),
        }
    }

    /// Marks the directory to be kept after the end of the sandbox.
    pub fn keep(&self) {
        let _ = fs::write(self.keep_file(), "");
    }

    /// Whether the directory is to be kept.
    pub fn is_kept(&self) -> bool {
        self.keep_file().exists()
    }
}

/// Lists the running sandboxes of a kind.
pub fn running(kind: &str) -> Vec<String> {
    let base = base(kind);
    if check_owner(&base).is_err() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(&base) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let locked = |name: &String| StateDirectory::below(&base, name).is_ok_and(|dir| dir.is_locked());
    let mut names: Vec<String> = names.filter(locked).collect();
    names.sort();
    names
}

/// One directory per user, so that users of one machine do not collide.
fn base(kind: &str) -> PathBuf {
    std::env::temp_dir().join(format!("smc-{kind}-{}", nix::unistd::geteuid()))
}

/// Creates a directory, or takes an existing one that belongs to this user alone.
fn create_owned(path: &Path) -> Result<(), DirectoryError> {
    match DirBuilder::new().mode(PASS_THROUGH).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(DirectoryError::file("create", path)(error));
        }
        _ => check_owner(path)?,
    }
    // Sets the mode regardless of the umask.
    fs::set_permissions(path, Permissions::from_mode(PASS_THROUGH))
        .map_err(DirectoryError::file("set the mode of", path))
}

/// Fails unless `path` is a directory that belongs to this user alone.
fn check_owner(path: &Path) -> Result<(), DirectoryError> {
    // Of the entry itself, not of a link's target.
    let entry = fs::symlink_metadata(path).map_err(DirectoryError::file("inspect", path))?;
    match objection(&entry, nix::unistd::geteuid().as_raw()) {
        None => Ok(()),
        Some(problem) => Err(DirectoryError::NotPrivate { path: path.to_owned(), problem }),
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

    fn create(base: &Path) -> Result<(), DirectoryError> {
        // Creates without the checks of `below`, as if another user were faster.
        let directory = StateDirectory(base.join("lab"));
        let _lock = directory.lock()?.unwrap();
        directory.clear(&[&directory.path().join("logs")])
    }

    #[test]
    fn a_name_that_could_leave_the_directory_or_is_too_long_is_invalid() {
        assert!(StateDirectory::of("lab", "t-1").is_ok());
        for name in ["", "..", "a/b", "A", "a b", "a.b", "a\n", &"a".repeat(41)] {
            let refused = StateDirectory::of("lab", name);
            assert!(matches!(refused, Err(DirectoryError::Name(_))), "{name:?}");
        }
        let refused = StateDirectory::below(Path::new(&format!("/{}", "a".repeat(90))), "name");
        assert!(matches!(refused, Err(DirectoryError::TooLong(_))), "{refused:?}");
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_of_all_sandboxes_is_refused() {
        let directory = TempDir::new().unwrap();
        let precious = precious(&directory);
        fs::create_dir(precious.join("lab")).unwrap();
        let base = directory.path().join("base");
        symlink(&precious, &base).unwrap();
        let error = create(&base).unwrap_err();
        assert!(matches!(&error, DirectoryError::NotPrivate { path, .. } if *path == base), "{error:?}");
        assert!(StateDirectory::below(&base, "lab").is_err());
        fs::remove_dir(precious.join("lab")).unwrap();
        assert_untouched(&precious);
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_is_refused() {
        let directory = TempDir::new().unwrap();
        let precious = precious(&directory);
        let base = directory.path().join("base");
        fs::create_dir(&base).unwrap();
        symlink(&precious, base.join("lab")).unwrap();
        let error = create(&base).unwrap_err();
        assert!(
            matches!(&error, DirectoryError::NotPrivate { path, .. } if *path == base.join("lab")),
            "{error:?}"
        );
        assert!(StateDirectory::below(&base, "lab").is_err());
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
    fn remains_are_removed_and_links_in_them_are_not_followed() {
        let directory = TempDir::new().unwrap();
        let precious = precious(&directory);
        let base = directory.path().join("base");
        create(&base).unwrap();
        let state = StateDirectory::below(&base, "lab").unwrap();
        assert_eq!(fs::symlink_metadata(&base).unwrap().mode() & 0o777, PASS_THROUGH);
        symlink(&precious, state.path().join("link")).unwrap();
        fs::write(state.path().join("logs").join("old"), "").unwrap();
        create(&base).unwrap();
        assert_eq!(fs::read_dir(state.path().join("logs")).unwrap().count(), 0);
        fs::remove_file(state.lock_file()).unwrap();
        assert!(state.is_locked() && !state.lock_file().exists(), "looking leaves nothing behind");
        let lock = state.lock().unwrap();
        assert!(lock.is_some() && state.is_locked());
        assert!(!state.path().join("link").exists());
        assert_untouched(&precious);
        symlink(&precious, state.path().join("link")).unwrap();
        state.remove().unwrap();
        assert_untouched(&precious);
    }
}
