//! A disk of a few megabytes that one replica has to itself: a tmpfs in a mount namespace of its own.
//!
//! Owns the mount, which lasts as long as this value and ends with the test, also if that is killed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Ends when its input does: with whoever holds the other end.
const HOLD: &str = r#"mount -t tmpfs -o size="$1" smc "$2" && echo mounted && exec cat"#;

/// Too small for what RocksDB would like to reserve, and large enough for all that the test writes.
const SIZE: &str = "3m";

/// What takes the room away, beside the replica's own files.
const BALLAST: &str = "ballast";

pub(crate) struct SmallDisk {
    holder: Child,
    mounted: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk on an existing directory, where only [`Self::command`] sees it.
    pub(crate) fn mount(on: &Path) -> Self {
        let mut unshare = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--mount", "sh", "-c", HOLD, "sh", SIZE]).arg(on);
        let mut holder = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "mounted\n", "a tmpfs in a namespace of its own is refused here");
        Self { holder, mounted: on.to_owned() }
    }

    /// From now on nothing on it can be changed: it is mounted over itself. (To mount it anew with other options is refused
    /// to an ordinary user.)
    pub(crate) fn set_read_only(&self) {
        mounting(self.command().args(["mount", "--bind", "-o", "ro"]).args([&self.mounted; 2]));
    }

    /// Takes back what [`Self::set_read_only`] did.
    pub(crate) fn set_writable(&self) {
        mounting(self.command().arg("umount").arg(&self.mounted));
    }

    /// What runs a program where the disk is.
    pub(crate) fn command(&self) -> Command {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--target", &self.holder.id().to_string(), "--mount"]);
        if !nix::unistd::geteuid().is_root() {
            nsenter.args(["--user", "--preserve-credentials"]);
        }
        nsenter
    }

    /// The disk, as it is seen from outside.
    pub(crate) fn path(&self) -> PathBuf {
        let inside = self.mounted.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.holder.id())).join(inside)
    }

    /// Leaves no byte free.
    pub(crate) fn fill(&self) {
        let mut ballast = std::fs::File::create(self.path().join(BALLAST)).unwrap();
        let full = std::io::copy(&mut std::io::repeat(0), &mut ballast).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    /// Takes back what [`Self::fill`] did.
    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.path().join(BALLAST)).unwrap();
    }
}

fn mounting(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?} is refused");
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // It may have ended by itself.
        let _ = self.holder.wait();
    }
}
