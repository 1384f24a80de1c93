//! Directories that are still there after a loss of power.
//!
//! Owns their making, and the syncing of names in them. A file can be synced as often as one likes: until the directories
//! above it are, the way to it may be lost.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::error::StorageError;

/// Makes the directory `path` and those above it that are missing, with mode 0700. When this returns, they are durable.
/// What is there already is left as it is. Blocks.
pub fn make_directory(path: &Path) -> Result<(), StorageError> {
    make_and_sync(path, |directory| File::open(directory)?.sync_all())
}

/// Makes the name of a file as durable as what is in it. Blocks.
pub fn sync_name(file: &Path) -> io::Result<()> {
    File::open(above(file))?.sync_all()
}

/// The directory that a path is in.
fn above(path: &Path) -> &Path {
    // The parent of a relative name is empty, and means the working directory.
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn make_and_sync(path: &Path, sync: impl Fn(&Path) -> io::Result<()>) -> Result<(), StorageError> {
    let mut missing = Vec::new();
    // The last ancestor of a relative path is empty, and means the working directory.
    for directory in path.ancestors().take_while(|directory| !directory.as_os_str().is_empty()) {
        if directory.try_exists().map_err(StorageError::io("look for", directory))? {
            break;
        }
        missing.push(directory);
    }
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o700).create(directory) {
            // Somebody else was faster, and may not have synced it yet.
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                return Err(StorageError::io("create the directory", directory)(source));
            }
            _ => {}
        }
        for synced in [directory, above(directory)] {
            sync(synced).map_err(StorageError::io("sync the directory", synced))?;
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
    fn each_new_directory_is_synced_and_so_is_the_one_it_was_entered_into() {
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
        assert!(synced.take().is_empty(), "what is there is left alone");
        for directory in ["a", "a/b", "a/b/c"] {
            let mode = fs::metadata(base.join(directory)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{directory}");
        }
    }

    #[test]
    fn what_cannot_be_made_or_synced_is_named() {
        let base = TempDir::new().unwrap();
        fs::write(base.path().join("file"), "").unwrap();
        let error = make_directory(&base.path().join("file/below")).unwrap_err().to_string();
        assert!(error.contains("file"), "{error}");
        let fail = |_: &Path| Err(io::Error::other("no"));
        let error = make_and_sync(&base.path().join("new"), fail).unwrap_err().to_string();
        assert!(error.starts_with("cannot sync the directory") && error.ends_with("new"), "{error}");
    }
}
