//! The last good version of every object that a source has reported, kept over a restart.
//!
//! Owns the copies and their directory, which is private. An object that becomes unreadable stays as it was
//! last good; a source that starts loads from here what that was. The rule is about objects, so a copy
//! holds objects, each as its own JSON, whatever platform it came from.
//!
//! The objects that a source reads together are one group, and one file here: those of a manifest, for a
//! directory. It is replaced atomically, so that a change costs as much as its group. A copy is made after
//! the batch with its objects was sent: a crash in between loses the copy, which matters only if an object
//! breaks as well. Writing takes some milliseconds of the disk and no turn of the source, which goes on
//! meanwhile ([`LastGood::begin`], [`LastGood::finish`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use ring::digest::SHA256;
use smc_decode::Rules;
use smc_decode::manifest::{Declaration, MAX_FILE_BYTES, Origin, canonical};
use smc_host::files::private;
use smc_types::problem::Problem;
use tokio_util::sync::CancellationToken;

/// The format marker of every copy; another format needs another number.
const FORMAT: &str = "smc-last-good-2";

/// Bytes of one copy. A group is a file of 8 MiB at most; while it is broken again and again, objects of
/// several versions of it may be in effect.
const MAX_COPY_BYTES: usize = 4 * MAX_FILE_BYTES;

/// Copies that are written at once. Each is a synced write of some milliseconds, and a first start makes
/// thousands of copies; what differs meanwhile waits for as long.
const MAX_SAVED_AT_ONCE: usize = 64;

/// An object as it was last good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// The object and its place. The file of the place is the object's group.
    pub(super) declaration: Arc<Declaration>,
    /// How often its group names the object.
    pub(super) times: usize,
}

/// The copies of one source.
#[derive(Debug, Default)]
pub(super) struct LastGood {
    place: Place,
    /// The digest of every copy, by its group.
    saved: BTreeMap<Arc<str>, Digest>,
    /// Groups whose copies may have to be written or removed.
    waiting: BTreeMap<Arc<str>, Vec<Kept>>,
    /// Files in the directory of the copies that are no copies of this source.
    strays: Vec<PathBuf>,
    /// Why copies cannot be read or written.
    failure: Option<String>,
}

/// Where the copies are, and of what.
#[derive(Debug, Clone, Default)]
struct Place {
    copies: PathBuf,
    /// The name of the source. Copies of another one are ignored and removed.
    source: Arc<str>,
    /// How the copies are read.
    rules: Arc<Rules>,
}

type Digest = [u8; 32];

/// Copies to be written, with the digests of those that they replace.
pub(super) struct Saving {
    place: Place,
    groups: Vec<(Arc<str>, Vec<Kept>, Option<Digest>)>,
    strays: Vec<PathBuf>,
}

/// What became of a [`Saving`].
pub(super) struct Saved {
    written: Vec<(Arc<str>, Option<Digest>)>,
    unwritten: Saving,
    failure: Option<String>,
}

impl LastGood {
    /// The copies of the source of this name, kept in `copies`; [`Self::load`] reads them by these rules.
    pub(super) fn new(copies: PathBuf, source: &str, rules: Arc<Rules>) -> Self {
        let place = Place { copies, source: source.into(), rules };
        let (saved, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self { place, saved, waiting, strays: Vec::new(), failure: None }
    }

    /// Reads the copies, in the order of groups. Blocks.
    pub(super) fn load(&mut self) -> Vec<Kept> {
        let mut groups = BTreeMap::new();
        self.failure = self.read_copies(&mut groups).err().map(|error| error.to_string());
        groups.into_values().flatten().collect()
    }

    fn read_copies(&mut self, groups: &mut BTreeMap<Arc<str>, Vec<Kept>>) -> io::Result<()> {
        let entries = match fs::read_dir(&self.place.copies) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let mut outcome = Ok(());
        for entry in entries {
            let path = entry?.path();
            let mut copy = String::new();
            let read = File::open(&path)
                .and_then(|file| file.take(MAX_COPY_BYTES as u64 + 1).read_to_string(&mut copy));
            match read {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(error) => {
                    outcome = Err(error);
                    continue;
                }
            }
            match self.place.parse(&copy).filter(|(group, _)| path == self.place.path(group)) {
                Some((group, objects)) => {
                    self.saved.insert(Arc::clone(&group), digest(copy.as_bytes()));
                    groups.insert(group, objects);
                }
                None => self.strays.push(path),
            }
        }
        outcome
    }

    /// Notes which objects of a group are in effect, once that was sent; without any, the copy is removed.
    /// [`Self::begin`] writes what differs.
    pub(super) fn keep(&mut self, group: &Arc<str>, objects: Vec<Kept>) {
        self.waiting.insert(Arc::clone(group), objects);
    }

    /// The next copies to be written, if there are any; the caller runs it on a thread that may block, and
    /// hands the outcome to [`Self::finish`].
    pub(super) fn begin(&mut self) -> Option<Saving> {
        let mut groups = Vec::new();
        while groups.len() < MAX_SAVED_AT_ONCE
            && let Some((group, objects)) = self.waiting.pop_first()
        {
            let saved = self.saved.get(&group).copied();
            groups.push((group, objects, saved));
        }
        let strays = std::mem::take(&mut self.strays);
        (!groups.is_empty() || !strays.is_empty()).then(|| Saving {
            place: self.place.clone(),
            groups,
            strays,
        })
    }

    /// Takes the outcome. Returns true if the next copies may be written now; after a failure, which is a
    /// problem to report, the source's next change or full look tries again.
    pub(super) fn finish(&mut self, saved: Saved) -> bool {
        let Saved { written, unwritten: Saving { groups, strays, .. }, failure } = saved;
        for (group, digest) in written {
            match digest {
                Some(digest) => _ = self.saved.insert(group, digest),
                None => _ = self.saved.remove(&group),
            }
        }
        for (group, objects, _) in groups {
            // What was noted meanwhile is newer.
            self.waiting.entry(group).or_insert(objects);
        }
        self.strays.extend(strays);
        // The first reason stands, so that a failure that goes on is one problem.
        self.failure = failure.map(|failure| self.failure.take().unwrap_or(failure));
        self.failure.is_none() && !self.waiting.is_empty()
    }

    /// The problem with the copies, if they cannot be kept.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.failure.as_ref().map(|failure| {
            let message = format!(
                "no copies can be kept here of what was read: {failure}; a restart while a file is broken would \
                 withdraw what it declares"
            );
            Problem::warning(self.place.copies.as_path(), "", message)
        })
    }
}

