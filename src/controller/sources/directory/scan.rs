//! One scan of the mesh directory: its files and what each declares.
//!
//! Owns the walk: file names, symbolic links, bounds. Keeps no state: the caller passes the previous
//! readings in and gets the present ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use ring::digest::SHA256;
use smc_types::problem::{Problem, Subject};
use tokio_util::sync::CancellationToken;

use crate::decode::manifest::{self, MAX_FILE_BYTES, Manifest};

/// Levels of directories that are read; the mesh directory is the first.
const MAX_DEPTH: usize = 8;
/// Files that are read. More are a mistake (such as a home directory), and each scan reads all of them.
const MAX_FILES: usize = 10_000;
/// Directory entries that are listed, for the same reason.
const MAX_ENTRIES: usize = 100_000;
/// Bytes that one scan reads: some seconds of a slow disk, once in half a minute.
const MAX_TOTAL_BYTES: u64 = 512 * 1024 * 1024;

/// Files by their path within the directory, with `/` between names.
pub(super) type Files = BTreeMap<String, FileReading>;

/// One file as it was read.
#[derive(Debug, Clone)]
pub(super) struct FileReading {
    /// The SHA-256 of its bytes. A file whose digest is unchanged is not parsed again.
    pub(super) digest: [u8; 32],
    /// Its declarations and problems.
    pub(super) manifest: Arc<Manifest>,
}

#[cfg(test)]
impl FileReading {
    /// A reading whose digest does not matter.
    pub(super) fn for_tests(manifest: Arc<Manifest>) -> Self {
        Self { digest: [0; 32], manifest }
    }
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The files that were read.
    pub(super) files: Files,
    /// Files and directories that exist, or may exist, and could not be read; [`Self::knows`] is false below
    /// them.
    pub(super) unread: BTreeSet<String>,
    /// Problems of reading files and directories, without those of their contents.
    pub(super) problems: Vec<Problem>,
}

impl Scan {
    /// Whether the present contents of `file` are known completely, or the file is known to be gone.
    pub(super) fn knows(&self, file: &str) -> bool {
        match self.files.get(file) {
            Some(reading) => reading.manifest.complete,
            None => !self.is_unread(file),
        }
    }

    /// Whether the file or a directory above it could not be read.
    fn is_unread(&self, file: &str) -> bool {
        self.unread.contains(file)
            || file
                .match_indices('/')
                .any(|(end, _)| file.get(..end).is_some_and(|dir| self.unread.contains(dir)))
    }
}

/// Reads `directory` and its subdirectories; reuses the readings in `known` of files that have not changed.
/// An error means that the directory itself cannot be listed. Blocks; ends early with an error when
/// `shutdown` is cancelled.
pub(super) fn scan(directory: &Path, known: &Files, shutdown: &CancellationToken) -> io::Result<Scan> {
    let root = fs::canonicalize(directory)?;
    let mut walk = Walk {
        root: &root,
        known,
        shutdown,
        scan: Scan::default(),
        visited: BTreeSet::new(),
        entries: 0,
        bytes: 0,
    };
    walk.directory(&root, "", 1)?;
    Ok(walk.scan)
}

struct Walk<'a> {
    /// The canonical path: without symbolic links.
    root: &'a Path,
    known: &'a Files,
    shutdown: &'a CancellationToken,
    scan: Scan,
    /// The canonical paths of directories that were listed, so that a cycle of links ends.
    visited: BTreeSet<PathBuf>,
    entries: usize,
    bytes: u64,
}

