//! Files that nobody but their owner can read.
//!
//! Owns how one is written: private from its first moment, and in its place either whole or not at all. Refuses to know
//! what is in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes `text` to `path`, in place of what was there. When this returns the text is durable; after an error `path` is
/// as it was, and nothing is left beside it. Its directory is the caller's to sync. Blocks.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().map(std::ffi::OsStr::to_os_string).unwrap_or_default();
    name.push(".new");
    let new = path.with_file_name(name);
    // What an interrupted attempt left behind may be open to others.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = write(file, text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&new);
    }
    written
}

fn write(mut file: File, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    file.sync_all()
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
    fn a_file_that_cannot_be_put_in_place_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("envoy.json");
        fs::create_dir(&path).unwrap();
        replace(&path, b"a private key").unwrap_err();
        assert_eq!(names(directory.path()), ["envoy.json"]);
    }
}
