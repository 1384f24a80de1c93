//! A full look at the mesh directory: its files and what each declares.
//!
//! Owns the walk: file names, symbolic links, bounds. Keeps no state: the caller passes the previous
//! readings in and gets the present ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use smc_decode::Rules;
use smc_types::problem::{Problem, Subject};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::reading::FileReading;

/// Levels of directories that are read; the mesh directory is the first.
const MAX_DEPTH: usize = 8;
/// Files that are read. More are a mistake (such as a home directory), and a full look at all of them
/// costs a system call for each.
pub(super) const MAX_FILES: usize = 10_000;
/// Directory entries that are listed, for the same reason.
const MAX_ENTRIES: usize = 100_000;
/// Bytes of all files: some seconds of a slow disk at a start.
pub(super) const MAX_TOTAL_BYTES: u64 = 512 * 1024 * 1024;

/// Files by their path within the directory, with `/` between names.
pub(super) type Files = BTreeMap<String, FileReading>;

/// The files as they were looked at last.
#[derive(Debug, Clone, Default)]
pub(super) struct Scan {
    /// The files that were read.
    pub(super) files: Files,
    /// Files and directories that exist, or may exist, and could not be read; [`Self::knows`] is false below
    /// them.
    pub(super) unread: BTreeSet<String>,
    /// Problems of reading files and directories, without those of their contents.
    pub(super) problems: Vec<Problem>,
    /// The directory, without symbolic links in its path.
    pub(super) root: PathBuf,
    /// The directories that were listed, by their path within the mesh directory; its own is empty.
    pub(super) directories: BTreeSet<String>,
    /// Whether there are symbolic links: then a file may change without an event that names it.
    pub(super) links: bool,
    /// Bytes of the files.
    pub(super) bytes: u64,
    /// Files that were opened.
    pub(super) opened: usize,
}

impl Scan {
    /// Whether the present contents of `file` are known completely, or the file is known to be gone.
    pub(super) fn knows(&self, file: &str) -> bool {
        match self.files.get(file) {
            Some(reading) => reading.manifest.complete,
            None => !self.is_unread(file),
        }
    }

    /// Takes note of one file that is new, differs, or is gone.
    pub(super) fn replace(&mut self, file: &str, reading: Option<FileReading>) {
        let size = |reading: &FileReading| reading.size();
        self.bytes += reading.as_ref().map_or(0, size);
        let old = match reading {
            Some(reading) => self.files.insert(file.to_owned(), reading),
            None => self.files.remove(file),
        };
        self.bytes = self.bytes.saturating_sub(old.as_ref().map_or(0, size));
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
pub(super) fn scan(
    directory: &Path,
    known: &Files,
    now: Instant,
    rules: &Rules,
    shutdown: &CancellationToken,
) -> io::Result<Scan> {
    let root = fs::canonicalize(directory)?;
    let scan = Scan::default();
    let mut walk =
        Walk { root: &root, known, now, rules, shutdown, scan, visited: BTreeSet::new(), entries: 0 };
    walk.directory(&root, "", 1)?;
    Ok(Scan { root: root.clone(), ..walk.scan })
}

struct Walk<'a> {
    /// The canonical path: without symbolic links.
    root: &'a Path,
    known: &'a Files,
    now: Instant,
    rules: &'a Rules,
    shutdown: &'a CancellationToken,
    scan: Scan,
    /// The canonical paths of directories that were listed, so that a cycle of links ends.
    visited: BTreeSet<PathBuf>,
    entries: usize,
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
        self.scan.directories.insert(name.to_owned());
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
                self.scan.links = true;
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
        if self.scan.bytes >= MAX_TOTAL_BYTES {
            let message = format!("the files before it hold {} bytes", self.scan.bytes);
            return self.unread(name, &io::Error::other(message));
        }
        let known = self.known.get(name);
        let reading = match known.filter(|known| known.is_current(path)) {
            Some(known) => known.clone(),
            None => match FileReading::read(path, name, known, self.now, self.rules) {
                Ok(reading) => {
                    self.scan.opened += 1;
                    reading
                }
                // It was removed after the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) => return self.unread(name, &error),
            },
        };
        self.scan.bytes += reading.size();
        self.scan.files.insert(name.to_owned(), reading);
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

/// Whether a file of this name is read.
pub(super) fn is_manifest(name: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::*;

    fn scan_dir(directory: &Path) -> Scan {
        scan(directory, &Files::new(), Instant::now(), &Rules::default(), &CancellationToken::new()).unwrap()
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
        let second =
            scan(dir.path(), &first.files, Instant::now(), &Rules::default(), &CancellationToken::new())
                .unwrap();
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
