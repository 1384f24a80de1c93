//! The file of the key-encryption key: 32 bytes, raw or as 64 hexadecimal digits with or without a line
//! end, readable by its owner only. Beside it, the file that notes a founding.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use smc_host::files::sync_name;
use thiserror::Error;
use zeroize::Zeroizing;

use super::LocalKey;
use smc_host::env::{Env, NoEntropy};

/// The most bytes that are read; valid files are shorter.
const MAX_LEN: u64 = 128;

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
    /// The file does not contain a key.
    #[error("{} does not hold 32 bytes or 64 hexadecimal digits", .0.display())]
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
    /// Loads the KEK from a file that only its owner may read. Blocks.
    pub fn load(path: &Path, env: &Env) -> Result<Self, KeyFileError> {
        let error = |source: io::Error| match source.kind() {
            ErrorKind::NotFound => KeyFileError::Missing(path.to_owned()),
            _ => KeyFileError::Io { action: "read", path: path.to_owned(), source },
        };
        let file = File::open(path).map_err(error)?;
        // Of the open file, so that the file cannot be replaced between the check and the read.
        let metadata = file.metadata().map_err(error)?;
        if !metadata.is_file() {
            return Err(KeyFileError::NotAKey(path.to_owned()));
        }
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Exposed { path: path.to_owned(), mode });
        }
        // Large enough never to grow, so that no copy of the key stays in freed memory.
        let mut content = Zeroizing::new(Vec::with_capacity(2 * 128));
        file.take(MAX_LEN).read_to_end(&mut content).map_err(error)?;
        let bytes = decode(&content).ok_or_else(|| KeyFileError::NotAKey(path.to_owned()))?;
        Ok(Self::new(&bytes, Arc::clone(&env.entropy), path)?)
    }

    /// Generates a KEK and writes it durably to a new file with mode 0600. An existing file is an error.
    /// Blocks.
    pub fn create(path: &Path, env: &Env) -> Result<Self, KeyFileError> {
        let mut bytes = Zeroizing::new([0; 32]);
        env.entropy.fill(&mut *bytes)?;
        let text = Zeroizing::new(HEXLOWER.encode(&*bytes));
        let error = |source| KeyFileError::Io { action: "create", path: path.to_owned(), source };
        write_new(path, &text, 0o600).map_err(error)?;
        Ok(Self::new(&bytes, Arc::clone(&env.entropy), path)?)
    }

    /// Loads the KEK, or creates it if the file is missing and `create` is set. Blocks.
    pub fn load_or_create(path: &Path, create: bool, env: &Env) -> Result<Self, KeyFileError> {
        match Self::load(path, env) {
            Err(KeyFileError::Missing(_)) if create => Self::create(path, env),
            other => other,
        }
    }
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
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use smc_types::time::Timestamp;
    use tempfile::TempDir;

    use super::super::KeyEncryption;
    use super::*;
    use smc_host::env::fixed;

    fn written(content: &[u8], mode: u32) -> (TempDir, PathBuf) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("kek");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    fn load(path: &Path) -> Result<LocalKey, KeyFileError> {
        LocalKey::load(path, &fixed::env(Timestamp(0), 1).0)
    }

    #[test]
    fn a_key_is_created_only_when_asked_for_and_reads_back() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("kek");
        let env = fixed::env(Timestamp(0), 1).0;
        assert!(matches!(LocalKey::load_or_create(&path, false, &env), Err(KeyFileError::Missing(_))));
        let created = LocalKey::load_or_create(&path, true, &env).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(LocalKey::load_or_create(&path, true, &env).unwrap().id(), created.id());
        assert!(matches!(LocalKey::create(&path, &env), Err(KeyFileError::Io { .. })));
    }

    #[test]
    fn raw_bytes_and_digits_are_the_same_key() {
        let raw = written(&[0xab; 32], 0o400);
        let digits = written("aB".repeat(32).as_bytes(), 0o600);
        let line = written(format!("{}\n", "ab".repeat(32)).as_bytes(), 0o600);
        let id = load(&raw.1).unwrap().id().to_owned();
        assert_eq!(load(&digits.1).unwrap().id(), id);
        assert_eq!(load(&line.1).unwrap().id(), id);
    }

    #[test]
    fn a_file_that_others_may_use_is_refused() {
        for mode in [0o640, 0o604, 0o620, 0o601, 0o644] {
            let (_dir, path) = written(&[1; 32], mode);
            let error = load(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::Exposed { .. }), "{mode:o}: {error}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_shown() {
        for content in [&b""[..], &[1; 31], &[1; 33], &[b'z'; 64], &[b'a'; 63], &[0; 10_000]] {
            let (_dir, path) = written(content, 0o600);
            let error = load(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::NotAKey(_)), "{error}");
        }
        let dir = TempDir::new().unwrap();
        assert!(matches!(load(dir.path()), Err(KeyFileError::NotAKey(_) | KeyFileError::Io { .. })));
    }
}