impl Walk<'_> {
    /// Lists a directory in the order of names. `name` is its path within the mesh directory.
    fn directory(&mut self, path: &Path, name: &str, depth: usize) -> io::Result<()> {
        if !self.visited.insert(path.to_owned()) {
            let message = "a link to a directory that was read already; not read again";
            self.scan.problems.push(Problem::warning(Subject::file(name), "", message));
            return Ok(());
        }
        let mut entries = BTreeMap::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(io::Error::other(format!("more than {MAX_ENTRIES} directory entries")));
            }
            entries.insert(entry.file_name(), entry.file_type()?);
        }
        for (entry, kind) in entries {
            if self.shutdown.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let path = path.join(&entry);
            let Some(entry) = entry.to_str() else {
                let message = "a name that is not UTF-8; not read";
                self.scan.problems.push(Problem::warning(path.as_path(), "", message));
                continue;
            };
            // Hidden entries belong to editors and version control, or are the real directories behind a
            // mounted ConfigMap (`..data`), to which its links point.
            if entry.starts_with('.') {
                continue;
            }
            let name = if name.is_empty() { entry.to_owned() } else { format!("{name}/{entry}") };
            if kind.is_symlink() {
                self.link(&path, &name, depth);
            } else {
                self.entry(&path, &name, kind.is_dir(), depth);
            }
        }
        Ok(())
    }

    /// Follows a symbolic link within the mesh directory only: write access to it must not reveal the
    /// contents of other files in error messages.
    fn link(&mut self, path: &Path, name: &str, depth: usize) {
        let target = match fs::canonicalize(path) {
            Ok(target) if target.starts_with(self.root) => target,
            Ok(_) => {
                if is_manifest(name) {
                    let message = "a link out of the mesh directory; not followed";
                    self.scan.problems.push(Problem::error(Subject::file(name), "", message));
                }
                return;
            }
            Err(error) => return self.unread(name, &error),
        };
        match fs::metadata(&target) {
            Ok(metadata) => self.entry(&target, name, metadata.is_dir(), depth),
            Err(error) => self.unread(name, &error),
        }
    }

    fn entry(&mut self, path: &Path, name: &str, is_directory: bool, depth: usize) {
        if !is_directory {
            if is_manifest(name) {
                self.file(path, name);
            }
        } else if depth == MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} directories deep; not read");
            self.scan.problems.push(Problem::error(Subject::file(name), "", message));
        } else if let Err(error) = self.directory(path, name, depth + 1) {
            self.scan.problems.push(unread_problem(name, &error));
            self.scan.unread.insert(name.to_owned());
        }
    }

    fn file(&mut self, path: &Path, name: &str) {
        if self.scan.files.len() == MAX_FILES {
            return self.unread(name, &io::Error::other(format!("more than {MAX_FILES} files")));
        }
        if self.bytes >= MAX_TOTAL_BYTES {
            return self
                .unread(name, &io::Error::other(format!("the files before it hold {} bytes", self.bytes)));
        }
        let bytes = match read_file(path, MAX_FILE_BYTES) {
            Ok(bytes) => bytes,
            // It was removed after the directory was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.unread(name, &error),
        };
        self.bytes += bytes.len() as u64;
        let digest = digest(&bytes);
        let manifest = match self.known.get(name) {
            Some(known) if known.digest == digest => Arc::clone(&known.manifest),
            _ => Arc::new(manifest::read(name, &bytes)),
        };
        self.scan.files.insert(name.to_owned(), FileReading { digest, manifest });
    }

    fn unread(&mut self, name: &str, error: &io::Error) {
        if is_manifest(name) {
            self.scan.problems.push(unread_problem(name, error));
        }
        // Without regard to the name: a dangling link may have been a directory with files.
        self.scan.unread.insert(name.to_owned());
    }
}

fn unread_problem(name: &str, error: &io::Error) -> Problem {
    Problem::error(Subject::file(name), "", format!("cannot be read: {error}"))
}

fn is_manifest(name: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
}

/// The SHA-256 of some bytes.
pub(super) fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&SHA256, bytes).as_ref());
    digest
}

