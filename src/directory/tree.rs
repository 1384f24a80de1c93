//! The mesh directory as it was looked at last, and the objects that it declares.
//!
//! Owns what a change costs. An event names paths, and only these files are read. Whatever a path alone does
//! not explain (directories, symbolic links, errors, bounds) takes a full look, which opens the files whose
//! size, times or inode differ. The rules about objects are in `state`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use smc_decode::Rules;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::reading::FileReading;
use super::scan::{self, MAX_FILES, MAX_TOTAL_BYTES, Scan, is_manifest};
use super::scope::Scope;
use super::state::{Changes, Objects};
use super::watch::Watch;

/// What a look has found.
pub(super) struct Found {
    /// What a commit would change.
    pub(super) changes: Changes,
    /// Whether that looks unfinished: an object is taken out of effect, a file that differs cannot be read
    /// completely, or there are directories whose first events may have been missed. A second look decides.
    pub(super) doubtful: bool,
}

/// What was looked at so far, for the log and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) full_looks: usize,
    /// Files that were opened.
    pub(super) files: usize,
}

/// The directory.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) path: PathBuf,
    /// How its files are read.
    rules: Arc<Rules>,
    /// Its files.
    scan: Scan,
    /// Whether there was a full look.
    known: bool,
    pub(super) objects: Objects,
    work: Work,
}

/// One path that an event named.
enum Named {
    /// It is no manifest, and was none.
    Nothing,
    /// It is a file.
    File(FileReading),
    /// It was a file.
    Gone,
    /// Only a full look tells.
    Unclear,
}

impl Tree {
    /// The directory at `path`, which was not looked at yet; `objects` are in effect.
    pub(super) fn new(path: PathBuf, objects: Objects, rules: Arc<Rules>) -> Self {
        Self { path, rules, objects, ..Self::default() }
    }

    /// What was looked at so far.
    pub(super) fn work(&self) -> Work {
        self.work
    }

    /// Looks at the directory or at paths in it. An error means that the directory cannot be listed; then
    /// nothing is known about its files, and nothing changes. Blocks; ends early with an error when
    /// `shutdown` is cancelled.
    pub(super) fn look(
        &mut self,
        look: &Scope,
        watch: &mut Watch,
        now: Instant,
        shutdown: &CancellationToken,
    ) -> io::Result<Found> {
        // The watch comes first, so that a change between the two is seen by at least one of them.
        let followed = watch.renew();
        let mut doubtful = false;
        let known = match look {
            Scope::At(paths) if followed && self.known => {
                let known = self.look_at(paths, watch, now);
                // A directory that was made, moved or removed, as a rule: its watch may come a moment later.
                // Links need a full look for any change.
                doubtful = known.unwrap_or(!self.scan.links);
                known
            }
            _ => None,
        };
        if known.is_none() {
            doubtful |= self.look_fully(now, shutdown)?;
        }
        let changes = self.objects.changes(&self.scan);
        let doubtful = doubtful || self.objects.removes(&changes);
        Ok(Found { changes, doubtful })
    }

    /// Reads the files at these paths. Returns whether one that differs cannot be read completely; `None` if
    /// only a full look tells what happened, and then nothing is taken note of.
    fn look_at(&mut self, paths: &BTreeSet<String>, watch: &Watch, now: Instant) -> Option<bool> {
        let mut files = Vec::new();
        for path in paths {
            match self.named(path, now) {
                Named::Nothing => {}
                Named::File(reading) => {
                    self.work.files += 1;
                    files.push((path, Some(reading)));
                }
                Named::Gone => files.push((path, None)),
                Named::Unclear => return None,
            }
        }
        let new = files.iter().filter(|(path, _)| !self.scan.files.contains_key(*path)).count();
        let bytes: u64 =
            files.iter().filter_map(|(_, reading)| reading.as_ref()).map(FileReading::size).sum();
        if self.scan.files.len() + new > MAX_FILES || self.scan.bytes + bytes > MAX_TOTAL_BYTES {
            return None;
        }
        // Another directory may have taken its place meanwhile: then these are not its files.
        if !watch.is_current() {
            return None;
        }
        let mut broken = false;
        for (path, reading) in files {
            let known = self.scan.files.get(path).map(|known| &known.manifest);
            let manifest = reading.as_ref().map(|reading| &reading.manifest);
            let same = match (known, manifest) {
                (Some(known), Some(manifest)) => Arc::ptr_eq(known, manifest),
                (known, manifest) => known.is_none() && manifest.is_none(),
            };
            if !same {
                broken |= manifest.is_some_and(|manifest| !manifest.complete);
                self.objects.replace_file(
                    path,
                    known.map(|known| &**known),
                    manifest.map(|manifest| &**manifest),
                );
            }
            self.scan.replace(path, reading);
        }
        Some(broken)
    }

    /// Looks at a path that an event named.
    fn named(&self, path: &str, now: Instant) -> Named {
        let scan = &self.scan;
        // A link may lead to any path, also to a hidden one.
        if scan.links {
            return Named::Unclear;
        }
        if path.split('/').any(|name| name.starts_with('.')) {
            return Named::Nothing;
        }
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if scan.directories.contains(path) || scan.unread.contains(path) || !scan.directories.contains(parent)
        {
            return Named::Unclear;
        }
        let absolute = scan.root.join(path);
        let metadata = match fs::symlink_metadata(&absolute) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return if scan.files.contains_key(path) { Named::Gone } else { Named::Nothing };
            }
            Err(_) => return Named::Unclear,
        };
        if !metadata.is_file() {
            return Named::Unclear;
        }
        if !is_manifest(path) {
            return Named::Nothing;
        }
        // A directory above it may have become a link, which is followed within the mesh directory only.
        if fs::canonicalize(&absolute).ok().as_ref() != Some(&absolute) {
            return Named::Unclear;
        }
        FileReading::read(&absolute, path, scan.files.get(path), now, &self.rules)
            .map_or(Named::Unclear, Named::File)
    }

    /// Looks at everything. Returns whether a file that differs cannot be read completely, or a directory is
    /// new: files may have come to it before it was watched.
    fn look_fully(&mut self, now: Instant, shutdown: &CancellationToken) -> io::Result<bool> {
        self.work.full_looks += 1;
        let scan = scan::scan(&self.path, &self.scan.files, now, &self.rules, shutdown)?;
        self.work.files += scan.opened;
        self.objects.replace_all(&self.scan, &scan);
        let differs = |(name, reading): (&String, &FileReading)| {
            let known = self.scan.files.get(name);
            !known.is_some_and(|known| Arc::ptr_eq(&known.manifest, &reading.manifest))
        };
        let broken = scan.files.iter().filter(|(_, reading)| !reading.manifest.complete).any(differs);
        let unseen = !scan.directories.is_subset(&self.scan.directories);
        // At the first look, the watch was there before, and a file was not in the middle of a change.
        let doubtful = self.known && (broken || unseen);
        self.scan = scan;
        self.known = true;
        Ok(doubtful)
    }
}

#[cfg(test)]
mod tests;
