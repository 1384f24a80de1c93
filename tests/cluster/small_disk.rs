//! A disk of a few megabytes for one replica: a tmpfs in its own mount namespace.
//!
//! Owns the mount, which ends with this value or with the test process, however that ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Ends when its standard input closes, and so with the test.
const HOLD: &str = r#"mount -t tmpfs -o size="$1" smc "$2" && echo mounted && exec cat"#;

/// Less than RocksDB tries to reserve, and enough for everything the test writes.
const SIZE: &str = "3m";

/// The file that fills the disk.
const BALLAST: &str = "ballast";

pub(crate) struct SmallDisk {
    holder: Child,
    mounted: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk on an existing directory, visible only to programs that run by
    /// [`Self::command`].
    pub(crate) fn mount(on: &Path) -> Self {
        let mut unshare = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--mount", "sh", "-c", HOLD, "sh", SIZE]).arg(on);
        let mut holder = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut output).unwrap();
        assert_eq!(output, "mounted\n", "a tmpfs in a namespace of its own is refused here");
        Self { holder, mounted: on.to_owned() }
    }

    /// Makes the disk read-only, by a bind mount over itself: a remount is not allowed for an
    /// ordinary user.
    pub(crate) fn set_read_only(&self) {
        mounting(self.command().args(["mount", "--bind", "-o", "ro"]).args([&self.mounted; 2]));
    }

    /// Undoes [`Self::set_read_only`].
    pub(crate) fn set_writable(&self) {
        mounting(self.command().arg("umount").arg(&self.mounted));
    }

    /// A command prefix that runs a program with the disk mounted.
    pub(crate) fn command(&self) -> Command {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--target", &self.holder.id().to_string(), "--mount"]);
        if !nix::unistd::geteuid().is_root() {
            nsenter.args(["--user", "--preserve-credentials"]);
        }
        nsenter
    }

    /// The path of the disk from outside its namespace.
    pub(crate) fn path(&self) -> PathBuf {
        let inside = self.mounted.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.holder.id())).join(inside)
    }

    /// Fills the disk completely.
    pub(crate) fn fill(&self) {
        let mut ballast = std::fs::File::create(self.path().join(BALLAST)).unwrap();
        let full = std::io::copy(&mut std::io::repeat(0), &mut ballast).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    /// Undoes [`Self::fill`].
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
        // The process may have ended by itself.
        let _ = self.holder.wait();
    }
}
