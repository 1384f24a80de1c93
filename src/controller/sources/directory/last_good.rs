//! The last good copy of every file of the mesh directory: the last version that could be read completely.
//!
//! Owns the copies and their directory, which is private: manifests may hold more than the mesh reads. The
//! first scan after a start is merged with the copies as any scan is with the previous one (`state`), so
//! that a restart while a file is broken removes no object.
//!
//! Each copy is one file that is replaced atomically, so that a change costs as much as the changed file. A
//! copy is made after the batch with its file was sent: a crash in between loses the copy, which matters
//! only if the file breaks as well. The limits of a scan bound the copies.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use smc_host::files::private;
use smc_types::problem::Problem;
use tokio_util::sync::CancellationToken;

use super::scan::{FileReading, Files, Scan, digest, read_file};
use crate::decode::manifest::{self, MAX_FILE_BYTES};

/// The format marker of every copy; another format needs another number.
const FORMAT: &[u8] = b"smc-last-good-1";

/// Bytes of a copy before the text: the format marker, and two paths, which Linux bounds at 4096 bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Copies that are made between two scans. Each is a synced write of some milliseconds, during which changes
/// go unnoticed; a first start makes thousands of copies.
const MAX_SAVED_AT_ONCE: usize = 64;

/// The copies of one mesh directory.
#[derive(Debug, Clone)]
pub(super) struct LastGood {
    /// The directory of the copies.
    copies: PathBuf,
    /// The mesh directory. Copies of another one are ignored and removed.
    directory: PathBuf,
    /// The digest of the text of every copy, by the name of its file.
    saved: BTreeMap<String, [u8; 32]>,
    /// Files in the directory of the copies that are no copies of this mesh directory.
    strays: Vec<PathBuf>,
    /// Why copies cannot be read or written.
    failure: Option<String>,
}

impl LastGood {
    /// The copies of `directory`, kept in `copies`; [`Self::load`] reads them.
    pub(super) fn new(copies: PathBuf, directory: &Path) -> Self {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        Self { copies, directory, saved: BTreeMap::new(), strays: Vec::new(), failure: None }
    }

    /// Reads the copies. Blocks.
    pub(super) fn load(&mut self) -> Files {
        let mut files = Files::new();
        self.failure = self.read_copies(&mut files).err().map(|error| error.to_string());
        self.saved = files.iter().map(|(name, reading)| (name.clone(), reading.digest)).collect();
        files
    }

    fn read_copies(&mut self, files: &mut Files) -> io::Result<()> {
        let entries = match fs::read_dir(&self.copies) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let mut outcome = Ok(());
        for entry in entries {
            let path = entry?.path();
            match read_file(&path, MAX_HEAD_BYTES + MAX_FILE_BYTES) {
                Ok(copy) => match self.parse(&copy).filter(|(name, _)| path == self.path(name)) {
                    Some((name, reading)) => _ = files.insert(name, reading),
                    None => self.strays.push(path),
                },
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// The file that a copy is of, and its reading; `None` if it is no copy of this mesh directory.
    fn parse(&self, copy: &[u8]) -> Option<(String, FileReading)> {
        let mut parts = copy.splitn(4, |&byte| byte == 0);
        let (format, directory, name, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if format != FORMAT || directory != self.directory.as_os_str().as_encoded_bytes() {
            return None;
        }
        let name = std::str::from_utf8(name).ok()?;
        let manifest = Arc::new(manifest::read(name, text));
        manifest.complete.then(|| (name.to_owned(), FileReading { digest: digest(text), manifest }))
    }

    /// Where the copy of a file is. A file's name may be too long for the name of another.
    fn path(&self, name: &str) -> PathBuf {
        self.copies.join(HEXLOWER.encode(&digest(name.as_bytes())))
    }

    /// Whether copies must be written or removed after this scan.
    pub(super) fn is_behind(&self, scan: &Scan) -> bool {
        !self.strays.is_empty() || self.gone(scan).next().is_some() || self.stale(scan).next().is_some()
    }

    /// The names of copies whose files are gone.
    fn gone<'a>(&'a self, scan: &'a Scan) -> impl Iterator<Item = &'a String> {
        self.saved.keys().filter(move |name| !scan.files.contains_key(*name) && scan.knows(name))
    }

    /// The complete files whose present text has no copy.
    fn stale<'a>(&'a self, scan: &'a Scan) -> impl Iterator<Item = (&'a String, &'a FileReading)> {
        let is_stale = move |(name, reading): &(&String, &FileReading)| {
            reading.manifest.complete && self.saved.get(*name) != Some(&reading.digest)
        };
        scan.files.iter().filter(is_stale)
    }

    /// Updates the copies to a scan that was sent, at most [`MAX_SAVED_AT_ONCE`] of them. Returns true if
    /// more remain. A failure is a problem to report; the next scan retries. Blocks; ends early when
    /// `shutdown` is cancelled.
    pub(super) fn save(&mut self, scan: &Scan, shutdown: &CancellationToken) -> bool {
        let saved = self.write_copies(scan, shutdown);
        self.failure = saved.as_ref().err().map(ToString::to_string);
        saved.unwrap_or(false)
    }

    fn write_copies(&mut self, scan: &Scan, shutdown: &CancellationToken) -> io::Result<bool> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.copies)?;
        while let Some(stray) = self.strays.pop() {
            remove(&stray)?;
        }
        let gone: Vec<String> = self.gone(scan).cloned().collect();
        for name in gone {
            remove(&self.path(&name))?;
            self.saved.remove(&name);
        }
        let stale = self.stale(scan).map(|(name, reading)| (name.clone(), reading.digest));
        let stale: Vec<_> = stale.take(MAX_SAVED_AT_ONCE).collect();
        for (name, sent) in &stale {
            if shutdown.is_cancelled() {
                return Ok(false);
            }
            // A scan does not keep the text. A file that has changed since is saved once its change was sent.
            let Ok(text) = read_file(&self.directory.join(name), MAX_FILE_BYTES) else { continue };
            if digest(&text) == *sent {
                private::replace(&self.path(name), &self.copy(name, &text))?;
                self.saved.insert(name.clone(), *sent);
            }
        }
        File::open(&self.copies)?.sync_all()?;
        Ok(stale.len() == MAX_SAVED_AT_ONCE)
    }

    fn copy(&self, name: &str, text: &[u8]) -> Vec<u8> {
        [FORMAT, self.directory.as_os_str().as_encoded_bytes(), name.as_bytes(), text].join(&0)
    }

    /// The problem with the copies, if they cannot be kept.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.failure.as_ref().map(|failure| {
            let message = format!(
                "no copies can be kept here of what was read: {failure}; a restart while a file is broken would \
                 withdraw what it declares"
            );
            Problem::warning(self.copies.as_path(), "", message)
        })
    }
}

