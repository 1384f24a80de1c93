//! Directories that survive a loss of power.
//!
//! Owns making them, and syncing the names in them. A synced file may be lost until the directories
//! above it are synced.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file or directory that the file system refused.
#[derive(Debug, Error)]
#[error("cannot {operation} {}", .path.display())]
pub struct FileError {
    /// The attempted operation, as a verb phrase.
    pub operation: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Wraps an I/O error.
    pub fn of(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { operation, path, source }
    }
}

/// Makes the directory `path` and its missing ancestors, with mode 0700. They are durable when this
/// returns. Existing directories are left as they are. Blocks.
pub fn make_directory(path: &Path) -> Result<(), FileError> {
    make_and_sync(path, |directory| File::open(directory)?.sync_all())
}

/// Makes a file's name durable: syncs the directory that holds it. Blocks.
pub fn sync_name(file: &Path) -> io::Result<()> {
    File::open(parent(file))?.sync_all()
}

/// The directory that holds `path`.
fn parent(path: &Path) -> &Path {
    // The parent of a relative name is empty, and means the working directory.
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn make_and_sync(path: &Path, sync: impl Fn(&Path) -> io::Result<()>) -> Result<(), FileError> {
    let mut missing = Vec::new();
    // The last ancestor of a relative path is empty, and means the working directory.
    for directory in path.ancestors().take_while(|directory| !directory.as_os_str().is_empty()) {
        if directory.try_exists().map_err(FileError::of("look for", directory))? {
            break;
        }
        missing.push(directory);
    }
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o700).create(directory) {
            // Another process made it at the same time, and may not have synced it yet.
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                return Err(FileError::of("create the directory", directory)(source));
            }
            _ => {}
        }
        for synced in [directory, parent(directory)] {
            sync(synced).map_err(FileError::of("sync the directory", synced))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn each_new_directory_and_its_parent_are_synced() {
        let base = TempDir::new().unwrap();
        let base = base.path();
        let synced = RefCell::new(Vec::new());
        let note = |directory: &Path| {
            synced.borrow_mut().push(directory.strip_prefix(base).unwrap().to_str().unwrap().to_owned());
            Ok(())
        };
        make_and_sync(&base.join("a/b"), note).unwrap();
        assert_eq!(synced.take(), ["a", "", "a/b", "a"]);
        make_and_sync(&base.join("a/b/c"), note).unwrap();
        assert_eq!(synced.take(), ["a/b/c", "a/b"]);
        make_and_sync(&base.join("a"), note).unwrap();
        assert!(synced.take().is_empty(), "an existing directory is left as it is");
        for directory in ["a", "a/b", "a/b/c"] {
            let mode = fs::metadata(base.join(directory)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{directory}");
        }
    }

    #[test]
    fn an_error_names_the_directory_that_cannot_be_made_or_synced() {
        let base = TempDir::new().unwrap();
        fs::write(base.path().join("file"), "").unwrap();
        let error = make_directory(&base.path().join("file/below")).unwrap_err().to_string();
        assert!(error.contains("file"), "{error}");
        let fail = |_: &Path| Err(io::Error::other("no"));
        let error = make_and_sync(&base.path().join("new"), fail).unwrap_err().to_string();
        assert!(error.starts_with("cannot sync the directory") && error.ends_with("new"), "{error}");
    }
}
