//! Files that only their owner can read.
//!
//! Owns how they are written: private from the first moment, and under their name either whole or
//! not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces the contents of the regular file `path`, which need not exist, by `text`. The text is durable
/// when this returns; after an error `path` is unchanged, and no other file remains. The caller syncs the
/// directory. Blocks.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut replacement = Replacement::begin(path)?;
    replacement.write_all(text)?;
    replacement.put_in_place()
}

/// A file that is written under a temporary name until it is complete. Dropping it earlier deletes
/// it.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    new: PathBuf,
    path: PathBuf,
}

impl Replacement {
    /// Begins to write the file `path`. One at a time per path. What is there already is a regular file, or
    /// this fails.
    pub fn begin(path: &Path) -> io::Result<Self> {
        Self::beside(path, ".new")
    }

    /// As [`Self::begin`], with `suffix` appended to the temporary name: writers with different
    /// suffixes may be concurrent.
    pub fn beside(path: &Path, suffix: &str) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            // A rename would take its place: of `/dev/null`, for every program of the machine.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let mut name = path.file_name().map(std::ffi::OsStr::to_os_string).unwrap_or_default();
        name.push(suffix);
        let new = path.with_file_name(name);
        // A file left by an interrupted attempt may be readable by others.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        Ok(Self { file, new, path: path.to_owned() })
    }

    /// Syncs the file, and renames it to its final name.
    pub fn put_in_place(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.new, &self.path)
    }

    /// As [`Self::put_in_place`]; fails if a file of that name exists.
    pub fn put_in_new_place(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::hard_link(&self.new, &self.path)
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After a rename there is nothing to delete. Otherwise the earlier error is reported.
        let _ = fs::remove_file(&self.new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(directory: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        fs::read_dir(directory).unwrap().map(name).collect()
    }

    #[test]
    fn a_file_is_private_even_if_an_open_one_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("envoy.json");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(directory.path()), ["envoy.json"]);
    }

    #[test]
    fn of_two_writers_to_a_new_name_one_fails_and_spoils_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("backup");
        let (mut one, mut other) =
            (Replacement::beside(&path, ".1").unwrap(), Replacement::beside(&path, ".2").unwrap());
        one.write_all(b"one").unwrap();
        other.write_all(b"oth").unwrap();
        one.put_in_new_place().unwrap();
        assert_eq!(other.put_in_new_place().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(names(directory.path()), ["backup"]);
    }

    #[test]
    fn a_link_or_a_directory_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for path in [&link, directory.path(), Path::new("/dev/null")] {
            assert_eq!(replace(path, b"text").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(directory.path()), ["link"]);
    }

    #[test]
    fn a_file_that_cannot_be_put_in_place_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("envoy.json");
        fs::create_dir(&path).unwrap();
        replace(&path, b"a private key").unwrap_err();
        assert_eq!(names(directory.path()), ["envoy.json"]);
    }
}