/// Reads a file up to one byte more than `max_bytes`, so that the caller notices that it is too large.
pub(super) fn read_file(path: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    // Opening a FIFO would otherwise block the thread until it has a writer.
    let file: File = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn scan_dir(directory: &Path) -> Scan {
        scan(directory, &Files::new(), &CancellationToken::new()).unwrap()
    }

    fn names(scan: &Scan) -> Vec<&str> {
        scan.files.keys().map(String::as_str).collect()
    }

    #[test]
    fn manifests_are_found_in_order_and_other_files_are_not_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::create_dir(dir.path().join(".git")).unwrap();
        for name in [
            "z.yaml",
            "a.yml",
            "b/x.json",
            "b/c/y.yaml",
            ".hidden.yaml",
            ".git/g.yaml",
            "a.yaml~",
            "README.md",
            "yaml",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let scan = scan_dir(dir.path());
        assert_eq!(names(&scan), ["a.yml", "b/c/y.yaml", "b/x.json", "z.yaml"]);
        assert_eq!(scan.problems, []);
    }

    #[test]
    fn a_mounted_config_map_is_read_once_through_its_links() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..2026_01")).unwrap();
        fs::write(dir.path().join("..2026_01/mesh.yaml"), "").unwrap();
        symlink("..2026_01", dir.path().join("..data")).unwrap();
        symlink("..data/mesh.yaml", dir.path().join("mesh.yaml")).unwrap();
        let scan = scan_dir(dir.path());
        assert_eq!((names(&scan), scan.problems.len()), (vec!["mesh.yaml"], 0));
    }

    #[test]
    fn links_that_loop_or_lead_away_are_reported_and_do_no_harm() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret.yaml"), "secret").unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/x.yaml"), "").unwrap();
        symlink("..", dir.path().join("a/up")).unwrap();
        symlink("self.yaml", dir.path().join("self.yaml")).unwrap();
        symlink("nowhere", dir.path().join("lost.yaml")).unwrap();
        symlink(outside.path().join("secret.yaml"), dir.path().join("secret.yaml")).unwrap();
        symlink(outside.path(), dir.path().join("outside")).unwrap();
        let scan = scan_dir(dir.path());
        assert_eq!(names(&scan), ["a/x.yaml"]);
        let objects: Vec<String> = scan.problems.iter().map(|p| p.subject.to_string()).collect();
        assert_eq!(objects, ["a/up", "lost.yaml", "secret.yaml", "self.yaml"]);
        assert!(!scan.knows("lost.yaml") && scan.knows("secret.yaml") && scan.knows("gone.yaml"));
    }

    #[test]
    fn directories_are_followed_eight_deep() {
        let dir = tempfile::tempdir().unwrap();
        let deep =
            |levels: usize| (1..levels).fold(dir.path().to_owned(), |path, n| path.join(n.to_string()));
        fs::create_dir_all(deep(9)).unwrap();
        fs::write(deep(8).join("in.yaml"), "").unwrap();
        fs::write(deep(9).join("out.yaml"), "").unwrap();
        let scan = scan_dir(dir.path());
        assert_eq!(names(&scan), ["1/2/3/4/5/6/7/in.yaml"]);
        assert_eq!(scan.problems.len(), 1);
    }

    #[test]
    fn what_is_no_regular_file_is_unread_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&dir.path().join("pipe.yaml"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        fs::create_dir(dir.path().join("dir.yaml")).unwrap();
        let scan = scan_dir(dir.path());
        assert_eq!(names(&scan), Vec::<&str>::new());
        assert!(scan.unread.contains("pipe.yaml"));
    }

    #[test]
    fn an_unchanged_file_is_not_parsed_again() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.yaml"] {
            fs::write(dir.path().join(name), "x: 1").unwrap();
        }
        let first = scan_dir(dir.path());
        fs::write(dir.path().join("b.yaml"), "x: 2").unwrap();
        let second = scan(dir.path(), &first.files, &CancellationToken::new()).unwrap();
        let same = |name: &str| Arc::ptr_eq(&first.files[name].manifest, &second.files[name].manifest);
        assert!(same("a.yaml") && !same("b.yaml"));
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_without_being_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("large.yaml")).unwrap().set_len(1 << 40).unwrap();
        let scan = scan_dir(dir.path());
        assert!(!scan.knows("large.yaml"));
        assert_eq!(scan.files["large.yaml"].manifest.problems.len(), 1);
    }

    #[test]
    fn nothing_is_certain_below_a_directory_that_could_not_be_listed() {
        let scan = Scan { unread: BTreeSet::from(["a/b".to_owned()]), ..Scan::default() };
        for (file, known) in
            [("a/b/c.yaml", false), ("a/b", false), ("a/bc/d.yaml", true), ("a/x.yaml", true)]
        {
            assert_eq!(scan.knows(file), known, "{file}");
        }
    }
}
