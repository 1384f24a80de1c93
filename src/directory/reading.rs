//! One file as it was read.
//!
//! Owns when a file must be read again: the digest of its bytes says whether it must be parsed, and its stamp
//! (size, times and inode) whether it must be opened at all.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::OFlag;
use ring::digest::SHA256;
use smc_decode::Rules;
use smc_decode::manifest::{self, MAX_FILE_BYTES, Manifest};
use tokio::time::Instant;

/// How long a file must have had its stamp before the stamp stands for the contents. Two edits within one
/// step of a file system's clock may leave the same stamp; the longest step is two seconds, that of FAT.
const TRUSTED_AFTER: Duration = Duration::from_secs(5);

/// A file's contents.
#[derive(Debug, Clone)]
pub(super) struct FileReading {
    /// The SHA-256 of its bytes. A file whose digest is unchanged is not parsed again.
    digest: [u8; 32],
    /// Its declarations and problems.
    pub(super) manifest: Arc<Manifest>,
    stamp: Stamp,
    /// When this stamp was first seen.
    first_seen: Instant,
    /// When the bytes were last read.
    read_at: Instant,
}

/// What changes whenever a file's contents change, but for edits in quick succession: only the kernel sets
/// the time of the last change of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl FileReading {
    /// Reads the file `name` at `path`, which must not be a symbolic link; parses it only if it differs from
    /// the reading `known`, which was made by the same rules. Blocks.
    pub(super) fn read(
        path: &Path,
        name: &str,
        known: Option<&Self>,
        now: Instant,
        rules: &Rules,
    ) -> io::Result<Self> {
        // Opening a FIFO would otherwise block the thread until it has a writer. What was a file a moment ago
        // may be a link by now, which could lead out of the mesh directory.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        // Before the bytes: a change while they are read makes the stamp outdated.
        let stamp = Stamp::of(&regular(file.metadata()?)?);
        let mut bytes = Vec::new();
        // One byte more than is allowed, so that a file that is too large is noticed.
        file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        let mut digest = [0; 32];
        digest.copy_from_slice(ring::digest::digest(&SHA256, &bytes).as_ref());
        let manifest = match known {
            Some(known) if known.digest == digest => Arc::clone(&known.manifest),
            _ => Arc::new(manifest::read_by(rules, name, &bytes)),
        };
        let first_seen = known.filter(|known| known.stamp == stamp).map_or(now, |known| known.first_seen);
        Ok(Self { digest, manifest, stamp, first_seen, read_at: now })
    }

    /// Whether the file at `path` is certainly as it was read. Costs no access to its contents. Blocks.
    pub(super) fn is_current(&self, path: &Path) -> bool {
        self.read_at.duration_since(self.first_seen) >= TRUSTED_AFTER
            && fs::symlink_metadata(path).is_ok_and(|metadata| Stamp::of(&metadata) == self.stamp)
    }

    /// The bytes that are read of it.
    pub(super) fn size(&self) -> u64 {
        self.stamp.size.min(MAX_FILE_BYTES as u64 + 1)
    }
}

fn regular(metadata: Metadata) -> io::Result<Metadata> {
    if metadata.is_file() { Ok(metadata) } else { Err(io::Error::other("not a regular file")) }
}

#[cfg(test)]
impl FileReading {
    /// A reading of these bytes, without a file.
    pub(super) fn for_tests(name: &str, bytes: &[u8]) -> Self {
        let stamp = Stamp { device: 0, inode: 0, size: 0, modified: (0, 0), changed: (0, 0) };
        let (manifest, now) = (Arc::new(manifest::read(name, bytes)), Instant::now());
        Self { digest: [0; 32], manifest, stamp, first_seen: now, read_at: now }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_stamp_stands_for_the_contents_once_a_later_reading_finds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        fs::write(&path, "x: 1").unwrap();
        let start = Instant::now();
        let first = FileReading::read(&path, "a.yaml", None, start, &Rules::default()).unwrap();
        assert!(!first.is_current(&path), "an edit within the same step of the clock would not be seen");
        let soon =
            FileReading::read(&path, "a.yaml", Some(&first), start + TRUSTED_AFTER / 2, &Rules::default())
                .unwrap();
        assert!(!soon.is_current(&path));
        let later = FileReading::read(&path, "a.yaml", Some(&soon), start + TRUSTED_AFTER, &Rules::default())
            .unwrap();
        assert!(later.is_current(&path));
        assert!(Arc::ptr_eq(&later.manifest, &first.manifest), "and it was parsed once");
        // Another file of the same length takes its place.
        fs::write(dir.path().join("b"), "x: 2").unwrap();
        fs::rename(dir.path().join("b"), &path).unwrap();
        assert!(!later.is_current(&path));
        let other =
            FileReading::read(&path, "a.yaml", Some(&later), start + 2 * TRUSTED_AFTER, &Rules::default())
                .unwrap();
        assert!(!Arc::ptr_eq(&other.manifest, &first.manifest) && !other.is_current(&path));
        fs::remove_file(&path).unwrap();
        assert!(!later.is_current(&path));
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        symlink("secret", dir.path().join("a.yaml")).unwrap();
        assert!(
            FileReading::read(&dir.path().join("a.yaml"), "a.yaml", None, Instant::now(), &Rules::default())
                .is_err()
        );
    }
}