impl Saving {
    /// Writes the copies. Ends early when `shutdown` is cancelled. Blocks.
    pub(super) fn run(mut self, shutdown: &CancellationToken) -> Saved {
        let mut written = Vec::new();
        let outcome = self.write(&mut written, shutdown);
        Saved { written, unwritten: self, failure: outcome.err().map(|error| error.to_string()) }
    }

    fn write(
        &mut self,
        written: &mut Vec<(Arc<str>, Option<Digest>)>,
        shutdown: &CancellationToken,
    ) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.place.copies)?;
        while let Some(stray) = self.strays.last() {
            remove(stray)?;
            self.strays.pop();
        }
        let mut changed = false;
        while let Some((group, objects, saved)) = self.groups.last()
            && !shutdown.is_cancelled()
        {
            let path = self.place.path(group);
            let copy = self.place.copy(group, objects)?;
            let now = copy.as_ref().map(|copy| digest(copy.as_bytes()));
            match copy {
                _ if now == *saved => {}
                Some(copy) => private::replace(&path, copy.as_bytes())?,
                None => remove(&path)?,
            }
            changed |= now != *saved;
            written.push((Arc::clone(group), now));
            self.groups.pop();
        }
        if changed {
            File::open(&self.place.copies)?.sync_all()?;
        }
        Ok(())
    }
}

impl Place {
    /// Where the copy of a group is. A group's name may be too long for the name of a file.
    fn path(&self, group: &str) -> PathBuf {
        self.copies.join(HEXLOWER.encode(&digest(group.as_bytes())))
    }

    /// The copy of a group: a head, and a line for each object; `None` without objects.
    fn copy(&self, group: &str, objects: &[Kept]) -> io::Result<Option<String>> {
        let mut copy = format!("{FORMAT}\0{}\0{group}\0\n", self.source);
        let head = copy.len();
        for Kept { declaration, times } in objects {
            // The problems of the file name the objects without JSON.
            let Some(json) = &declaration.json else { continue };
            if copy.len() + json.len() + 64 > MAX_COPY_BYTES {
                let message = format!("{group} holds more than {} MiB", MAX_COPY_BYTES / 1024 / 1024);
                return Err(io::Error::other(message));
            }
            // Writing to a string does not fail.
            let _ = writeln!(copy, "{} {times} {json}", declaration.origin.line);
        }
        Ok((copy.len() > head).then_some(copy))
    }

    /// The group that a copy is of, and its objects; `None` if it is no copy of this source. An object that
    /// this version of SMC does not read is left out.
    fn parse(&self, copy: &str) -> Option<(Arc<str>, Vec<Kept>)> {
        let mut parts = copy.splitn(4, '\0');
        let (format, source, group, lines) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if format != FORMAT || source != &*self.source {
            return None;
        }
        let group: Arc<str> = group.into();
        let object = |line: &str| {
            let mut fields = line.splitn(3, ' ');
            let line = fields.next()?.parse().ok()?;
            let times = fields.next()?.parse().ok()?;
            let origin = Origin { file: Arc::clone(&group), line };
            let declaration = Arc::new(canonical::read(&self.rules, origin, fields.next()?)?);
            Some(Kept { declaration, times })
        };
        let objects: Vec<Kept> = lines.lines().filter_map(object).collect();
        (!objects.is_empty()).then_some((group, objects))
    }
}

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&SHA256, bytes).as_ref());
    digest
}

/// Removes a file that may be gone.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