/// Removes a file that may be gone.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::sources::directory::scan::scan;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// The names of files that a fresh start loads after `mesh` was scanned and saved.
    fn kept(copies: &Path, mesh: &Path) -> Vec<String> {
        let mut last_good = LastGood::new(copies.to_owned(), mesh);
        let scan = scan(mesh, &last_good.load(), &CancellationToken::new()).unwrap();
        while last_good.save(&scan, &CancellationToken::new()) {}
        assert_eq!(last_good.problem(), None);
        assert!(!last_good.is_behind(&scan));
        LastGood::new(copies.to_owned(), mesh).load().into_keys().collect()
    }

    #[test]
    fn what_can_be_read_is_kept_in_private_until_it_is_gone() {
        let base = tempfile::tempdir().unwrap();
        let (mesh, copies) = (base.path().join("mesh"), base.path().join("copies"));
        fs::create_dir_all(mesh.join("below")).unwrap();
        fs::write(mesh.join("a.yaml"), "# nothing").unwrap();
        fs::write(mesh.join("below/b.yaml"), "").unwrap();
        assert_eq!(kept(&copies, &mesh), ["a.yaml", "below/b.yaml"]);
        assert_eq!(mode(&copies), 0o700);
        assert!(fs::read_dir(&copies).unwrap().all(|copy| mode(&copy.unwrap().path()) == 0o600));
        fs::write(mesh.join("a.yaml"), "{").unwrap();
        fs::remove_dir_all(mesh.join("below")).unwrap();
        assert_eq!(kept(&copies, &mesh), ["a.yaml"], "a broken file has its last good copy");
        fs::remove_file(mesh.join("a.yaml")).unwrap();
        assert_eq!(kept(&copies, &mesh), Vec::<String>::new());
        assert_eq!(fs::read_dir(&copies).unwrap().count(), 0);
    }

    #[test]
    fn a_large_directory_is_kept_in_several_steps() {
        let base = tempfile::tempdir().unwrap();
        let (mesh, copies) = (base.path().join("mesh"), base.path().join("copies"));
        fs::create_dir(&mesh).unwrap();
        for n in 0..=MAX_SAVED_AT_ONCE {
            fs::write(mesh.join(format!("{n}.yaml")), "").unwrap();
        }
        assert_eq!(kept(&copies, &mesh).len(), MAX_SAVED_AT_ONCE + 1);
    }

    #[test]
    fn strays_and_copies_of_another_directory_are_ignored_and_removed() {
        let base = tempfile::tempdir().unwrap();
        let [mesh, other, copies] = ["mesh", "other", "copies"].map(|name| base.path().join(name));
        for directory in [&mesh, &other] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(other.join("a.yaml"), "").unwrap();
        assert_eq!(kept(&copies, &other), ["a.yaml"]);
        fs::write(copies.join("garbage"), "garbage").unwrap();
        assert_eq!(LastGood::new(copies.clone(), &mesh).load().len(), 0);
        assert_eq!(kept(&copies, &mesh), Vec::<String>::new());
        assert_eq!(fs::read_dir(&copies).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_changed_after_its_scan_is_not_copied() {
        let base = tempfile::tempdir().unwrap();
        let (mesh, copies) = (base.path().join("mesh"), base.path().join("copies"));
        fs::create_dir(&mesh).unwrap();
        fs::write(mesh.join("a.yaml"), "# sent").unwrap();
        let scan = scan(&mesh, &Files::new(), &CancellationToken::new()).unwrap();
        fs::write(mesh.join("a.yaml"), "# not sent").unwrap();
        let mut last_good = LastGood::new(copies, &mesh);
        assert!(!last_good.save(&scan, &CancellationToken::new()));
        assert!(last_good.is_behind(&scan) && last_good.load().is_empty());
    }
}
