//! The file of the key-encryption key: 32 bytes, raw or as 64 hexadecimal digits with or without a line
//! end. Beside it, the file that notes a founding.
//!
//! Owns whom the file may belong to and who may use it: an ordinary file, of root or of the controller's own
//! user, that no other user may read or write. A symbolic link is followed, since Kubernetes mounts a secret
//! as links; what counts is the file at its end. Kubernetes makes a mounted secret readable for a group of
//! the pod (`fsGroup`), which [`KeyPlace::Mounted`] allows.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use nix::libc::O_NONBLOCK;
use nix::unistd::{getegid, geteuid, getgroups};
use smc_host::env::{Env, NoEntropy};
use smc_host::files::private::Replacement;
use smc_host::files::sync_name;
use thiserror::Error;
use zeroize::Zeroizing;

use super::LocalKey;

/// The most bytes that are read; valid files are shorter.
const MAX_LEN: u64 = 128;

/// How the KEK comes to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    /// A file of the operator's, for its owner alone. The founding of an authority is noted beside it.
    File,
    /// A secret that the platform mounts read-only. A group that this process belongs to may read it: of a
    /// container that is the volume's own group. The founding is noted elsewhere
    /// ([`smc_raft::FoundingRegister`]).
    Mounted,
}

/// Why the KEK cannot be loaded. No message carries a part of the file.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// The file does not exist.
    #[error("there is no key-encryption key at {}; --create-kek makes one", .0.display())]
    Missing(PathBuf),
    /// Other users may access it.
    #[error("the key-encryption key {} may be used by others: its mode is {mode:04o}, make it 0600", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The permission bits.
        mode: u32,
    },
    /// It belongs to another user, who could replace it.
    #[error("the key-encryption key {} belongs to the user {owner}: give it to root, or to the controller's own user", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The owner's user ID.
        owner: u32,
    },
    /// The file does not contain a key.
    #[error("{} is not a file that holds 32 bytes or 64 hexadecimal digits", .0.display())]
    NotAKey(PathBuf),
    /// A file system operation failed.
    #[error("cannot {action} the key-encryption key {}", .path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The system returned no random bytes.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

impl LocalKey {
    /// Loads the KEK from a file that only root and this user may access. Blocks, but on the disk only: a
    /// pipe or a device is refused unopened.
    pub fn load(path: &Path, env: &Env) -> Result<Self, KeyFileError> {
        Self::load_from(KeyPlace::File, path, env)
    }

    /// As [`Self::load`], with the rules of `place`.
    pub fn load_from(place: KeyPlace, path: &Path, env: &Env) -> Result<Self, KeyFileError> {
        let groups = match place {
            KeyPlace::File => Vec::new(),
            KeyPlace::Mounted => own_groups(),
        };
        let key = Self::load_as(&Reader { user: geteuid().as_raw(), groups }, path, env)?;
        Ok(Self { place, ..key })
    }

    fn load_as(user: &Reader, path: &Path, env: &Env) -> Result<Self, KeyFileError> {
        let error = |source: io::Error| match source.kind() {
            ErrorKind::NotFound => KeyFileError::Missing(path.to_owned()),
            _ => KeyFileError::Io { action: "read", path: path.to_owned(), source },
        };
        check(&fs::metadata(path).map_err(error)?, user, path)?;
        // Without blocking, in case a pipe takes the file's place now.
        let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).map_err(error)?;
        // Of the open file, so that the file cannot be replaced between the check and the read.
        check(&file.metadata().map_err(error)?, user, path)?;
        // Large enough never to grow, so that no copy of the key stays in freed memory.
        let mut content = Zeroizing::new(Vec::with_capacity(2 * 128));
        file.take(MAX_LEN).read_to_end(&mut content).map_err(error)?;
        let bytes = decode(&content).ok_or_else(|| KeyFileError::NotAKey(path.to_owned()))?;
        Ok(Self::new(&bytes, Arc::clone(&env.entropy), path)?)
    }

    /// Generates a KEK and writes it durably to a new file with mode 0600. An existing file is an error, and
    /// stays. Until the key is complete, there is no file of that name. Blocks.
    pub fn create(path: &Path, env: &Env) -> Result<Self, KeyFileError> {
        let mut bytes = Zeroizing::new([0; 32]);
        env.entropy.fill(&mut *bytes)?;
        let mut text = Zeroizing::new(HEXLOWER.encode(&*bytes));
        text.push('\n');
        // A name that no other creator has: replicas that share a volume may start at once.
        let suffix = format!(".new-{:016x}", env.entropy.random_u64()?);
        let error = |source| KeyFileError::Io { action: "create", path: path.to_owned(), source };
        let mut file = Replacement::beside(path, &suffix).map_err(error)?;
        file.write_all(text.as_bytes()).map_err(error)?;
        file.put_in_new_place().map_err(error)?;
        sync_name(path).map_err(error)?;
        Ok(Self::new(&bytes, Arc::clone(&env.entropy), path)?)
    }

    /// Loads the KEK, or creates it if the file is missing and `create` is set. Blocks.
    pub fn load_or_create(path: &Path, create: bool, env: &Env) -> Result<Self, KeyFileError> {
        match Self::load(path, env) {
            Err(KeyFileError::Missing(_)) if create => match Self::create(path, env) {
                // Another replica was faster.
                Err(KeyFileError::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
                    Self::load(path, env)
                }
                other => other,
            },
            other => other,
        }
    }
}

/// The id of the KEK in the content of such a file, as [`super::KeyEncryption::id`] has it; `None` if it
/// holds no key.
pub fn key_id(content: &[u8]) -> Option<String> {
    decode(content).map(|key| super::id_of(&key))
}

/// The user that reads the file, and the groups that may read it as well.
struct Reader {
    user: u32,
    groups: Vec<u32>,
}

/// The groups of this process. If the system does not say, only the main one counts.
fn own_groups() -> Vec<u32> {
    let others = getgroups().unwrap_or_default();
    others.into_iter().chain([getegid()]).map(nix::unistd::Gid::as_raw).collect()
}

/// Checks the kind, the owner and the mode of the file.
fn check(metadata: &Metadata, reader: &Reader, path: &Path) -> Result<(), KeyFileError> {
    if !metadata.is_file() {
        return Err(KeyFileError::NotAKey(path.to_owned()));
    }
    let owner = metadata.uid();
    if owner != 0 && owner != reader.user {
        return Err(KeyFileError::Foreign { path: path.to_owned(), owner });
    }
    let mode = metadata.mode() & 0o7777;
    let allowed = if reader.groups.contains(&metadata.gid()) { 0o740 } else { 0o700 };
    if mode & 0o777 & !allowed != 0 {
        return Err(KeyFileError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Writes one line durably to a new file.
pub(super) fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    sync_name(path)
}

/// The path of the note of the founding, beside the KEK. Its existence counts, not its content.
pub(super) fn founding_note(key_file: &Path) -> PathBuf {
    let mut name = key_file.as_os_str().to_owned();
    name.push(".founded");
    name.into()
}

fn decode(content: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    if content.len() == bytes.len() {
        bytes.copy_from_slice(content);
        return Some(bytes);
    }
    let text = content.strip_suffix(b"\n").unwrap_or(content);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        for &digit in digits {
            *byte = *byte << 4 | u8::try_from(char::from(digit).to_digit(16)?).ok()?;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
